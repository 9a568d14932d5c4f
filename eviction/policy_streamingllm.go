package eviction

import (
	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("streamingllm", Policy{
		Kind: "prefill + decode", Doc: "the first entries (attention sinks) and the most recent", Source: "StreamingLLM (Xiao et al. 2024, arXiv:2309.17453) §3.2",
		Options: []Option{
			{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"},
			{Name: "decode", Default: 1, Min: 0, Max: 1, Whole: true, Doc: "0 evicts the prompt alone, and the response is added to what is left, as the tables have it that compare it with policies of the prompt (LookaheadKV, arXiv:2603.10899, §5.1; DapQ, arXiv:2603.11564, §5.1)"},
		},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			m := streaming{s.Int("sink")}
			if s.Int("decode") == 0 {
				return m, nil
			}
			return streamingDecoding{m}, nil
		},
	})
}

// streaming evicts the prompt.
type streaming struct{ sink int }

func (streaming) Capture(Prompt) model.Capture { return model.Capture{} }

func (streaming) Score(*Scores, Prompt, *model.Observation) error { return nil }

func (m streaming) Protect(p Prompt) (sink, recent int) {
	sink = min(m.sink, p.Budget)
	return sink, p.Budget - sink
}

// streamingDecoding is streaming that goes on while decoding.
type streamingDecoding struct{ streaming }

func (m streamingDecoding) StartDecode(s *Session) DecodeState {
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
