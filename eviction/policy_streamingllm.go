package eviction

import (
	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("streamingllm", Policy{
		Kind: "prefill + decode", Doc: "the first entries (attention sinks) and the most recent", Source: "StreamingLLM (Xiao et al. 2024, arXiv:2309.17453) §3.2",
		Options: []Option{
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"},
			{Name: "decode", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "0 evicts the prompt alone, and the response is added to what is left, as the tables have it that compare it with policies of the prompt (LookaheadKV, arXiv:2603.10899, §5.1; DapQ, arXiv:2603.11564, §5.1)"},
		},
		New: func(s Settings) (Method, error) {
			return streaming{s.Int("sink"), s.Int("decode") == 1}, nil
		},
	})
}

type streaming struct {
	sink    int
	decodes bool // goes on while decoding
}

func (m streaming) Plan(p Prompt) Plan {
	sink := min(m.sink, p.Budget)
	recent := p.Budget - sink
	plan := Plan{Sink: sink, Recent: recent}
	if m.decodes {
		plan.Decode = func(s *Session) *Decoding { return &Decoding{Step: s.streamStep(sink, recent, nil)} }
	}
	return plan
}

// streamStep keeps the first and the last entries of every head but those that are whole, and what stays.
func (s *Session) streamStep(sink, recent int, whole func(layer, head int) bool) func(o *runner.Observation) (*kernels.Selection, error) {
	return func(o *runner.Observation) (*kernels.Selection, error) {
		keep, stay, evicts := make([][]int32, o.Cache.KVHeads()), s.staying(o.Layer), false
		for h := range keep {
			n := o.Cache.Entries(o.Layer, h)
			if n <= sink+recent || whole != nil && whole(o.Layer, h) {
				keep[h] = upTo(0, n)
				continue
			}
			keep[h] = append(upTo(0, sink), upTo(n-recent, n)...)
			if stay != nil {
				keep[h] = union(keep[h], stay.indices[h])
			}
			evicts = evicts || len(keep[h]) < n
		}
		if !evicts {
			return nil, nil
		}
		return kernels.HostSelection(keep), nil
	}
}
