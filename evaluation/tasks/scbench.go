package tasks

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/internal/listing"
)

func init() {
	evaluation.Tasks.Add("scbench", evaluation.Task{
		Name:     "scbench",
		Doc:      "several questions, turn by turn, about one long context that was evicted before the second was known",
		Source:   "SCBench, Li et al. 2024, arXiv:2412.10319; github.com/microsoft/MInference, scbench/eval_utils.py and compute_scores.py. The model's own answers stand between the turns. Our own: needles",
		Data:     "SCBench's jsonl file of the subtask, or a folder with scbench_SUBTASK.jsonl; without it prompts are made, but for qa_eng, which is left out",
		Subtasks: listing.Map(scTasks, func(t scTask) string { return t.name }), Contexts: true,
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "tokens of the first prompt; none is the one that --tokens gives, or 4096"},
			{Name: "turns", Default: "5", Doc: "questions about one context, of prompts that are made"},
		},
		Open: openSCBench,
	})
}

const (
	scLength = 4096
	scMetric = "accuracy" // mean over the turns; SCBench's word for all four
)

// scTask is one of SCBench's.
type scTask struct {
	name   string
	maxNew int
	interview
	make func(rng *rand.Rand, turns int) scDraft // nil: only from files
}

// scDraft is a context whose length is open, with the questions about it.
type scDraft struct {
	context   func(units, fillers, variant int) string
	questions []contextQuestion
}

const kvTemplate = "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n{input}"

var scTasks = []scTask{
	{name: "kv", maxNew: 150, interview: interview{template: kvTemplate, follow: "{input}", rate: scContains}, make: makeSCKV},
	{name: "prefix_suffix", maxNew: 150, interview: interview{template: "{context}\n\n{input}", follow: "{input}", rate: scContains}, make: makeSCAffix},
	{name: "vt", maxNew: 30, interview: interview{template: "{context}\n\n{input}", follow: "{input}", rate: rateBy("string_match_all")}, make: makeSCVT},
	{name: "qa_eng", maxNew: 40, interview: interview{template: "Read the book and answer the question. Be very concise in your answer.\n\n{context}\n\nQuestion: {input}\nAnswer:",
		follow: "Question: {input}\nAnswer:", rate: rateBy("string_match_part")}},
	{name: "needles", maxNew: niahMaxNew, interview: interview{template: "Some important information is hidden within the following text. Read it carefully; questions about it follow.\n\n{context}\n\n{input}",
		follow: "{input}", rate: scContains}, make: makeSCNeedles},
}

// scContains is 1 for an answer that has the reference in it, letter by letter.
func scContains(answer string, want []string) (float64, error) {
	for _, w := range want {
		if strings.Contains(answer, w) {
			return 1, nil
		}
	}
	return 0, nil
}

// scbench is one of the tasks at work.
type scbench struct {
	scTask
	turns int // of prompts that are made
}

func openSCBench(ctx context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	b := &scbench{scTask: scTasks[slices.IndexFunc(scTasks, func(t scTask) bool { return t.name == subtask })]}
	b.setting, b.metric, b.most = s, scMetric, maxNew(s, b.maxNew)
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return nil, err
	}
	if s.Data != "" {
		path, err := findFile(ctx, s, "scbench_"+b.name)
		if err != nil {
			return nil, err
		}
		return (&fileTask{Setting: s, path: path, metric: scMetric}).samples(b.row)
	}
	if b.make == nil {
		return nil, fmt.Errorf("the books are not part of this program; want --data with scbench_%s.jsonl: %w", subtask, evaluation.ErrNoData)
	}
	turns, err := parseNumbers(s.Options["turns"])
	if err != nil || len(turns) != 1 || turns[0] > 100 {
		return nil, fmt.Errorf("option turns: got %q, want a number from 1 to 100", s.Options["turns"])
	}
	b.turns = turns[0]
	lengths, err := lengthsOf(s, []int{scLength})
	if err != nil {
		return nil, err
	}
	const question = 100 // tokens of one, with the template around it
	if err := checkLengths(s, lengths, b.most+(b.turns-1)*(b.most+question)); err != nil {
		return nil, err
	}
	return ofLengths(scMetric, subtask, s.Limit(), lengths, b.made), nil
}

// made makes a sample whose first prompt has so many tokens.
func (b *scbench) made(ctx context.Context, length, i int) (*evaluation.Sample, error) {
	rng := rand.New(rand.NewPCG(b.setting.Seed, seedOf("scbench/"+b.name)+uint64(i)))
	d := b.make(rng, b.turns)
	first, user, err := fit(ctx, b.setting, draft{variants: len(fillerEnds), text: func(units, fillers, variant int) (user, begin string, err error) {
		return b.dialogue(d.context(units, fillers, variant), d.questions[:1]).users[0], "", nil
	}}, length)
	if err != nil {
		return nil, err
	}
	if b.setting.ContextFirst {
		return b.contextFirst(user, d.questions)
	}
	talk := b.dialogue("", d.questions)
	talk.users[0] = user
	return b.asked(talk.turnsAfter(first), d.questions), nil
}

// row makes a sample of a row of SCBench: "context" and "multi_turns", a list of "input" and
// "answer".
func (b *scbench) row(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
	name := "context"
	if !row.Has(name) && row.Has("input") {
		name = "input" // in some of the files
	}
	r := reading{Row: row}
	text := r.readText(name)
	var n []any
	if r.decode("multi_turns", "a list of turns", &n); r.err == nil && len(n) == 0 {
		r.err = errors.New(`field "multi_turns": got no turns, want at least one`)
	}
	var questions []contextQuestion
	for i := range n {
		at := fmt.Sprintf("multi_turns.%d.", i)
		q := contextQuestion{r.readText(at + "input"), r.readTexts(at + "answer")}
		if r.err == nil && len(q.answer) == 0 {
			r.err = fmt.Errorf("field %q: got nothing, want the answer", at+"answer")
		}
		questions = append(questions, q)
	}
	if r.err != nil {
		return nil, r.err
	}
	return b.sample(ctx, text, questions)
}
