package eviction_test

import "math"

func init() {
	// One minus the cosine of a key and the mean of all keys of a head at length 1.
	naivePolicies["keydiff"] = func(c *naiveCase) naivePlan {
		scores := make([][][]float64, c.c.Layers)
		for l := range scores {
			for h := range c.full[l] {
				keys := c.full[l][h]
				length := func(k []float64) float64 { return math.Sqrt(dotOf(k, k)) }
				mean := make([]float64, len(keys[0].k))
				for _, e := range keys {
					for i, x := range e.k {
						mean[i] += x / length(e.k) / float64(len(keys))
					}
				}
				var s []float64
				for _, e := range keys {
					s = append(s, 1-dotOf(e.k, mean)/length(e.k)/length(mean))
				}
				scores[l] = append(scores[l], s)
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), rounded: true}
	}
}

func dotOf(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}
