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
	"glimpse/evaluation/scoring"
	"glimpse/internal/listing"
	"glimpse/model"
)

func init() {
	evaluation.Tasks.Add("scbench", evaluation.Task{
		Name:     "scbench",
		Doc:      "several questions, turn by turn, about one long context that was evicted before the second was known",
		Source:   "SCBench, Li et al. 2024, arXiv:2412.10319; github.com/microsoft/MInference, scbench/eval_utils.py and compute_scores.py. The model's own answers stand between the turns. Our own: needles",
		Data:     "SCBench's jsonl file of the subtask, or a folder with scbench_SUBTASK.jsonl; without it prompts are made, but for qa_eng, which is left out",
		Subtasks: listing.Map(scTasks, func(t scTask) string { return t.name }),
		Options: []evaluation.Option{
			{Name: "lengths", Doc: "tokens of the first prompt; none is the one that --tokens gives, or 4096"},
			{Name: "turns", Default: "5", Doc: "questions about one context, of prompts that are made"},
			{Name: "evict", Default: evictQuestion, Doc: "what is evicted: question, the context with the first question, which the others follow; or context, alone, of whose copies each question is asked"},
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
	name     string
	maxNew   int
	template string // of the first turn
	follow   string // of the others
	// rate is the score of one answer against the references.
	rate func(answer string, want []string) (float64, error)
	make func(rng *rand.Rand, turns int) scDraft // nil: only from files
}

// scDraft is a context whose length is open, with the questions about it.
type scDraft struct {
	context   func(units, fillers, variant int) string
	questions []scTurn
}

type scTurn struct {
	input  string
	answer []string
}

const kvTemplate = "Extract the value corresponding to the specified key in the JSON object below.\n\n{context}\n\n{input}"

var scTasks = []scTask{
	{name: "kv", maxNew: 150, template: kvTemplate, follow: "{input}", rate: scContains, make: makeSCKV},
	{name: "prefix_suffix", maxNew: 150, template: "{context}\n\n{input}", follow: "{input}", rate: scContains, make: makeSCAffix},
	{name: "vt", maxNew: 30, template: "{context}\n\n{input}", follow: "{input}", rate: scMetricRate("string_match_all"), make: makeSCVT},
	{name: "qa_eng", maxNew: 40, template: "Read the book and answer the question. Be very concise in your answer.\n\n{context}\n\nQuestion: {input}\nAnswer:",
		follow: "Question: {input}\nAnswer:", rate: scMetricRate("string_match_part")},
	{name: "needles", maxNew: niahMaxNew, template: "Some important information is hidden within the following text. Read it carefully; questions about it follow.\n\n{context}\n\n{input}",
		follow: "{input}", rate: scContains, make: makeSCNeedles},
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

func scMetricRate(name string) func(string, []string) (float64, error) {
	return func(answer string, want []string) (float64, error) {
		m, err := scoring.Metrics.Lookup(name)
		if err != nil {
			return 0, err
		}
		return m.Score(answer, scoring.Reference{Answers: want})
	}
}

// The values of the option evict.
const (
	evictQuestion = "question"
	evictContext  = "context"
)

// scbench is one of the tasks at work.
type scbench struct {
	scTask
	setting *evaluation.Setting
	maxNew  int
	turns   int  // of prompts that are made
	alone   bool // the context is evicted alone
}

func openSCBench(ctx context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	b := &scbench{setting: s, scTask: scTasks[slices.IndexFunc(scTasks, func(t scTask) bool { return t.name == subtask })]}
	b.maxNew = maxNew(s, b.scTask.maxNew)
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return nil, err
	}
	switch what := s.Options["evict"]; what {
	case evictQuestion, evictContext:
		b.alone = what == evictContext
	default:
		return nil, fmt.Errorf("option evict: got %q, want %s or %s", what, evictQuestion, evictContext)
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
	if err := checkLengths(s, lengths, b.maxNew+(b.turns-1)*(b.maxNew+question)); err != nil {
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
	if b.alone {
		return b.contextFirst(user, d.questions)
	}
	talk := b.dialogue("", d.questions)
	talk.users[0] = user
	return b.asked(talk.turnsAfter(first), d.questions), nil
}

// dialogue is what is said about a context.
func (b *scbench) dialogue(context string, questions []scTurn) *conversation {
	d := &conversation{setting: b.setting, maxNew: b.maxNew}
	for i, q := range questions {
		template := b.follow
		if i == 0 {
			template = b.template
		}
		d.users = append(d.users, strings.NewReplacer("{context}", context, "{input}", q.input).Replace(template))
	}
	return d
}

// asked is the sample of some turns. Beside the mean there is the score of each turn, which
// tells what eviction has cost the later ones.
func (b *scbench) asked(turns []evaluation.Turn, questions []scTurn) *evaluation.Sample {
	references := listing.Map(questions, func(q scTurn) string { return strings.Join(q.answer, " | ") })
	return &evaluation.Sample{Turns: turns, References: references, Score: func(_ context.Context, answers []evaluation.Answer) (evaluation.Scores, error) {
		scores := evaluation.Scores{}
		sum := 0.0
		for i, q := range questions {
			v, err := b.rate(answers[i].Text, q.answer)
			if err != nil {
				return nil, fmt.Errorf("turn %d: %w", i+1, err)
			}
			scores[fmt.Sprintf("%s_turn_%d", scMetric, i+1)] = v
			sum += v
		}
		scores[scMetric] = sum / float64(len(questions))
		return scores, nil
	}}
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
	var questions []scTurn
	for i := range n {
		at := fmt.Sprintf("multi_turns.%d.", i)
		q := scTurn{r.readText(at + "input"), r.readTexts(at + "answer")}
		if r.err == nil && len(q.answer) == 0 {
			r.err = fmt.Errorf("field %q: got nothing, want the answer", at+"answer")
		}
		questions = append(questions, q)
	}
	if r.err != nil {
		return nil, r.err
	}
	talk := b.dialogue(text, questions)
	if b.alone {
		return b.contextFirst(talk.users[0], questions)
	}
	turns, err := talk.turns(ctx)
	if err != nil {
		return nil, err
	}
	return b.asked(turns, questions), nil
}

// contextFirst is the sample of a context that is evicted before anything is asked. user is what is said with the first
// question, which each of the others then stands in the place of.
func (b *scbench) contextFirst(user string, questions []scTurn) (*evaluation.Sample, error) {
	m := b.setting.Model
	_, after, _ := strings.Cut(b.template, "{input}")
	encode := func(text string) ([]int32, error) { return m.Tokenizer.Encode(text, false) }
	said := strings.TrimSuffix(user, questions[0].input+after)
	frame := m.UserTurn()
	if b.setting.Raw || frame == nil {
		frame, encode = &model.UserTurn{}, m.Encode
	}
	ids, err := encode(said)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	context := slices.Concat(frame.Begins, ids)
	var turns []evaluation.Turn
	longest := 0
	for _, q := range questions {
		ids, err := m.Tokenizer.Encode(q.input+after, false)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		longest = max(longest, len(ids))
		turns = append(turns, evaluation.Turn{Prompt: evaluation.Fixed(slices.Concat(ids, frame.Ends)), MaxNew: b.maxNew})
	}
	if most := b.setting.MaxTokens(b.maxNew + longest + len(frame.Ends)); len(context) > most {
		return nil, fmt.Errorf("the context has %d tokens, want at most %d", len(context), most)
	}
	sample := b.asked(turns, questions)
	sample.Context = context
	return sample, nil
}
