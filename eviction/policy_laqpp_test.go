package eviction_test

import "slices"

func init() {
	// laq, but the mean is over the draft's rows and the last rows of the prompt
	// together, and nothing is pooled across the window's edge.
	naivePolicies["laq++"] = func(c *naiveCase) naivePlan {
		attention, n := c.secondLook(c.first(snapkvPlan(c)))
		scores := c.grouped(func(l, h int) []float64 {
			prompt := c.prompt.attention[l][h]
			both := rows(slices.Concat(attention[l][h], prompt[max(0, len(prompt)-c.int("rows")):]))
			if len(attention[l][h]) != n {
				panic("rows of the draft are missing")
			}
			return both.mean(0, len(both), c.n())
		})
		c.poolBefore(scores)
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: c.window()}
	}
}
