package training

import (
	"context"
	"errors"
	"fmt"

	"glimpse/autodiff"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// errEmptyResponse marks a sample whose response ended at once: it has no row
// that could be a target.
var errEmptyResponse = errors.New("empty response")

// errNoRoom marks a sample behind whose prompt the model has no positions for an answer's tokens.
var errNoRoom = fmt.Errorf("no room for an answer of %d tokens behind the prompt", answerTokens)

// roomForAnswer tells that an answer's tokens have positions behind a prompt.
func roomForAnswer(m *model.Model, prompt []int32) bool {
	return len(prompt)+answerTokens <= m.Config.MaxPositions
}

// prepared is what all students need of a sample: the prompt's keys and values, and the
// targets.
type prepared struct {
	past    [][]kernels.KV
	targets [][]*kernels.Tensor // logarithms [heads, n], per label and layer; nil of layers without keys and values
	answers []*answer           // per label; nil of those for which none runs
	states  [][]*kernels.Tensor // of recurrent layers, else nil
	entries int
	next    int32

	// Of a sample on disk: its file and the extents of past.
	file    string
	kvHeads []int // by layer
	labels  int   // number of targets
}

// prepared reads a sample from the cache or prepares it.
func (t *Trainer) prepared(ctx context.Context, r *runner.Runner, s Sample) (*prepared, error) {
	if t.cache == nil {
		return prepareSample(ctx, r, s, t.Config.MaxResponse, t.labels)
	}
	if p := t.cache.getSample(s.Key); p != nil {
		return p, nil
	}
	p, err := prepareSample(ctx, r, s, t.Config.MaxResponse, t.labels)
	if err != nil {
		return nil, err
	}
	t.cache.putSample(s.Key, p)
	return p, nil
}

// prepareSample prefills a prompt and computes its targets under the labels. The response, where one of them needs it, is
// generated first if there is none. It is the one code path for all targets.
func prepareSample(ctx context.Context, r *runner.Runner, s Sample, maxResponse int, labels []label) (*prepared, error) {
	cache := kvcache.New(r.Model)
	needed := needResponse(labels)
	generated := needed && s.Response == nil
	logits, err := r.Forward(ctx, cache, s.Prompt, runner.PrefillOptions{CacheOnly: !generated})
	if err != nil {
		return nil, err
	}
	response := s.Response
	if generated {
		if response, err = r.Respond(ctx, cache, logits, runner.GenerateOptions{MaxNew: maxResponse}); err != nil {
			return nil, err
		}
	}
	s.Response = response[:min(len(response), maxResponse)]
	if needed && len(s.Response) == 0 {
		return nil, errEmptyResponse
	}
	return observed(ctx, r, cache, s, labels)
}

// observed is what students need of a sample whose prompt's pairs are in the cache.
func observed(ctx context.Context, r *runner.Runner, cache *kvcache.Cache, s Sample, labels []label) (*prepared, error) {
	p := &prepared{entries: len(s.Prompt), next: cache.Next(), past: cache.Views(), states: statesOf(r.Model, cache)}
	for i := range labels {
		targets, err := labels[i].target(ctx, r, cache, s.Prompt, s.Response)
		if err != nil {
			return nil, err
		}
		p.targets, p.answers = append(p.targets, targets), append(p.answers, nil)
		if !labels[i].answer {
			continue
		}
		if p.answers[i], err = newAnswer(ctx, r, cache, s, labels[i]); err != nil {
			return nil, err
		}
		if p.answers[i] == nil {
			return nil, errNoRoom
		}
	}
	return p, nil
}

// sampleOf is what a student's graph runs on: its adapter's rows after the prompt, with the targets of a label.
func (s *student) sampleOf(m *model.Model, p *prepared, prompt []int32, label int) autodiff.Sample {
	pos, queries, keys := m.RowsAfter(p.next, s.rows+s.objective.answers(), m.Config.Long(int(p.next)))
	out := autodiff.Sample{Past: p.past, Positions: pos, QueryRoPE: queries, KeyRoPE: keys, Targets: p.targets[label], States: p.states}
	if a := p.answers[label]; a != nil && s.objective.Answer > 0 {
		out.Answer = a.behind(m, &s.objective, prompt, p.past, p.targets[label])
	}
	return out
}

// statesOf are the states of a cache, by layer.
func statesOf(m *model.Model, c *kvcache.Cache) [][]*kernels.Tensor {
	out := make([][]*kernels.Tensor, m.Config.Layers)
	for l := range out {
		if m.Config.Recurrent(l) {
			out[l] = c.State(l)
		}
	}
	return out
}

// heldBytes is the memory that a prepared sample holds.
func (p *prepared) heldBytes() int64 {
	var n int64
	p.visit(func(_ string, _ int, t **kernels.Tensor) { n += int64((*t).Bytes()) })
	return n
}
