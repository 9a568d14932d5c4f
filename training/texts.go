package training

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/model"
)

// Texts are parts of any texts behind what the model's chat template begins a message with: prompts without a question, for
// labels that are not of a response.
type Texts struct {
	*datasets.Excerpts
	name   string
	begins []int32
}

// AreTexts tells that paths are any texts: one of them, at least, is no file of samples, which end in .jsonl or are in a bucket.
func AreTexts(paths []string) bool {
	return slices.ContainsFunc(paths, func(path string) bool { return filepath.Ext(path) != ".jsonl" && !objectstore.IsURL(path) })
}

// heldOutTexts is the share of the texts that nothing is trained on.
const heldOutTexts = 0.1

// OpenTexts reads texts as datasets.OpenExcerpts does. A part has shortest to longest tokens.
func OpenTexts(m *model.Model, paths []string, shortest, longest int, seed uint64) (*Texts, error) {
	tok, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	if shortest < 16 || longest < shortest {
		return nil, fmt.Errorf("--shortest and --longest: got %d and %d, want at least 16 tokens, the longest no fewer", shortest, longest)
	}
	t := &Texts{name: fmt.Sprintf("texts of %d to %d tokens of %s", shortest, longest, strings.Join(paths, ", "))}
	if turn := m.UserTurn(); turn != nil {
		t.begins = turn.Begins
	}
	t.Excerpts, err = datasets.OpenExcerpts(paths, shortest, longest, seed, func(text string) ([]int32, error) { return tok.Encode(text, false) })
	return t, err
}

// HoldOut splits off texts that nothing is trained on.
func (t *Texts) HoldOut() (rest, held *Texts) {
	a, b := *t, *t
	a.Excerpts, b.Excerpts = t.Excerpts.HoldOut(heldOutTexts)
	b.name = "held out of " + t.name
	return &a, &b
}

// Describe implements Source.
func (t *Texts) Describe() string { return t.name }

// DrawnFrom implements Source.
func (*Texts) DrawnFrom() string { return "" }

// Repeats implements Source.
func (*Texts) Repeats() bool { return false }

// At implements Source.
func (t *Texts) At(i int) (Sample, error) {
	ids, err := t.Excerpts.At(i)
	return Sample{ID: fmt.Sprintf("text-%d", i), Prompt: t.framed(ids)}, err
}

// Next is one more prompt.
func (t *Texts) Next() ([]int32, error) {
	ids, err := t.Excerpts.Next()
	return t.framed(ids), err
}

func (t *Texts) framed(ids []int32) []int32 {
	return append(t.begins[:len(t.begins):len(t.begins)], ids...)
}
