package eviction_test

func init() { naivePolicies["snapkv"] = snapkvPlan }

// snapkvPlan: mean attention of the last window rows on what is before them,
// pooled there; the window is kept. The window is at most half the budget.
func snapkvPlan(c *naiveCase) naivePlan {
	w := max(1, min(c.int("window"), c.budget/2))
	scores := c.meanScores(c.prompt.attention, c.n()-w, c.n(), c.n())
	for l := range scores {
		for h, s := range scores[l] {
			scores[l][h] = append(pooled(s[:c.n()-w], c.int("kernel")), s[c.n()-w:]...)
		}
	}
	return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: w}
}
