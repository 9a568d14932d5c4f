package eviction_test

import (
	"cmp"
	"math"
	"slices"
)

// samples are the probabilities that an entry has got: one per row that saw it and
// head of the group.
type samples []float64

func (s samples) mean() (m float64) {
	for _, v := range s {
		m += v / float64(len(s))
	}
	return m
}

func (s samples) deviation() float64 {
	var square float64
	for _, v := range s {
		square += v * v / float64(len(s))
	}
	return math.Sqrt(max(0, square-s.mean()*s.mean()))
}

// entrySamples collects them from the whole attention matrix: [layer][kvHead][entry].
func (m *naive) entrySamples(attention [][][][]float64, n int) [][][]samples {
	out := make([][][]samples, m.c.Layers)
	for l := range out {
		out[l] = make([][]samples, m.c.KVHeads)
		for h := range m.c.Heads {
			g := h / m.c.Group()
			if out[l][g] == nil {
				out[l][g] = make([]samples, n)
			}
			for _, row := range attention[l][h] {
				for j, p := range row {
					out[l][g][j] = append(out[l][g][j], p)
				}
			}
		}
	}
	return out
}

// rocoNumbers are the numbers that roco ranks a head's entries by: mean and deviation of
// their samples, and of all but the recent the largest around them.
type rocoNumbers struct{ means, deviations []float64 }

func rocoRanks(all []samples, kernel, recent int) (r rocoNumbers) {
	for _, s := range all {
		r.means, r.deviations = append(r.means, s.mean()), append(r.deviations, s.deviation())
	}
	return rocoNumbers{pooledBefore(r.means, kernel, recent), pooledBefore(r.deviations, kernel, recent)}
}

// rocoKept: sinks and recent, then by deviation up to the protected share, then by
// mean. It returns the deviation of the last that is protected by it.
func rocoKept(r rocoNumbers, budget, sink, recent int, protect float64) (keep, protected []int32, edge float64) {
	n := len(r.means)
	recent = min(recent, budget)
	sink = min(sink, budget-recent)
	var rest []int32
	for j := range int32(n) {
		if j < int32(sink) || j >= int32(n-recent) {
			keep = append(keep, j)
		} else {
			rest = append(rest, j)
		}
	}
	by := func(value []float64) {
		slices.SortStableFunc(rest, func(a, b int32) int { return -cmp.Compare(value[a], value[b]) })
	}
	by(r.deviations)
	if more := int(protect*float64(budget)) - len(keep); more > 0 {
		edge = r.deviations[rest[more-1]]
		keep, rest = append(keep, rest[:more]...), rest[more:]
		slices.Sort(rest)
	}
	slices.Sort(rest)
	protected = slices.Clone(keep)
	by(r.means)
	keep = append(keep, rest[:budget-len(keep)]...)
	slices.Sort(keep)
	return keep, protected, edge
}

// rocoTies: the selections differ by an entry whose deviation is almost that of the
// edge of protection, which is also a matter of how exactly E[a²]−E[a]² cancels.
func rocoTies(r rocoNumbers, edge float64, a, b []int32, tol float64) bool {
	near := func(x, y []int32) bool {
		for _, j := range x {
			if !slices.Contains(y, j) {
				d, m := r.deviations[j], r.means[j]
				noise := tol * (d*d + m*m) // of the difference of squares
				if math.Abs(d*d-edge*edge) > noise+2*tol*edge*edge {
					return false
				}
			}
		}
		return true
	}
	return len(a) == len(b) && (near(a, b) || near(b, a))
}

func init() {
	naivePolicies["roco"] = func(c *naiveCase) naivePlan {
		all := c.entrySamples(c.prompt.attention, c.n())
		plan := naivePlan{budgets: c.uniform(c.budget)}
		edges, ranks := make([][]float64, len(all)), make([][]rocoNumbers, len(all))
		for l := range all {
			var scores [][]float64
			var protected [][]int32
			for h := range all[l] {
				r := rocoRanks(all[l][h], c.int("kernel"), min(c.int("recent"), c.budget))
				_, p, edge := rocoKept(r, c.budget, c.int("sink"), c.int("recent"), c.option("protect"))
				protected, edges[l], ranks[l] = append(protected, p), append(edges[l], edge), append(ranks[l], r)
				scores = append(scores, r.means)
			}
			plan.scores, plan.protected = append(plan.scores, scores), append(plan.protected, protected)
		}
		plan.ties = func(l, h int, a, b []int32, tol float64) bool { return rocoTies(ranks[l][h], edges[l][h], a, b, tol) }
		return plan
	}
	naiveDecoders["roco"] = func(c *naiveCase, _ naivePlan, kept [][][]int32) naiveDecoder {
		all := c.entrySamples(c.prompt.attention, c.n())
		for l := range all {
			for h := range all[l] {
				var s []samples
				for _, j := range kept[l][h] {
					s = append(s, all[l][h][j])
				}
				all[l][h] = s
			}
		}
		edges, ranks := map[[2]int]float64{}, map[[2]int]rocoNumbers{}
		return naiveDecoder{
			least: func(row pass, cache pairs, l, h int) (int, []float64) {
				all[l][h] = append(all[l][h], nil)
				for g := h * c.c.Group(); g < (h+1)*c.c.Group(); g++ {
					for j, p := range row.attention[l][g][0] {
						all[l][h][j] = append(all[l][h][j], p)
					}
				}
				r := rocoRanks(all[l][h], c.int("kernel"), min(c.int("recent"), c.budget))
				if len(r.means) <= c.budget {
					return 0, r.means
				}
				keep, _, edge := rocoKept(r, c.budget, c.int("sink"), c.int("recent"), c.option("protect"))
				edges[[2]int{l, h}], ranks[[2]int{l, h}] = edge, r
				for j := range r.means {
					if !slices.Contains(keep, int32(j)) {
						return j, r.means
					}
				}
				panic("nothing to evict")
			},
			ties: func(l, h, got, want int) bool {
				n := len(all[l][h])
				return rocoTies(ranks[[2]int{l, h}], edges[[2]int{l, h}], without(n, got), without(n, want), c.tolerance())
			},
			drop: func(_ pairs, l, h, out int) { all[l][h] = slices.Delete(all[l][h], out, out+1) },
		}
	}
}

func without(n, out int) (idx []int32) {
	for j := range int32(n) {
		if int(j) != out {
			idx = append(idx, j)
		}
	}
	return idx
}
