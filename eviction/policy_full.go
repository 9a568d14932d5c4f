package eviction

import (
	"math"
	"slices"
)

func init() {
	Policies.Add("full", Policy{
		Kind: "none", Doc: "keeps everything", Source: "baseline",
		New: func(Settings) (Method, error) { return full{}, nil },
	})
}

type full struct{}

// Plan sets no limit at all.
func (full) Plan(p Prompt) Plan {
	return Plan{Layers: slices.Repeat([]int{math.MaxInt32}, p.Config.Layers)}
}

// sparse is the plan of a policy that keeps everything and reads a part of it.
func sparse(p Prompt, start func(s *Session) SparseState) Plan {
	plan := full{}.Plan(p)
	plan.Sparse = start
	return plan
}
