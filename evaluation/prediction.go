package evaluation

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/engine"
	"glimpse/internal/regularfile"
)

// Prediction is what one cell, a policy at a budget, did on one sample. It is a line of
// predictions.jsonl. A sample that failed as a whole has one without a policy.
type Prediction struct {
	Task   string `json:"task"`
	Index  int    `json:"index"`  // of the sample in its task, from 0
	Sample string `json:"sample"` // its ID

	Model   string `json:"model"`
	Policy  string `json:"policy,omitempty"`
	Adapter string `json:"adapter,omitempty"`
	Budget  string `json:"budget,omitempty"` // as it was given; "" for the full cache

	Metric       string   `json:"metric,omitempty"` // the measure that tables show
	Groups       []Group  `json:"groups,omitempty"`
	PromptTokens int      `json:"prompt_tokens,omitempty"` // of the first turn
	Prompt       string   `json:"prompt,omitempty"`        // of the first turn, as the model reads it; of a long one the ends
	PromptSHA256 string   `json:"prompt_sha256,omitempty"` // of all of a long one, lower-case hexadecimal
	References   []string `json:"references,omitempty"`    // as Sample has them, long ones cut
	Answers      []string `json:"answers,omitempty"`       // by turn
	Finish       []string `json:"finish,omitempty"`        // by turn: stop or length
	Measures     Measures `json:"measures,omitempty"`
	Error        string   `json:"error,omitempty"`

	// Cells is how many lines the sample has, so that a file that was cut between them is
	// seen to be.
	Cells int `json:"cells"`
}

// failed tells that the whole sample did.
func (p *Prediction) failed() bool { return p.Policy == "" }

// Measured tells that the cell was measured on the sample.
func (p *Prediction) Measured() bool { return !p.failed() && p.Error == "" }

// Bounds of the prompt and the references in a line, in characters.
const (
	promptEnd     = 500 // at each end of a prompt that is longer than both
	referenceText = 1000
	maxReferences = 20
)

// about takes down the prompt and the references of a sample.
func (p *Prediction) about(prompt string, references []string) {
	if p.Prompt = prompt; utf8.RuneCountInString(prompt) > 2*promptEnd {
		r := []rune(prompt)
		p.PromptSHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte(prompt)))
		p.Prompt = fmt.Sprintf("%s […%d characters…] %s", string(r[:promptEnd]), len(r)-2*promptEnd, string(r[len(r)-promptEnd:]))
	}
	p.References = nil
	for _, text := range references[:min(len(references), maxReferences)] {
		if utf8.RuneCountInString(text) > referenceText {
			text = string([]rune(text)[:referenceText]) + "…"
		}
		p.References = append(p.References, text)
	}
}

// Shorten drops the texts, which are most of a prediction's size.
func (p *Prediction) Shorten() {
	p.Prompt, p.PromptSHA256, p.References, p.Answers, p.Finish = "", "", nil, nil, nil
}

// encodeLine makes the line of a prediction, without the newline. Numbers of JSON are finite,
// which measures have been checked to be.
func (p *Prediction) encodeLine() ([]byte, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return nil, fmt.Errorf("prediction of %s: %w", p.Sample, err)
	}
	sum := fmt.Sprintf("%08x", crc32.ChecksumIEEE(body))
	return fmt.Appendf(body[:len(body)-1], `,"crc32":"%s"}`, sum), nil
}

const crcField = `,"crc32":"00000000"}`

// decodePrediction reads a line and refuses one that is not as it was written.
func decodePrediction(line []byte) (*Prediction, error) {
	n := len(line) - len(crcField)
	if n < 1 || !bytes.HasPrefix(line[n:], []byte(crcField[:len(crcField)-10])) {
		return nil, errors.New("no checksum at its end")
	}
	body := append(slices.Clone(line[:n]), '}')
	if want := fmt.Sprintf(`%08x"}`, crc32.ChecksumIEEE(body)); want != string(line[len(line)-10:]) {
		return nil, errors.New("its checksum is another")
	}
	p := new(Prediction)
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		return nil, err
	}
	return p, p.validate()
}

func (p *Prediction) validate() error {
	if p.Task == "" || p.Index < 0 || p.Cells < 1 {
		return fmt.Errorf("task %q, index %d, %d cells: no prediction has these", p.Task, p.Index, p.Cells)
	}
	return nil
}

// maxLine bounds a line of predictions.jsonl; answers are short.
const maxLine = 1 << 26

// SampleKey names a sample within a run.
type SampleKey struct {
	model, task string
	index       int
}

// Key is that of the sample.
func (p *Prediction) Key() SampleKey { return SampleKey{p.Model, p.Task, p.Index} }

// predictionCell names a cell within a sample.
type predictionCell struct{ policy, adapter, budget string }

func (p *Prediction) cell() predictionCell { return predictionCell{p.Policy, p.Adapter, p.Budget} }

// samplesRead are the lines that were read, by samples.
type samplesRead struct {
	whole [][]*Prediction
	place map[SampleKey]int // in whole
	open  []*Prediction     // of the sample whose lines are not complete
}

// add takes the next line. It is an error if the line does not follow those before it.
func (s *samplesRead) add(p *Prediction) error {
	if len(s.open) > 0 && (p.Key() != s.open[0].Key() || p.Cells != s.open[0].Cells) {
		return fmt.Errorf("after %d of %d lines of sample %s", len(s.open), s.open[0].Cells, s.open[0].Sample)
	}
	if slices.ContainsFunc(s.open, func(o *Prediction) bool { return o.Sample != p.Sample || o.cell() == p.cell() }) {
		return fmt.Errorf("sample %s has the line of %s at budget %q twice, or one of sample %s", s.open[0].Sample, engine.NameWithAdapter(p.Policy, p.Adapter), p.Budget, p.Sample)
	}
	i, again := s.place[p.Key()]
	s.open = append(s.open, p)
	complete := len(s.open) == p.Cells
	if again && (p.Cells <= len(s.whole[i]) || complete && !extends(s.open, s.whole[i])) {
		return fmt.Errorf("sample %s of task %s is there a second time", p.Sample, p.Task)
	}
	if !complete {
		return nil
	}
	if again {
		s.whole[i] = s.open
	} else {
		s.place[p.Key()], s.whole = len(s.whole), append(s.whole, s.open)
	}
	s.open = nil
	return nil
}

// ReadPredictions reads the predictions of samples that are whole. whole is the number of
// bytes up to the first line that is damaged, or belongs to a sample whose lines are
// missing or there twice; damage says what that is, nil at the end of a file that is whole.
// Lines of a sample that are there once more with more cells, as a run writes them to which policies
// or budgets were added, take the place of the first. Each, if not nil, is told of every line.
func ReadPredictions(r io.Reader, each func(*Prediction)) (all []*Prediction, whole int64, damage, err error) {
	in := bufio.NewReaderSize(r, 1<<16)
	samples := samplesRead{place: make(map[SampleKey]int)}
	var at int64
	for line := 1; ; line++ {
		raw, err := regularfile.Line(in, maxLine)
		var p *Prediction
		switch open := samples.open; {
		case err == io.EOF && len(raw) == 0 && len(open) == 0:
			return slices.Concat(samples.whole...), whole, nil, nil
		case err == io.EOF && len(raw) == 0:
			err = fmt.Errorf("the file ends after %d of %d lines of sample %s", len(open), open[0].Cells, open[0].Sample)
		case err == io.EOF:
			err = errors.New("cut off")
		case err == nil:
			if p, err = decodePrediction(raw[:len(raw)-1]); err == nil {
				err = samples.add(p)
			}
		case !errors.Is(err, regularfile.ErrLong):
			return nil, 0, nil, err
		}
		if err != nil {
			damage = fmt.Errorf("line %d: %w", line, err)
			break
		}
		if each != nil {
			each(p)
		}
		if at += int64(len(raw)); len(samples.open) == 0 {
			whole = at
		}
	}
	return slices.Concat(samples.whole...), whole, damage, nil
}

// extends tells that lines are of all cells of the former ones of the same sample, and of more.
func extends(lines, former []*Prediction) bool {
	return !slices.ContainsFunc(former, func(o *Prediction) bool {
		return o.Sample != lines[0].Sample || !slices.ContainsFunc(lines, func(p *Prediction) bool { return p.cell() == o.cell() })
	})
}

// encodeSample makes the lines of one sample.
func encodeSample(lines []*Prediction) ([]byte, error) {
	var out []byte
	for _, p := range lines {
		p.Cells = len(lines)
		line, err := p.encodeLine()
		if err != nil {
			return nil, err
		}
		out = append(append(out, line...), '\n')
	}
	return out, nil
}

// SortPredictions puts them into the order of tasks, samples and cells, whatever the order
// in which they were made. The order of models, tasks and cells is that given.
func SortPredictions(all []*Prediction, models, tasks []string) {
	place := func(names []string) map[string]int {
		at := make(map[string]int, len(names))
		for i, n := range names {
			at[n] = i
		}
		return at
	}
	model, task := place(models), place(tasks)
	slices.SortStableFunc(all, func(a, b *Prediction) int {
		return cmp.Or(cmp.Compare(model[a.Model], model[b.Model]), cmp.Compare(task[a.Task], task[b.Task]), strings.Compare(a.Task, b.Task), cmp.Compare(a.Index, b.Index))
	})
}

// WritePredictions writes all in the order given, in which lines of a sample follow one
// another.
func WritePredictions(w io.Writer, all []*Prediction) error {
	for _, p := range all {
		line, err := p.encodeLine()
		if err != nil {
			return err
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}
