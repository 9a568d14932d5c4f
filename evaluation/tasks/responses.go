package tasks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/listing"
	"glimpse/model"
	"glimpse/model/runner"
)

func init() {
	evaluation.Tasks.Add("responses", evaluation.Task{
		Name:   "responses",
		Doc:    "how alike the importance scores are that two responses to one prompt imply, the greedy one and a sampled one or a draft model's: recall at the budget and Kendall's τ; for --policy oracle",
		Source: "LookaheadKV (Ahn et al. 2026, arXiv:2603.10899) app. E.3, table 8",
		Data:   "prompts of any form; without it those of the synthetic task section",
		Options: []evaluation.Option{
			{Name: "temperatures", Default: "0.2,0.4,0.6,0.8", Doc: "of the sampled responses"},
			{Name: "draft", Doc: "a model whose greedy response is compared, too: a folder or name, or layers:N for the first N layers of the model itself"},
		},
		Open: openResponses,
	})
}

// MetricResponseRecall is the share of the pairs that the greedy response would have kept
// which another response keeps.
const (
	metricResponseRecall = "response_recall"
	measureResponseTau   = "response_tau"
	measureResponseSame  = "response_prefix"
)

// responsesMaxNew is the length of the responses that the paper trains on.
const responsesMaxNew = 512

// rival is a second response to a prompt.
type rival struct {
	name        string
	temperature float64
	draft       *model.Model // nil for the model itself
}

func openResponses(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	rivals, err := rivalsOf(ctx, s)
	if err != nil {
		return nil, err
	}
	prompts, count, err := promptsOf(ctx, s, "section")
	if err != nil {
		return nil, err
	}
	maxNew := maxNew(s, min(responsesMaxNew, s.Model.Config.MaxPositions/8))
	return &evaluation.Samples{
		Metric: metricResponseRecall, Count: count * len(rivals),
		Each: func(yield func(evaluation.Item) bool) {
			for p := range prompts {
				greedy := &scored{}
				for i, r := range rivals {
					item := evaluation.Item{ID: p.id + " " + r.name, Make: func(ctx context.Context) (*evaluation.Sample, error) {
						if p.err != nil {
							return nil, p.err
						}
						ids, err := p.encode(ctx, maxNew)
						if err != nil {
							return nil, err
						}
						c := comparison{ids: ids, maxNew: maxNew, rival: r, seed: s.Seed*31 + uint64(i), greedy: greedy}
						return &evaluation.Sample{Groups: []evaluation.Group{{Key: "response", Value: r.name}}, Measure: c.measure, Tokens: len(ids)}, nil
					}}
					if !yield(item) {
						return
					}
				}
			}
		},
	}, nil
}

func rivalsOf(ctx context.Context, s *evaluation.Setting) ([]rival, error) {
	var out []rival
	for field := range strings.SplitSeq(s.Options["temperatures"], ",") {
		if field = strings.TrimSpace(field); field == "" {
			continue
		}
		t, err := strconv.ParseFloat(field, 64)
		if err != nil || !(t > 0) || (model.Sampling{Temperature: t}).Validate() != nil {
			return nil, fmt.Errorf("option temperatures: got %q, want numbers above 0 with commas between", field)
		}
		out = append(out, rival{name: "T=" + field, temperature: t})
	}
	if spec := s.Options["draft"]; spec != "" {
		draft, err := engine.OpenDraft(ctx, s.Model, spec, s.S3, model.Options{Device: s.Model.DeviceName()}, io.Discard) // open as long as the program runs
		if err != nil {
			return nil, fmt.Errorf("option draft: %w", err)
		}
		if err := s.Model.SameVocabulary(draft); err != nil {
			return nil, fmt.Errorf("option draft: model %s: %w", draft.Name, err)
		}
		out = append(out, rival{name: "draft", draft: draft})
	}
	if len(out) == 0 {
		return nil, errors.New("no response to compare the greedy one with, want temperatures or a draft model")
	}
	return out, nil
}

// scored is a prompt's greedy response and the scores that it implies, once for all that it
// is compared with.
type scored struct {
	once     sync.Once
	response []int32
	scores   [][][]float32
	err      error
}

type comparison struct {
	ids    []int32
	maxNew int
	rival
	seed   uint64
	greedy *scored
}

// measure compares the scores of the greedy response and of the other one.
func (c *comparison) measure(ctx context.Context, b *evaluation.Bench) ([]evaluation.Measures, error) {
	for _, cell := range b.Cells {
		if cell.Configured.Name != "oracle" {
			return nil, fmt.Errorf("policy %s: the task compares what the oracle would keep, want --policy oracle", cell.Title())
		}
	}
	g := c.greedy
	g.once.Do(func() { g.response, g.scores, g.err = c.score(ctx, b, runner.GenerateOptions{MaxNew: c.maxNew}) })
	if g.err != nil {
		return nil, g.err
	}
	opt := runner.GenerateOptions{MaxNew: c.maxNew, Sampling: model.Sampling{Temperature: c.temperature, Seed: c.seed}}
	if c.draft != nil {
		var err error
		room := c.draft.Config.MaxPositions - len(c.ids) + 1
		if opt.Forced, err = greedy(ctx, c.draft, c.ids, min(c.maxNew, room)); err != nil {
			return nil, fmt.Errorf("draft model %s: %w", c.draft.Name, err)
		}
		if opt.Forced == nil { // the draft has ended at once
			opt.Forced = []int32{}
		}
	}
	response, scores, err := c.score(ctx, b, opt)
	if err != nil {
		return nil, err
	}
	same := 0
	for same < len(response) && same < len(g.response) && response[same] == g.response[same] {
		same++
	}
	ks := listing.Map(b.Cells, func(cell evaluation.Cell) int { return min(cell.Budget.Of(len(c.ids)), len(c.ids)) })
	recall, tau, ok := eviction.Agreement(scores, g.scores, ks...)
	if !ok {
		return nil, errors.New("all entries have the same score, which ranks nothing")
	}
	var out []evaluation.Measures
	for i := range b.Cells {
		out = append(out, evaluation.Measures{
			metricResponseRecall: min(recall[i], 1), measureResponseTau: tau, // sums round
			measureResponseSame: float64(same) / float64(max(1, len(g.response))),
		})
	}
	return out, nil
}

// score answers the prompt with the full cache and lets the oracle score it.
func (c *comparison) score(ctx context.Context, b *evaluation.Bench, opt runner.GenerateOptions) ([]int32, [][][]float32, error) {
	oracle, err := eviction.New("oracle", 0, nil, nil)
	if err != nil {
		return nil, nil, err
	}
	prompt := eviction.Prompt{Tokens: c.ids, MaxNew: c.maxNew, Response: opt.Forced}
	study, err := b.Runtime.Study(ctx, []*eviction.Configured{oracle}, prompt, []int{1}, opt) // below any prompt, so that all is scored
	if err != nil {
		return nil, nil, err
	}
	return study.Response, study.Choices[0].Scores, nil
}
