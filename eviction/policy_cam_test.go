package eviction_test

import (
	"math/rand/v2"
	"slices"
)

func init() {
	naivePolicies["cam"] = func(c *naiveCase) naivePlan {
		sink := min(c.int("sink"), c.budget)
		return naivePlan{scores: c.sums(), budgets: c.uniform(c.budget), sink: sink, recent: c.budget - sink}
	}
	// The entry behind the sinks goes; with probability Ā_i / max Ā_kept an m-th of
	// its value is added to the m that follow.
	naiveDecoders["cam"] = func(c *naiveCase, plan naivePlan, kept [][][]int32) naiveDecoder {
		sums := c.startSums(plan, kept)
		draws := map[[2]int]*rand.Rand{}
		sink := min(c.int("sink"), c.budget)
		return naiveDecoder{
			least: func(row pass, cache pairs, l, h int) (int, []float64) {
				sums.add(c, row, l, h)
				return sink, nil
			},
			drop: func(cache pairs, l, h, out int) {
				a := sums[l][h]
				top := 0.0
				for j, v := range a {
					if j != out {
						top = max(top, v)
					}
				}
				rng := draws[[2]int{l, h}]
				if rng == nil {
					rng = rand.New(rand.NewPCG(3, 1<<48|uint64(l)<<24|uint64(h)))
					draws[[2]int{l, h}] = rng
				}
				u, m := rng.Float64(), len(a)-1-out
				if m > 0 && top > 0 && u < min(1, a[out]/top) {
					for j := out + 1; j < len(a); j++ {
						v := slices.Clone(cache[l][h][j].v)
						for i := range v {
							v[i] += cache[l][h][out].v[i] / float64(m)
						}
						cache[l][h][j].v = v
					}
				}
				sums[l][h] = slices.Delete(a, out, out+1)
			},
		}
	}
}
