package eviction_test

func init() {
	// With a window, the mean of the rows' scores and snapkv's, whose window is kept.
	naivePolicies["lookaheadkv"] = func(c *naiveCase) naivePlan {
		plan := learnedPlan(c)
		if c.int("window") == 0 {
			return plan
		}
		suffix := snapkvPlan(c)
		for l := range plan.scores {
			for h := range plan.scores[l] {
				for j, v := range suffix.scores[l][h] {
					plan.scores[l][h][j] = plan.scores[l][h][j]/2 + v/2
				}
			}
		}
		plan.recent = suffix.recent
		return plan
	}
}
