package eviction_test

func init() {
	// A greedy draft on what snapkv keeps; its queries, with its own keys, score the
	// full cache. The window is kept in both stages.
	naivePolicies["laq"] = func(c *naiveCase) naivePlan {
		first := c.first(snapkvPlan(c))
		attention, n := c.secondLook(first)
		scores := c.grouped(func(l, h int) []float64 { return rows(attention[l][h]).mean(0, n, c.n()) })
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = pooled(s, c.int("kernel"))
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(c.budget), recent: c.window()}
	}
}

// secondLook is the attention that the rows of a greedy draft, decoded on what first
// keeps, pay to the full cache, [layer][head][row], and the number of rows.
func (c *naiveCase) secondLook(first naivePlan) ([][][][]float64, int) {
	kept := make([][][]int32, c.c.Layers)
	for l := range kept {
		for h := range c.c.KVHeads {
			kept[l] = append(kept[l], first.kept(l, h, c.n()))
		}
	}
	rows := min(c.int("lookahead"), c.c.MaxPositions-c.n())
	_, steps := c.greedy(c.full.only(kept), c.prompt.logits[c.n()-1], c.n(), rows+1)
	attention := make([][][][]float64, c.c.Layers)
	for l := range attention {
		attention[l] = make([][][]float64, c.c.Heads)
		own := make([][]pair, c.c.KVHeads)
		for _, step := range steps {
			for g := range own {
				own[g] = append(own[g], step.own[l][g][0])
			}
			for h := range attention[l] {
				g := h / c.c.Group()
				visible := append(append([]pair(nil), c.full[l][g]...), own[g]...)
				attention[l][h] = append(attention[l][h], softmax(step.queries[l][h][0], visible))
			}
		}
	}
	return attention, rows
}
