package eviction_test

func init() {
	// Scores of one policy, budgets of layers and heads, protected entries: each by the
	// rules of the policy that has only that.
	naivePolicies["compose"] = func(c *naiveCase) naivePlan {
		return c.scoredBy(c.text("scorer"), func(p naivePlan) naivePlan {
			if s := c.int("sink"); s >= 0 {
				p.sink = s
			}
			if r := c.int("recent"); r >= 0 {
				p.recent = r
			}
			p.sink = min(p.sink, c.budget)
			p.recent = min(p.recent, c.budget-p.sink)
			if c.text("layers") == "pyramid" {
				p.budgets = c.pyramid(p.sink+p.recent, c.option("beta"))
			}
			if c.text("heads") == "adaptive" {
				p = c.shared(p)
			}
			return p
		})
	}
}
