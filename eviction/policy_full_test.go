package eviction_test

func init() {
	naivePolicies["full"] = func(c *naiveCase) naivePlan { return naivePlan{budgets: c.uniform(c.n())} }
}
