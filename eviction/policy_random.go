package eviction

import (
	"math/rand/v2"

	"glimpse/kernels"
	"glimpse/model/runner"
)

func init() {
	Policies.Add("random", Policy{
		Kind: "prefill", Doc: "seeded uniform choice per layer and KV head; with decode=1 the prompt is kept, and of the response any entry goes", Source: "control; while decoding as arXiv:2609.03430 has it for reasoning traces",
		Scorer: true,
		Options: []Option{
			{Name: "decode", Default: 0, Min: 0, Max: 1, Whole: true, Doc: "1 goes on while decoding: for each token beyond the budget an entry of the response goes, which is drawn for every layer and KV head"},
			{Name: "recent", Default: 0, Min: 0, Max: 1 << 20, Whole: true, Doc: "last entries of the response that stay while decoding"},
			roomOption,
		},
		New: func(s Settings) (Method, error) {
			return random{seed: s.Seed, decodes: s.Int("decode") == 1, recent: s.Int("recent"), room: s.Float("room")}, nil
		},
	})
}

type random struct {
	seed    uint64
	decodes bool // goes on while decoding
	recent  int
	room    float64
}

func (m random) Plan(Prompt) Plan {
	plan := Plan{HoldsHeads: true, Score: func(s *Scores, o *runner.Observation) {
		s.FromHost(func(dst [][]float32) {
			for h, d := range dst {
				rng := rand.New(rand.NewPCG(m.seed, uint64(o.Layer)<<32|uint64(h)))
				for j := range d {
					d[j] = rng.Float32()
				}
			}
		})
	}}
	if m.decodes {
		plan.Decode = func(s *Session) *Decoding {
			kept := keepPrompt(s, m.room, m.recent)
			return &Decoding{Step: func(o *runner.Observation) (*kernels.Selection, error) {
				return kept.evict(o, func(head int, positions []int32, from, to int) int {
					step := uint64(newest(positions))<<40 | uint64(o.Layer)<<20 | uint64(head) // whatever is decoded beside it
					return from + rand.New(rand.NewPCG(m.seed, step)).IntN(to-from)
				}), nil
			}}
		}
	}
	return plan
}
