package eviction_test

import "slices"

func init() {
	// laq, but the mean is over the draft's rows and the last rows of the prompt
	// together, which are kept, and nothing is pooled across their edge.
	naivePolicies["laq++"] = func(c *naiveCase) naivePlan {
		attention, n := c.secondLook(c.first(snapkvPlan(c)))
		last := max(1, min(c.int("rows"), c.budget/2))
		scores := c.grouped(func(l, h int) []float64 {
			prompt := c.prompt.attention[l][h]
			both := rows(slices.Concat(attention[l][h], prompt[len(prompt)-last:]))
			if len(attention[l][h]) != n {
				panic("rows of the draft are missing")
			}
			return both.mean(0, len(both), c.n())
		})
		c.poolBefore(scores, last)
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: last}
	}
}
