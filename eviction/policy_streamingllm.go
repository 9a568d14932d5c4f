package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("streamingllm", Policy{
		Kind: "prefill + decode", Doc: "the first entries (attention sinks) and the most recent", Source: "StreamingLLM (Xiao et al. 2024, arXiv:2309.17453) §3.2",
		Options: []Option{{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"}},
		New:     func(s Settings, _ model.Adapter) (Method, error) { return streaming{s.Int("sink")}, nil },
	})
}

type streaming struct{ sink int }

func (streaming) Capture(Prompt) model.Capture { return model.Capture{} }

func (streaming) Score(*Scores, Prompt, *model.Observation) error { return nil }

func (m streaming) Protect(p Prompt) (sink, recent int) {
	sink = min(m.sink, p.Budget)
	return sink, p.Budget - sink
}

func (m streaming) StartDecode(s *Session) DecodeState {
	sink, recent := m.Protect(s.Prompt)
	return &streamingDecode{sink: sink, recent: recent}
}

type streamingDecode struct{ sink, recent int }

func (*streamingDecode) Capture() model.Capture { return model.Capture{} }

func (d *streamingDecode) Step(o *model.Observation) (*kernels.Selection, error) {
	n := o.Cache.Entries(o.Layer, 0)
	if n <= d.sink+d.recent {
		return nil, nil
	}
	keep := make([][]int32, o.Cache.KVHeads())
	for h := range keep {
		keep[h] = append(upTo(0, d.sink), upTo(n-d.recent, n)...)
	}
	return kernels.HostSelection(keep), nil
}
