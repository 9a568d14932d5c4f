package eviction_test

func init() { naivePolicies["judgeq"] = learnedPlan }

// learnedPlan: the mean attention of an adapter's rows after the prompt, pooled;
// no window.
func learnedPlan(c *naiveCase) naivePlan {
	a := c.resources.Adapter.(*fakeAdapter)
	p := c.probe(toMatrix(a.rows), a.LowRank)
	scores := c.grouped(func(l, h int) []float64 { return rows(p.attention[l][h]).mean(0, a.Rows(), c.n()) })
	for l := range scores {
		for h, s := range scores[l] {
			scores[l][h] = pooled(s, c.int("kernel"))
		}
	}
	return naivePlan{scores: scores, budgets: c.uniform(c.budget)}
}
