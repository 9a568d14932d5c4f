package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

func init() {
	evaluation.Tasks.Add("continuation", evaluation.Task{
		Name:   "continuation",
		Doc:    "eviction in the middle of an answer: the model answers with its full cache, what is before the answer's last tokens is evicted with the prompt, and the model goes on from there",
		Source: "Judge Q (Liu et al. 2025, arXiv:2509.10798) §5, table 5",
		Data:   "problems with reference answers, as MATH-500's (problem, answer); without it a synthetic task",
		Options: []evaluation.Option{
			{Name: "last", Default: "768", Doc: "tokens at the end of the first answer that are written anew; of synthetic tasks half of it"},
			{Name: "task", Default: "section", Doc: "the synthetic task"},
			{Name: "from", Doc: "the first answer: model, with the full cache, or reference, the first one of the data (default model; of synthetic tasks reference)"},
		},
		Open: openContinuation,
	})
}

// continuationMaxNew is the length of a whole answer where none is asked for: most of those
// of reasoning models to MATH-500 are shorter.
const continuationMaxNew = 4096

// mathFields are the fields of MATH-500 and AIME, with what the authors of DeepSeek-R1 (2025,
// arXiv:2501.12948) recommend to ask its distilled models for mathematics, which the paper
// takes.
var mathFields = []string{`prompt={problem}\n\nPlease reason step by step, and put your final answer within \boxed{{}}.`, "answer=answer"}

// continuation is the task ready to make samples.
type continuation struct {
	*evaluation.Setting
	rater
	last      int
	from      string
	maxNew    int // of a whole answer
	synthetic bool
}

func openContinuation(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	c := &continuation{Setting: s, from: s.Options["from"], maxNew: maxNew(s, min(continuationMaxNew, s.Model.Config.MaxPositions/2)), synthetic: s.Data == ""}
	last, err := strconv.Atoi(s.Options["last"])
	if err != nil || last < 1 {
		return nil, fmt.Errorf("option last: got %q, want a whole number of at least 1", s.Options["last"])
	}
	c.last = last
	if c.synthetic {
		c.from = cmp.Or(c.from, "reference")
	}
	if c.from = cmp.Or(c.from, "model"); c.from != "model" && c.from != "reference" {
		return nil, fmt.Errorf("option from: got %q, want model or reference", c.from)
	}
	metric := evaluation.MetricExactAnswer
	if !c.synthetic {
		names := s.Metrics
		if len(names) == 0 {
			names = []string{"math"}
		}
		metric = names[0]
		if c.rater, err = newRater(names...); err != nil {
			return nil, err
		}
		if _, err := s.Model.NeedTokenizer(); err != nil {
			return nil, err
		}
	}
	rows := *s
	if len(rows.Fields) == 0 {
		rows.Fields = mathFields
	}
	prompts, count, err := promptsOf(ctx, &rows, s.Options["task"])
	if err != nil {
		return nil, err
	}
	return &evaluation.Samples{Metric: metric, Count: count, Each: itemsOf(prompts, func(p prompt) evaluation.Item {
		return evaluation.Item{ID: p.id, Make: func(ctx context.Context) (*evaluation.Sample, error) { return c.promptSample(ctx, p) }}
	})}, nil
}

// promptSample is a prompt with the first part of an answer, and the rest to be written.
func (c *continuation) promptSample(ctx context.Context, p prompt) (*evaluation.Sample, error) {
	if p.err != nil {
		return nil, p.err
	}
	if !c.synthetic && len(p.references) == 0 {
		return nil, errors.New("no reference answer, want one to score against")
	}
	whole := c.maxNew
	if c.synthetic {
		whole = len(p.answer) + 1
	}
	ids, err := p.encode(ctx, whole)
	if err != nil {
		return nil, err
	}
	answer, err := c.firstAnswer(ctx, p, ids, whole)
	if err != nil {
		return nil, err
	}
	cut := min(c.last, len(answer))
	if c.synthetic {
		cut = (len(answer) + 1) / 2
	}
	before := answer[:len(answer)-cut]
	return oneTurn(slices.Concat(ids, before), whole-len(before), nil, p.references, func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
		said := slices.Concat(before, answers[0].IDs)
		if c.synthetic {
			right := 0.0
			if answers[0].Ended && slices.Equal(said, p.answer) {
				right = 1
			}
			return evaluation.Scores{evaluation.MetricExactAnswer: right}, nil
		}
		// Characters may have tokens on both sides of the cut.
		text, err := c.Model.Tokenizer.Decode(said, true)
		if err != nil {
			return nil, err
		}
		return c.scores(text, scoring.Reference{Answers: p.references})
	}), nil
}

// greedy is what a model answers a prompt, with its full cache.
func greedy(ctx context.Context, m *model.Model, ids []int32, maxNew int) ([]int32, error) {
	cache, r := kvcache.New(m), runner.New(m)
	logits, err := r.Forward(ctx, cache, ids, runner.PrefillOptions{})
	if err != nil {
		return nil, err
	}
	answer, _, err := r.Continue(ctx, cache, logits, runner.GenerateOptions{MaxNew: maxNew, Prompt: ids})
	return answer, err
}

// firstAnswer is the first answer to a prompt, whole.
func (c *continuation) firstAnswer(ctx context.Context, p prompt, ids []int32, most int) ([]int32, error) {
	switch {
	case c.from == "model":
		return greedy(ctx, c.Model, ids, most)
	case c.synthetic:
		return p.answer, nil
	}
	answer, err := c.Model.Tokenizer.Encode(p.references[0], false)
	if err != nil {
		return nil, fmt.Errorf("tokenize the reference: %w", err)
	}
	if len(answer) > most {
		return nil, fmt.Errorf("the reference has %d tokens, want at most %d; --max-new allows more", len(answer), most)
	}
	return answer, nil
}
