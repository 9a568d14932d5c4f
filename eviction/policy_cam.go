package eviction

import (
	"math/rand/v2"

	"glimpse/kernels"
	"glimpse/model"
)

func init() {
	Policies.Add("cam", Policy{
		Kind: "prefill + decode", Doc: "the first and the most recent entries; values that leave the recent window are merged into it at random", Source: "CaM (Zhang et al. 2024, ICML, openreview.net/forum?id=LCTmppB165) §3.3",
		Options: []Option{{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"}},
		New: func(s Settings, _ model.Adapter) (Method, error) {
			return cam{streaming{s.Int("sink")}, s.Seed}, nil
		},
	})
}

// cam evicts the prompt like streamingllm. While decoding, the entry i that leaves
// the recent window is merged into the m entries of the window: v_j += M·v_i/m with
// M drawn from Bernoulli(Ā_i / mean Ā_j), at most 1, where Ā is the attention
// accumulated so far and the mean is over the m entries (CaM: Cache Merging for
// Memory-efficient LLMs Inference, Zhang et al., ICML 2024, §3.3). Of the authors' files
// those for LLaMA and for streaming divide by the mean of the window, those for OPT and
// GPT-NeoX by a mean over what is kept, sinks included; kvpress takes the window's, too.
type cam struct {
	streaming
	seed uint64
}

func (cam) Capture(Prompt) model.Capture { return model.Capture{AllRows: true} }

func (cam) Score(dst [][]float32, p Prompt, o *model.Observation) error {
	return h2o{}.Score(dst, p, o)
}

func (cam) formula(p Prompt, o *model.Observation) (formula, bool) { return h2o{}.formula(p, o) }

func (m cam) StartDecode(s *Session) DecodeState {
	window := camWindow{}
	window.sink, window.recent = m.Protect(s.Prompt)
	for l := range s.Cache.Layers() {
		var draws []*rand.Rand
		for h := range s.Cache.KVHeads() {
			draws = append(draws, rand.New(rand.NewPCG(m.seed, uint64(s.turns)<<48|uint64(l)<<24|uint64(h))))
		}
		window.draws = append(window.draws, draws)
	}
	if sums := newDeviceSums(s); sums != nil {
		return &camDeviceState{sums, window}
	}
	return &camState{newAccumulated(s), window}
}

// camWindow is what stays, and the draws for what goes.
type camWindow struct {
	sink, recent int
	draws        [][]*rand.Rand // [layer][kvHead]
}

// kept are the indices of what stays of n entries; nil is all.
func (w *camWindow) kept(n int) []int32 {
	if n <= w.sink+w.recent {
		return nil
	}
	return append(upTo(0, w.sink), upTo(n-w.recent, n)...)
}

type camState struct {
	accumulated
	camWindow
}

func (s *camState) Step(o *model.Observation) ([][]int32, error) {
	s.add(o)
	n := o.Cache.Entries(o.Layer, 0)
	idx := s.kept(n)
	if idx == nil {
		return nil, nil
	}
	keep := make([][]int32, o.Cache.KVHeads())
	for h := range keep {
		keep[h] = idx
		for out := s.sink; out < n-s.recent; out++ {
			s.merge(o, h, out)
		}
		s.keep(o.Layer, h, idx)
	}
	return keep, nil
}

// merge draws whether the value of an entry that goes is merged into the recent
// ones, and does it.
func (s *camState) merge(o *model.Observation, head, out int) {
	u := s.draws[o.Layer][head].Float64()
	if u >= mergeProbability(s.accumulated[o.Layer][head], out, s.recent) {
		return
	}
	values := o.Cache.View(o.Layer)[head].V
	evicted := values.Rows(out, out+1).Float64s()
	for j := values.Dim0() - s.recent; j < values.Dim0(); j++ {
		v := values.Rows(j, j+1).Float64s()
		for i := range v {
			v[i] += evicted[i] / float64(s.recent)
		}
		o.Cache.SetPair(o.Layer, head, j, nil, v)
	}
}

// mergeProbability is the share of an entry's sum in the mean of the last recent ones, at
// most 1; 0 of an entry that was never attended to.
func mergeProbability(sums []float32, out, recent int) float64 {
	mean := 0.0
	for _, v := range sums[len(sums)-recent:] {
		mean += float64(v) / float64(recent)
	}
	if sums[out] <= 0 || recent == 0 {
		return 0
	}
	return min(1, float64(sums[out])/mean)
}

// camDeviceState is camState with sums and values that stay on the device, which gets the
// draws.
type camDeviceState struct {
	*deviceSums
	camWindow
}

// stepOn implements deviceState.
func (s *camDeviceState) stepOn(d kernels.Selector, o *model.Observation) (*kernels.Selection, error) {
	sums := s.add(d, o)
	n := o.Cache.Entries(o.Layer, 0)
	idx := s.kept(n)
	if idx == nil {
		return nil, nil
	}
	keep, draws := make([][]int32, o.Cache.KVHeads()), make([][]float64, o.Cache.KVHeads())
	for h := range keep {
		keep[h] = idx
		for range n - s.sink - s.recent {
			draws[h] = append(draws[h], s.draws[o.Layer][h].Float64())
		}
	}
	if s.recent > 0 {
		d.MergeRecent(o.Cache.View(o.Layer), sums.device, s.sink, s.recent, draws)
	}
	kept := kernels.HostSelection(keep)
	s.keep(d, o.Layer, kept)
	return kept, nil
}
