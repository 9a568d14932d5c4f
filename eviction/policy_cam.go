package eviction

import (
	"math/rand/v2"
	"slices"

	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("cam", Policy{
		Kind: "prefill + decode", Doc: "the first and the most recent entries; values that leave the recent window are merged into it at random", Source: "CaM (Zhang et al. 2024, ICML, openreview.net/forum?id=LCTmppB165) §3.3",
		Options: []Option{{Name: "sink", Default: 4, Min: 0, Max: 1 << 20, Whole: true, Doc: "first entries kept"}},
		New: func(s Settings) (Method, error) {
			return cam{s.Int("sink"), s.Seed}, nil
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
	sink int
	seed uint64
}

func (m cam) Plan(p Prompt) Plan {
	plan, ends := accumulated(p), streaming{sink: m.sink}.Plan(p)
	plan.Sink, plan.Recent = ends.Sink, ends.Recent
	plan.Decode = func(s *Session) *Decoding {
		st := &camState{Accumulated: NewAccumulated(s), sink: plan.Sink, recent: plan.Recent}
		for l := range s.Cache.Layers() {
			var draws []*rand.Rand
			for h := range s.Cache.KVHeads() {
				draws = append(draws, rand.New(rand.NewPCG(m.seed, uint64(s.turns)<<48|uint64(l)<<24|uint64(h))))
			}
			st.draws = append(st.draws, draws)
		}
		d := st.Decoding()
		d.Step = st.step
		return d
	}
	return plan
}

type camState struct {
	*Accumulated
	sink, recent int            // that stay
	draws        [][]*rand.Rand // for what goes, [layer][kvHead]
}

func (s *camState) step(o *runner.Observation) (*kernels.Selection, error) {
	sums := s.Add(o)
	n := o.Cache.Entries(o.Layer, 0)
	if n <= s.sink+s.recent {
		return nil, nil
	}
	idx := append(upTo(0, s.sink), upTo(n-s.recent, n)...)
	keep, draws := make([][]int32, o.Cache.KVHeads()), make([][]float64, o.Cache.KVHeads())
	evicts := false
	for h := range keep {
		keep[h] = idx
		if sums.stay != nil {
			keep[h] = union(idx, sums.stay.indices[h])
		}
		evicts = evicts || len(keep[h]) < n
		for j := s.sink; j < n-s.recent; j++ {
			draw := s.draws[o.Layer][h].Float64()
			if _, stays := slices.BinarySearch(keep[h], int32(j)); stays {
				draw = 1 // above any probability: it is not merged
			}
			draws[h] = append(draws[h], draw)
		}
	}
	if !evicts {
		return nil, nil
	}
	if s.recent > 0 {
		sums.Ops.MergeRecent(o.Cache.View(o.Layer), sums.Values, s.sink, s.recent, draws)
	}
	kept := kernels.HostSelection(keep)
	s.Retain(o.Layer, kept)
	return kept, nil
}
