package tasks

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"strconv"

	"glimpse/evaluation"
	"glimpse/eviction"
)

func init() {
	evaluation.Tasks.Add("perplexity", evaluation.Task{
		Name:   "perplexity",
		Doc:    "likelihood of long text, token by token under a cache that stays within the budget; by position, and as a mean",
		Source: "D2O (Wan et al. 2025, arXiv:2406.13035) §5.3, figure 6",
		Data:   "text files, or rows with running text", NeedsData: true,
		Options: []evaluation.Option{
			{Name: "start", Default: "32", Doc: "tokens of the text that come first as a prompt and are not scored"},
			{Name: "stride", Default: "256", Doc: "after how many tokens policies that evict prompts only evict again"},
			{Name: "window", Default: "32", Doc: "last tokens of a stride, which these policies observe as a prompt and which are scored under no policy"},
			{Name: "range", Default: "0", Doc: "tokens per point of the curve over positions; 0 is an eighth of the longest text"},
		},
		Open: openPerplexity,
	})
}

// Names of measures beside the score.
const (
	measureTextNLL  = "text_nll"    // mean over tokens, in nats
	measureNLLTo    = "nll_to_%d"   // of the tokens before that position: figure 6 of D2O
	measureNLLAt    = "nll_from_%d" // of the range that begins there
	measureMostHeld = "most_held_bytes"
)

// perplexity is the task ready to make samples.
type perplexity struct {
	start, stride, window, width int
	most                         int // tokens of a text
}

func openPerplexity(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	p := &perplexity{most: s.Model.Config.MaxPositions}
	for _, o := range []struct {
		name string
		to   *int
		min  int
	}{{"start", &p.start, 1}, {"stride", &p.stride, 2}, {"window", &p.window, 1}, {"range", &p.width, 0}} {
		n, err := strconv.Atoi(s.Options[o.name])
		if err != nil || n < o.min {
			return nil, fmt.Errorf("option %s: got %q, want a whole number of at least %d", o.name, s.Options[o.name], o.min)
		}
		*o.to = n
	}
	if p.window >= p.stride {
		return nil, fmt.Errorf("option window: got %d, want less than the stride of %d", p.window, p.stride)
	}
	if s.Tokens > 0 {
		p.most = min(p.most, s.Tokens)
	}
	if s.MaxPrompt > 0 {
		p.most = min(p.most, s.MaxPrompt)
	}
	p.width = cmp.Or(p.width, max(1, p.most/8))
	texts, count, err := promptsOf(ctx, s, "")
	if err != nil {
		return nil, err
	}
	return &evaluation.Samples{Metric: evaluation.MetricInversePerplexity, Count: count, Each: itemsOf(texts, func(text prompt) evaluation.Item {
		return evaluation.Item{ID: text.id, Make: func(ctx context.Context) (*evaluation.Sample, error) {
			ids, err := p.ids(ctx, s, text)
			if err != nil {
				return nil, err
			}
			return &evaluation.Sample{Tokens: len(ids), Measure: func(ctx context.Context, b *evaluation.Bench) ([]evaluation.Measures, error) {
				return p.measureText(ctx, b, ids)
			}}, nil
		}}
	})}, nil
}

// ids are the tokens of a text, as many as are measured.
func (p *perplexity) ids(ctx context.Context, s *evaluation.Setting, text prompt) (ids []int32, err error) {
	if text.err != nil {
		return nil, text.err
	}
	if text.text != "" { // of any length: what is too much is not measured
		ids, err = s.Model.Encode(text.text)
	} else {
		ids, err = text.encode(ctx, 1)
	}
	if err != nil {
		return nil, err
	}
	if len(ids) > p.most {
		ids = ids[:p.most]
	}
	if len(ids) < p.start+2 {
		return nil, fmt.Errorf("text of %d tokens, want at least %d", len(ids), p.start+2)
	}
	return ids, nil
}

// measureText runs a text under every cell.
func (p *perplexity) measureText(ctx context.Context, b *evaluation.Bench, ids []int32) ([]evaluation.Measures, error) {
	var out []evaluation.Measures
	for _, cell := range b.Cells {
		budget := len(ids)
		if !cell.Budget.IsZero() {
			budget = cell.Budget.Of(len(ids))
		}
		run := textRun{perplexity: p, ids: ids, logProbs: make([]float64, len(ids))}
		if err := run.under(ctx, b.Runtime, cell.Configured, budget); err != nil {
			return nil, fmt.Errorf("policy %s: %w", cell.Title(), err)
		}
		out = append(out, run.measures())
	}
	return out, nil
}

// textRun is a text under one policy.
type textRun struct {
	*perplexity
	ids      []int32
	logProbs []float64 // by position
	held     int64     // most bytes after a prompt and after its answer
	read     eviction.Traffic
}

// under takes the log-probabilities of the text. A policy that goes on while decoding, or
// that reads a few of the pairs that it holds, gets all of it as one answer. Any other one
// keeps what it evicts, and would hold everything that is decoded: it evicts again after
// every stride, whose last tokens are a prompt that it observes.
func (r *textRun) under(ctx context.Context, rt *eviction.Runtime, p *eviction.Configured, budget int) error {
	most := len(r.ids) - r.start
	whole := p.Compresses() != nil || p.Name == "full"
	if !whole {
		most = min(most, r.stride)
	}
	prompt := func(from, to int) eviction.Prompt {
		return eviction.Prompt{Tokens: r.ids[from:to], Budget: budget, MaxNew: most, Response: r.textAhead(to)}
	}
	s, err := rt.Prefill(ctx, p, prompt(0, r.start))
	if err != nil {
		return err
	}
	for at := r.start; at < len(r.ids); {
		end := len(r.ids)
		if !whole {
			end = min(end, r.observed(at))
		}
		r.held = max(r.held, s.Bytes())
		got, err := s.Force(ctx, r.ids[at:end])
		if err != nil {
			return err
		}
		copy(r.logProbs[at:], got)
		r.held, r.read = max(r.held, s.Bytes()), r.read.Plus(s.Traffic)
		if at = end; at == len(r.ids) {
			return nil
		}
		end = min(len(r.ids), at+r.window)
		if end == len(r.ids) { // nothing is left to score
			return nil
		}
		if err := s.Turn(ctx, prompt(at, end)); err != nil {
			return err
		}
		at = end
	}
	return nil
}

// observed is the first position from at on that is observed and not scored: the window at
// the end of a stride.
func (r *textRun) observed(at int) int {
	stride := (at - r.start) / r.stride
	return r.start + (stride+1)*r.stride - r.window
}

// scoredAt tells whether a position is scored under all policies.
func (r *textRun) scoredAt(at int) bool { return at >= r.start && at < r.observed(at) }

// textAhead is the text that follows, as far as a policy that may know it looks.
func (r *textRun) textAhead(at int) []int32 { return r.ids[at:min(len(r.ids), at+r.stride)] }

func (r *textRun) measures() evaluation.Measures {
	out := evaluation.Measures{measureMostHeld: float64(r.held)}
	if r.read.Steps > 0 {
		out[evaluation.MeasureTraffic] = r.read.PerStep()
	}
	sum, n := 0.0, 0
	rangeSum, rangeN := 0.0, 0
	for at := range r.ids {
		if r.scoredAt(at) {
			sum, n = sum-r.logProbs[at], n+1
			rangeSum, rangeN = rangeSum-r.logProbs[at], rangeN+1
		}
		if (at+1)%r.width == 0 || at == len(r.ids)-1 {
			if rangeN > 0 {
				out[fmt.Sprintf(measureNLLAt, at/r.width*r.width)] = rangeSum / float64(rangeN)
			}
			if n > 0 && (at+1)%r.width == 0 {
				out[fmt.Sprintf(measureNLLTo, at+1)] = sum / float64(n)
			}
			rangeSum, rangeN = 0, 0
		}
	}
	mean := sum / float64(n)
	out[measureTextNLL], out[evaluation.MeasurePerplexity], out[evaluation.MetricInversePerplexity] = mean, math.Exp(mean), math.Exp(-mean)
	return out
}
