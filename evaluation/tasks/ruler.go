package tasks

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/internal/listing"
)

const rulerSource = "RULER, Hsieh et al. 2024, arXiv:2404.06654, table 5 and appendix B; github.com/NVIDIA/RULER, scripts/synthetic.yaml"

func init() {
	evaluation.Tasks.Add("ruler", evaluation.Task{
		Name:     "ruler",
		Doc:      "13 tasks of retrieval, tracing, counting and questions over documents, with prompts of an exact length",
		Source:   rulerSource,
		Data:     "RULER's own jsonl files, by task; or a folder with squad.json and hotpotqa.json for qa_1 and qa_2 and text for the haystack, PaulGrahamEssays.json or haystack.txt. Without it prompts are made, but for qa_1 and qa_2, which are left out",
		Subtasks: listing.Map(rulerTasks, func(t rulerTask) string { return t.name }),
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "prompt lengths in tokens, as many samples each; none is the one that --tokens gives, or 4096"},
			{Name: "count", Default: rulerPrompt, Doc: "what has the length: the prompt alone, or total, the prompt with the longest answer, as RULER's max_seq_length"},
			{Name: "haystack", Doc: "file with text in the place of that in --data"},
			{Name: "squad", Doc: "SQuAD 2.0 as its authors publish it (dev-v2.0.json), for qa_1"},
			{Name: "hotpotqa", Doc: "HotpotQA with distractors as its authors publish it (hotpot_dev_distractor_v1.json), for qa_2"},
		},
		Open: openRULER,
	})
}

// The values of the option count.
const (
	rulerPrompt = "prompt"
	rulerTotal  = "total"
)

const (
	rulerLength = 4096
	rulerAll    = "string_match_all"
	rulerPart   = "string_match_part"
)

// rulerTask is one of the 13.
type rulerTask struct {
	name      string
	maxNew    int          // tokens_to_generate
	metric    string       // of scripts/eval/synthetic/constants.py
	needles   rulerNeedles // of the needle tasks
	documents bool         // it wants files of questions and documents
	make      func(r *ruler, rng *rand.Rand, length, index int) (draft, error)
}

var rulerTasks = []rulerTask{
	rulerNIAH("niah_single_1", rulerNeedles{haystack: hayNoise, keys: words, values: numerals, k: 1, v: 1, q: 1}),
	rulerNIAH("niah_single_2", rulerNeedles{haystack: hayEssay, keys: words, values: numerals, k: 1, v: 1, q: 1}),
	rulerNIAH("niah_single_3", rulerNeedles{haystack: hayEssay, keys: words, values: uuids, k: 1, v: 1, q: 1}),
	rulerNIAH("niah_multikey_1", rulerNeedles{haystack: hayEssay, keys: words, values: numerals, k: 4, v: 1, q: 1}),
	rulerNIAH("niah_multikey_2", rulerNeedles{haystack: hayNeedles, keys: words, values: numerals, k: 1, v: 1, q: 1}),
	rulerNIAH("niah_multikey_3", rulerNeedles{haystack: hayNeedles, keys: uuids, values: uuids, k: 1, v: 1, q: 1}),
	rulerNIAH("niah_multivalue", rulerNeedles{haystack: hayEssay, keys: words, values: numerals, k: 1, v: 4, q: 1}),
	rulerNIAH("niah_multiquery", rulerNeedles{haystack: hayEssay, keys: words, values: numerals, k: 4, v: 1, q: 4}),
	{name: "vt", maxNew: 30, metric: rulerAll, make: makeVT},
	{name: "cwe", maxNew: 120, metric: rulerAll, make: makeCWE},
	{name: "fwe", maxNew: 50, metric: rulerAll, make: makeFWE},
	{name: "qa_1", maxNew: 32, metric: rulerPart, documents: true, make: makeQA},
	{name: "qa_2", maxNew: 32, metric: rulerPart, documents: true, make: makeQA},
}

// ruler is one of the tasks at work.
type ruler struct {
	rulerTask
	rater
	setting *evaluation.Setting
	maxNew  int
	essay   *haystack // nil: one is made
	library *library  // of qa
}

func openRULER(ctx context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	r := &ruler{setting: s, rulerTask: rulerTasks[slices.IndexFunc(rulerTasks, func(t rulerTask) bool { return t.name == subtask })]}
	r.maxNew = maxNew(s, r.rulerTask.maxNew)
	var err error
	if r.rater, err = newRater(r.metric); err != nil {
		return nil, err
	}
	files, err := findRULER(ctx, s, subtask)
	if err != nil {
		return nil, err
	}
	if files.prompts != "" {
		return r.openPrompts(files.prompts)
	}
	lengths, err := lengthsOf(s, []int{rulerLength})
	if err != nil {
		return nil, err
	}
	switch s.Options["count"] {
	case rulerPrompt:
	case rulerTotal:
		for i := range lengths {
			lengths[i] -= r.maxNew
		}
	default:
		return nil, fmt.Errorf("option count: got %q, want %s or %s", s.Options["count"], rulerPrompt, rulerTotal)
	}
	if err := checkLengths(s, lengths, r.maxNew); err != nil {
		return nil, err
	}
	if err := r.readFiles(files); err != nil {
		return nil, err
	}
	count := s.Limit()
	if r.library != nil {
		count = min(count, len(r.library.questions))
	}
	return ofLengths(r.metric, subtask, count, lengths, r.sample), nil
}

// readFiles reads what prompts are made of.
func (r *ruler) readFiles(files rulerFiles) (err error) {
	switch {
	case r.needles.haystack == hayEssay && files.haystack != "":
		r.essay, err = readHaystack(files.haystack, nil)
	case r.documents && files.documents == "":
		name, option := "squad.json", "squad"
		if r.name == "qa_2" {
			name, option = "hotpotqa.json", "hotpotqa"
		}
		return fmt.Errorf("the questions and documents are not part of this program; want --data with %s in it, or --task-option ruler.%s=FILE: %w", name, option, evaluation.ErrNoData)
	case r.documents && r.name == "qa_1":
		r.library, err = readSQuAD(files.documents)
	case r.documents:
		r.library, err = readHotpotQA(files.documents)
	}
	return err
}

// sample makes the i-th prompt of a length. Its answers do not depend on the length.
func (r *ruler) sample(ctx context.Context, length, i int) (*evaluation.Sample, error) {
	rng := rand.New(rand.NewPCG(r.setting.Seed, seedOf("ruler/"+r.name)+uint64(i)))
	d, err := r.make(r, rng, length, i)
	if err != nil {
		return nil, err
	}
	ids, _, err := fit(ctx, r.setting, d, length)
	if err != nil {
		return nil, err
	}
	return r.asked(ids, d.answers), nil
}

// seedOf keeps the samples of tasks apart.
func seedOf(task string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(task))
	return h.Sum64()
}

// asked is a sample whose answers count as much of the references as they have in them.
func (r *ruler) asked(ids []int32, want []string) *evaluation.Sample {
	s := oneTurn(ids, r.maxNew, nil, want, r.against(scoring.Reference{Answers: want}))
	s.Evidence = standingText(r.setting.Model, ids, want...)
	return s
}

// noise is the text without sense of RULER's haystacks.
const noise = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

// scattered are places among so many units for n things in order, no two at the same one
// where there are enough. The shares in [0, 1) are in order, too.
func scattered(shares []float64, units int) []int {
	out := make([]int, len(shares))
	for i, u := range shares {
		out[i] = int(u * float64(units))
		if i > 0 && out[i] <= out[i-1] {
			out[i] = out[i-1] + 1
		}
	}
	for i, last := len(out)-1, units; i >= 0; i-- {
		out[i] = max(0, min(out[i], last))
		last = out[i] - 1
	}
	return out
}

// insertAt puts things before the lines of those numbers, which are in order.
func insertAt(lines, things []string, at []int) []string {
	out := slices.Clone(lines)
	for i, thing := range slices.Backward(things) {
		out = slices.Insert(out, min(at[i], len(lines)), thing)
	}
	return out
}

var errNoQuestions = errors.New("got no questions, want at least one with an answer")

// noiseFiller is the beginning of a line of noise.
func noiseFiller(n, variant int) string { return strings.Join(filler(n, variant), " ") }
