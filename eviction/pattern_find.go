package eviction

import (
	"context"
	"fmt"
	"math"

	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Retrieval is a prompt and an answer that is copied from it.
type Retrieval struct{ Prompt, Answer []int32 }

// FindPattern measures which KV heads retrieve: while the model is led through
// each answer, the attention that the row predicting the next answer token pays to
// the places of the prompt where that token stands; the largest of the query heads
// that share a KV head, the mean over all answer tokens. DuoAttention learns its
// numbers with gradients instead; this takes one pass per example and finds the
// heads that copy (Wu et al. 2024, arXiv:2404.15574, Retrieval Head, §2, with the attention itself in
// place of its largest entry).
//
// The examples are at(0) to at(n−1). sink and recent are recorded as the sizes that
// the pattern is meant for.
func (rt *Runtime) FindPattern(ctx context.Context, n int, at func(i int) (Retrieval, error), sink, recent int) (*Pattern, error) {
	c := &rt.Runner.Model.Config
	p := &Pattern{Sink: sink, Recent: recent, Source: rt.Runner.Model.Name, Heads: make([][]float64, c.Layers)}
	for l := range p.Heads {
		p.Heads[l] = make([]float64, c.KVHeads)
	}
	rows := 0
	for i := range n {
		e, err := at(i)
		if err != nil {
			return nil, err
		}
		if len(e.Answer) == 0 {
			return nil, fmt.Errorf("find pattern: example %d has no answer", i)
		}
		cache := kvcache.New(rt.Runner.Model)
		var next int32 // the token that the observed row should predict
		last := runner.PrefillOptions{Capture: runner.Capture{Windows: []int{1}, Spared: Prompt{Config: c}.spared()}, Observe: func(o *runner.Observation) error {
			if len(o.Windows) == 0 { // a layer with a sliding window, which is left alone
				return nil
			}
			logs, width := o.Windows[0].Float32s(), o.Windows[0].Width()
			for g := range c.KVHeads {
				most := 0.0
				for h := g * c.Group(); h < (g+1)*c.Group(); h++ {
					sum := 0.0
					for j, id := range e.Prompt {
						if id == next {
							sum += math.Exp(float64(logs[h*width+j]))
						}
					}
					most = max(most, sum)
				}
				p.Heads[o.Layer][g] += most
			}
			return nil
		}}
		input := e.Prompt
		for _, next = range e.Answer {
			if _, err := rt.Runner.Prefill(ctx, cache, input, last); err != nil {
				return nil, fmt.Errorf("find pattern: example %d: %w", i, err)
			}
			input = []int32{next}
			rows++
		}
	}
	if rows == 0 {
		return nil, fmt.Errorf("find pattern: no examples")
	}
	for _, layer := range p.Heads {
		for h := range layer {
			layer[h] = min(layer[h]/float64(rows), 1)
		}
	}
	return p, nil
}
