package eviction_test

import "math"

func init() {
	// The keys with the smallest Euclidean norms.
	naivePolicies["knorm"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			for h := range c.full[l] {
				var s []float64
				for _, e := range c.full[l][h] {
					norm := 0.0
					for _, k := range e.k {
						norm = math.Hypot(norm, k)
					}
					s = append(s, 1/(1+norm))
				}
				scores[l] = append(scores[l], s)
			}
		}
		// The first layer's keys of one token have one norm, but for the rounding of their
		// rotations.
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), rounded: true}
	}
}
