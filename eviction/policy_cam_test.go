package eviction_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/model/modeltest"
)

func init() {
	naivePolicies["cam"] = func(c *naiveCase) naivePlan {
		sink := min(c.int("sink"), c.budget)
		return naivePlan{scores: c.sums(), budgets: c.uniform(c.budget), sink: sink, recent: c.budget - sink}
	}
	naiveDecoders["cam"] = func(c *naiveCase, plan naivePlan, kept [][][]int32) naiveDecoder {
		return camDecoder(c, plan, kept, func(float64, float64) {})
	}
}

// camDecoder lets the entry behind the sinks go; with probability Ā_i / mean(Ā of the m
// entries that follow), at most 1, an m-th of its value is added to each of these. saw is
// told the probability, and what it is with the largest Ā of all that stays as divisor.
func camDecoder(c *naiveCase, plan naivePlan, kept [][][]int32, saw func(byMean, byMax float64)) naiveDecoder {
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
			window := a[out+1:]
			rng := draws[[2]int{l, h}]
			if rng == nil {
				rng = rand.New(rand.NewPCG(policySeed, 1<<48|uint64(l)<<24|uint64(h)))
				draws[[2]int{l, h}] = rng
			}
			u := rng.Float64()
			if len(window) > 0 {
				mean, top := 0.0, slices.Max(append(slices.Clone(a[:out]), window...))
				for _, v := range window {
					mean += v / float64(len(window))
				}
				p := min(1, a[out]/mean)
				saw(p, min(1, a[out]/top))
				for j := out + 1; j < len(a) && u < p; j++ {
					cache[l][h][j].v = blend(cache[l][h][j].v, 1, cache[l][h][out].v, 1/float64(len(window)))
				}
			}
			sums[l][h] = slices.Delete(a, out, out+1)
		},
	}
}

// TestCaMMergesWithTheMean: what decoding merges, against the second implementation, on the
// reference model's first half, and how likely that is. Divided by the largest sum of all that stays, a
// sink's, an entry would hardly ever be merged.
func TestCaMMergesWithTheMean(t *testing.T) {
	m := modeltest.OpenShallow(t, "reference64", 4)
	exact := newNaive(m)
	draws, byMean, byMax := 0, 0.0, 0.0
	for _, seed := range modeltest.Some(t, []uint64{0, 1}) {
		const n, budget = 256, 64
		c := &naiveCase{naive: exact, tokens: modeltest.Tokens(m, seed, n), budget: budget}
		c.prompt = exact.run(exact.empty(), exact.embed(c.tokens), 0, nil)
		c.full = exact.empty().with(c.prompt)
		replay(t, "cam on the reference model", m, policy(t, m, "cam"), func(c *naiveCase, plan naivePlan, kept [][][]int32) naiveDecoder {
			return camDecoder(c, plan, kept, func(mean, most float64) { draws, byMean, byMax = draws+1, byMean+mean, byMax+most })
		}, c)
	}
	byMean, byMax = byMean/float64(draws), byMax/float64(draws)
	t.Logf("%d entries: mean merge probability %.2f, with the largest sum as divisor %.2f", draws, byMean, byMax)
	if byMean < 0.6 || byMax > 0.4 {
		t.Errorf("mean merge probability %.2f, with the largest sum as divisor %.2f, want at least 0.6 and at most 0.4", byMean, byMax)
	}
}
