package eviction_test

import "slices"

func init() {
	// The first m and the last N − m tokens of the prompt, again, at the positions of
	// the response (dapq.txt eq. 4): the sum of their attention (eq. 5), divided by N.
	naivePolicies["dapq"] = func(c *naiveCase) naivePlan {
		rows := min(c.int("rows"), c.n())
		first := min(c.int("first"), rows)
		var pseudo []int32
		for j, id := range c.tokens {
			if j < first {
				pseudo = append(pseudo, id)
			}
		}
		pseudo = slices.Concat(pseudo, c.tokens[c.n()-rows+first:])
		p := c.probe(c.embed(pseudo), nil)
		return naivePlan{scores: c.meanScores(p.attention, 0, rows, c.n()), budgets: c.uniform(c.budget)}
	}
}
