package eviction_test

func init() { naivePolicies["snapkv"] = snapkvPlan }

// window is the observation window: at most half the budget.
func (c *naiveCase) window() int { return max(1, min(c.int("window"), c.budget/2)) }

// snapkvPlan: mean attention of the last window rows on what is before them,
// pooled there; the window is kept.
func snapkvPlan(c *naiveCase) naivePlan {
	scores := c.grouped(func(l, h int) []float64 {
		return rows(c.prompt.attention[l][h]).mean(c.n()-c.window(), c.n(), c.n())
	})
	c.poolBefore(scores, c.window())
	return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: c.window()}
}

// poolBefore pools what is before the last rows.
func (c *naiveCase) poolBefore(scores [][][]float64, rows int) {
	end := c.n() - rows
	for l := range scores {
		for h, s := range scores[l] {
			scores[l][h] = append(pooled(s[:end], c.int("kernel")), s[end:]...)
		}
	}
}
