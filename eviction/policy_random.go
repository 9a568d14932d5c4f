package eviction

import (
	"math/rand/v2"

	"glimpse/model/runner"
)

func init() {
	Policies.Add("random", Policy{
		Kind: "prefill", Doc: "seeded uniform choice per layer and KV head", Source: "control",
		Scorer: true,
		New:    func(s Settings) (Method, error) { return random{s.Seed}, nil },
	})
}

type random struct{ seed uint64 }

func (m random) Plan(Prompt) Plan {
	return Plan{Score: func(s *Scores, o *runner.Observation) {
		s.FromHost(func(dst [][]float32) {
			for h, d := range dst {
				rng := rand.New(rand.NewPCG(m.seed, uint64(o.Layer)<<32|uint64(h)))
				for j := range d {
					d[j] = rng.Float32()
				}
			}
		})
	}}
}
