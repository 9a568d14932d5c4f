package eviction_test

func init() { naivePolicies["judgeq"] = learnedPlan }

// learnedPlan: the mean attention of an adapter's rows after the prompt, pooled;
// no window.
func learnedPlan(c *naiveCase) naivePlan {
	a := c.adapter.(*fakeAdapter)
	p := c.probe(toMatrix(a.rows), a.LowRank)
	scores := c.meanScores(p.attention, 0, a.Rows(), c.n())
	for l := range scores {
		for h, s := range scores[l] {
			scores[l][h] = pooled(s, c.int("kernel"))
		}
	}
	return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
}
