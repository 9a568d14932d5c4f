package eviction_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/eviction"
)

func init() {
	naivePolicies["d2o"] = func(c *naiveCase) naivePlan {
		plan := naivePlan{scores: c.sums(), ends: c.d2oEnds}
		// α_l = L·ρ·exp(−F_l)/Σ exp(−F) (eq. 5).
		layers, n := c.c.Layers, c.n()
		f, all := make([]float64, layers), 0.0
		free := func(l int) bool { return c.int("dense") != 1 || l >= 2 && l < layers-1 }
		for l := range f {
			f[l] = c.density(c.prompt.attention[l], c.text("normalise") == "heads")
			if free(l) {
				all += f[l]
			}
		}
		count, z, inverse := 0, 0.0, 0.0
		for l := range f {
			if c.text("normalise") == "layers" && all > 0 {
				f[l] /= all
			}
			if free(l) {
				count, z, inverse = count+1, z+math.Exp(-f[l]), inverse+1/max(1e-12, f[l])
			}
		}
		used := 0
		rho := float64(c.budget) / float64(n)
		var shares []float64
		for l := range f {
			if free(l) {
				alpha := math.Exp(-f[l]) / z * float64(count) * rho
				switch c.text("allocation") { // §5.4
				case "uniform":
					alpha = rho
				case "reciprocal":
					alpha = 1 / max(1e-12, f[l]) / inverse * float64(count) * rho
				case "exponential":
					alpha = math.Exp(-f[l])
				}
				shares = append(shares, math.Max(math.Min(0.01, rho), math.Min(1, alpha))*float64(n))
			}
		}
		given := wholes(shares)
		for l := range f {
			s := n
			if free(l) {
				s, given = max(1, given[0]), given[1:]
				used += s
			}
			plan.budgets = append(plan.budgets, s)
		}
		for ; used > count*c.budget; used-- {
			at := -1
			for l, s := range plan.budgets {
				if free(l) && (at < 0 || s >= plan.budgets[at]) {
					at = l
				}
			}
			plan.budgets[at]--
		}
		// Where a kernel is given, what is before the most recent is ranked by the largest
		// sum around it.
		for l := range plan.scores {
			_, recent := c.d2oEnds(plan.budgets[l])
			for h := range plan.scores[l] {
				plan.scores[l][h] = pooledBefore(plan.scores[l][h], c.int("kernel"), recent)
			}
		}
		return plan
	}
	naiveDecoders["d2o"] = func(c *naiveCase, plan naivePlan, kept [][][]int32) naiveDecoder {
		sums := c.startSums(plan, kept)
		tau := map[[2]int]map[string]float64{} // by layer and head, and by what similarity is of
		// How far rounding is from deciding: of the first layer, values of a token that is there
		// twice are the same, so that all similarities may be as large as the threshold, and once
		// one of the two was merged into, almost the same.
		gap := math.Inf(1)
		near := func(u, t float64) {
			if c.text("threshold") == "ema" {
				gap = min(gap, math.Abs(u-t))
			}
		}
		d := naiveDecoder{
			gap: &gap,
			// What the prompt loses is merged first.
			start: func(full, cache pairs) {
				for l := range full {
					for h := range full[l] {
						tau[[2]int{l, h}] = map[string]float64{}
						for _, by := range c.d2oMerges() {
							if mean, ok := c.naiveMerge(full[l][h], cache[l][h], kept[l][h], by, near); ok {
								tau[[2]int{l, h}][by.similar] = mean
							}
						}
					}
				}
			},
			least: func(row pass, cache pairs, l, h int) (int, []float64) {
				sums.add(c, row, l, h)
				sink, recent := c.d2oEnds(plan.budgets[l])
				ranked := pooledBefore(sums[l][h], c.int("kernel"), recent)
				return lowest(ranked, sink, len(ranked)-recent), ranked
			},
			drop: func(cache pairs, l, h, out int) {
				for _, by := range c.d2oMerges() {
					at, best := -1, math.Inf(-1)
					for j := range cache[l][h] {
						if u := cosine(by.of(cache[l][h][out]), by.of(cache[l][h][j])); j != out && u > best {
							at, best = j, u
						}
					}
					for j := range cache[l][h] {
						if at >= 0 && j != out && j != at && !slices.Equal(by.of(cache[l][h][j]), by.of(cache[l][h][at])) {
							gap = min(gap, best-cosine(by.of(cache[l][h][out]), by.of(cache[l][h][j])))
						}
					}
					t, ok := tau[[2]int{l, h}][by.similar]
					if beta := c.option("beta"); ok {
						t = beta*best + (1-beta)*t
						if beta < 1 {
							near(best, t)
						}
					} else {
						t = best
					}
					if at < 0 {
						continue
					}
					tau[[2]int{l, h}][by.similar] = t
					if best >= t || c.text("threshold") == "none" {
						w := math.Exp(best) / (math.E + math.Exp(best))
						if c.text("merge") == "average" {
							w = 0.5
						}
						if by.keys {
							cache[l][h][at].k = blend(cache[l][h][at].k, 1-w, cache[l][h][out].k, w)
						}
						if by.values {
							cache[l][h][at].v = blend(cache[l][h][at].v, 1-w, cache[l][h][out].v, w)
						}
					}
				}
				sums[l][h] = slices.Delete(sums[l][h], out, out+1)
			},
		}
		return d
	}
}

// density is the mean over a layer's query heads of the variance of their column sums,
// which span, where it is set, moves to between 0 and 1.
func (c *naiveCase) density(attention [][][]float64, span bool) float64 {
	var f []float64
	for _, head := range attention {
		columns, mean := make([]float64, c.n()), 0.0
		for _, row := range head {
			for j, p := range row {
				columns[j] += p
				mean += p / float64(c.n())
			}
		}
		variance := 0.0
		for _, v := range columns {
			variance += math.Pow(v-mean, 2) / float64(c.n())
		}
		f = append(f, variance)
	}
	low, high, sum := slices.Min(f), slices.Max(f), 0.0
	for _, v := range f {
		if span {
			v = (v - low) / (high - low + 1e-6)
		}
		sum += v
	}
	return sum / float64(len(f))
}

// d2oEnds are T and M of a layer's budget.
func (c *naiveCase) d2oEnds(budget int) (sink, recent int) {
	sink = min(c.int("sink"), budget)
	heavy, recent := c.int("heavy"), c.int("recent")
	if recent == 0 {
		return sink, 0
	}
	return sink, int(math.Floor(float64(budget-sink)*float64(recent)/float64(heavy+recent) + 1e-9))
}

// d2oMerge is one merging: what is similar, and what is merged.
type d2oMerge struct {
	similar      string
	keys, values bool
}

// d2oMerges are those that the options merge and feature ask for.
func (c *naiveCase) d2oMerges() []d2oMerge {
	switch {
	case c.text("merge") == "none":
		return nil
	case c.text("feature") == "both":
		return []d2oMerge{{"key", true, false}, {"value", false, true}}
	}
	return []d2oMerge{{c.text("feature"), true, true}}
}

// of is what the similarity of a pair is of.
func (m d2oMerge) of(p pair) []float64 {
	if m.similar == "value" {
		return p.v
	}
	return p.k
}

// naiveMerge merges the entries of full that are not kept into cache (eq. 9–12)
// and returns the mean of their best similarities.
func (c *naiveCase) naiveMerge(full, cache []pair, kept []int32, by d2oMerge, near func(u, t float64)) (mean float64, any bool) {
	type match struct {
		from, to int
		u        float64
	}
	var matches []match
	for i := range full {
		if slices.Contains(kept, int32(i)) {
			continue
		}
		m := match{from: i, u: math.Inf(-1)}
		for to, j := range kept {
			if u := cosine(by.of(full[i]), by.of(full[j])); u > m.u {
				m.to, m.u = to, u
			}
		}
		matches = append(matches, m)
	}
	for _, m := range matches {
		mean += m.u / float64(len(matches))
	}
	for _, m := range matches {
		if len(matches) > 1 {
			near(m.u, mean)
		}
	}
	weight := math.Exp
	if c.text("merge") == "average" {
		weight = func(float64) float64 { return 1 }
	}
	for to, j := range kept {
		z := weight(1)
		for _, m := range matches {
			if m.to == to && (m.u >= mean || c.text("threshold") == "none") {
				z += weight(m.u)
			}
		}
		k, v := blend(full[j].k, weight(1)/z, full[j].k, 0), blend(full[j].v, weight(1)/z, full[j].v, 0)
		for _, m := range matches {
			if m.to == to && (m.u >= mean || c.text("threshold") == "none") {
				w := weight(m.u) / z
				k, v = blend(k, 1, full[m.from].k, w), blend(v, 1, full[m.from].v, w)
			}
		}
		if by.keys {
			cache[to].k = k
		}
		if by.values {
			cache[to].v = v
		}
	}
	return mean, len(matches) > 0
}

func blend(a []float64, wa float64, b []float64, wb float64) []float64 {
	out := make([]float64, len(a))
	for i := range a {
		out[i] = wa*a[i] + wb*b[i]
	}
	return out
}

func cosine(a, b []float64) float64 {
	var ab, aa, bb float64
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// TestD2OBudgets holds eq. 5 against tables worked out by hand.
func TestD2OBudgets(t *testing.T) {
	ln := func(powers ...float64) (f []float64) {
		for _, p := range powers {
			f = append(f, p*math.Ln2)
		}
		return f
	}
	heads := func(layers ...float64) (f [][]float64) { // of one head each
		for _, v := range layers {
			f = append(f, []float64{v})
		}
		return f
	}
	for _, c := range []struct {
		name      string
		variances [][]float64
		n, budget int
		normalise string
		dense     bool
		want      []int
		rule      string // "" is eq. 5
	}{
		// Equal layers share equally.
		{"uniform", heads(3, 3, 3, 3), 1000, 100, "layers", false, []int{100, 100, 100, 100}, ""},
		// exp(−F) = 1, 1/2, 1/4, 1/4: halves, of 400 in all: 200, 100, 50, 50.
		{"powers of two, as they are", heads(ln(0, 1, 2, 2)...), 1000, 100, "none", false, []int{200, 100, 50, 50}, ""},
		// The same divided by their sum 5·ln 2: exponents 0, 1/5, 2/5, 2/5; exp: 1,
		// 0.818731, 0.670320, 0.670320, sum 3.159371; times 400 / 3.159371: 126.61, 103.66, 84.87, 84.87.
		{"powers of two, over their sum", heads(ln(0, 1, 2, 2)...), 1000, 100, "layers", false, []int{126, 104, 85, 85}, ""},
		// Two heads each: the means 0, 1, 2, 2 times ln 2 as above.
		{"means over heads", [][]float64{ln(0, 0), ln(0, 2), ln(3, 1), ln(2, 2)}, 1000, 100, "none", false, []int{200, 100, 50, 50}, ""},
		// The authors' formula: heads at 0, 1/4 and 1 of the layer's range, mean 5/12; at 0,
		// 3/4 and 1, 7/12; all alike, 0. exp: 0.659241, 0.558035, 1, sum 2.217276; times 300: 89.20, 75.50, 135.30.
		{"between the heads", [][]float64{{10, 20, 50}, {1, 4, 5}, {7, 7, 7}}, 1000, 100, "heads", false, []int{89, 76, 135}, ""},
		// Far apart: the first layer gets all of it, clamped to the prompt; the others
		// keep 1% of it.
		{"degenerate", heads(0, 800, 900), 200, 50, "none", false, []int{146, 2, 2}, ""},
		{"clamped above", heads(0, 800, 900), 100, 50, "none", false, []int{100, 1, 1}, ""},
		// 1% of a long prompt is more than the budget: at most the budget.
		{"long prompt", heads(0, 900), 100000, 64, "none", false, []int{64, 64}, ""},
		// The first two and the last keep all; the others share 5·100. exp(−F/ΣF) with
		// F = 0, 1, 1, 1, 1 of sum 4: 1 and 4 times 0.778801; sum 4.115203: 121.50, 94.62.
		{"dense", heads(9, 9, 0, 1, 1, 1, 1, 9), 1000, 100, "layers", true, []int{1000, 1000, 121, 95, 95, 95, 94, 1000}, ""},
		{"one layer", heads(5), 100, 10, "heads", false, []int{10}, ""},
		{"no variance", heads(0, 0), 100, 10, "heads", false, []int{10, 10}, ""},
		{"no variance over a sum of none", heads(0, 0), 100, 10, "layers", false, []int{10, 10}, ""},
		// 1/F = 1, 1/2, 1/4, 1/4 of 400 in all.
		{"reciprocal", heads(1, 2, 4, 4), 1000, 100, "none", false, []int{200, 100, 50, 50}, "reciprocal"},
		{"reciprocal of nothing", heads(0, 0), 100, 10, "none", false, []int{10, 10}, "reciprocal"},
		// exp(−F) = 1/2, 1/4, 1/8, 1/8 of 1000, whatever ρ, where they fit in; else the
		// largest are cut until the sum is 4·100: all above 100 to 100.
		{"exponential", heads(ln(1, 2, 3, 3)...), 1000, 300, "none", false, []int{500, 250, 125, 125}, "exponential"},
		{"exponential, cut", heads(ln(1, 2, 3, 4)...), 1000, 100, "none", false, []int{113, 113, 112, 62}, "exponential"},
		{"all the same", heads(0, 800, 900), 1000, 100, "none", false, []int{100, 100, 100}, "uniform"},
		{"dense, the others the same", heads(9, 9, 0, 1, 9), 1000, 100, "none", true, []int{1000, 1000, 100, 100, 1000}, "uniform"},
	} {
		if got := eviction.D2OBudgets(c.variances, c.n, c.budget, eviction.D2OAllocation{Rule: c.rule, Normalise: c.normalise, Dense: c.dense}); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	for _, layers := range []int{1, 3, 8, 40} {
		for _, n := range []int{2, 65, 130, 5000, 100000} {
			for _, budget := range []int{1, 2, 64, n - 1} {
				f := make([][]float64, layers)
				for l := range f {
					f[l] = []float64{float64(l*l%7) * 3, 1, float64(l % 3)}
				}
				for _, rule := range []string{"softmax", "uniform", "reciprocal", "exponential"} {
					for _, normalise := range []string{"heads", "layers", "none"} {
						sum := 0
						for _, s := range eviction.D2OBudgets(f, n, budget, eviction.D2OAllocation{Rule: rule, Normalise: normalise}) {
							sum += s
							if s < 1 || s > n {
								t.Fatal(fmt.Sprint(rule, layers, n, budget, s))
							}
						}
						if sum > layers*budget || rule == "uniform" && sum < layers*min(n, budget) {
							t.Errorf("%s: layers=%d/n=%d/budget=%d: %d in all", rule, layers, n, budget, sum)
						}
					}
				}
			}
		}
	}
}

// TestD2OAtEqualBudget: with the default options the layers of a model of 32 share what
// uniform budgets of a fifth would take (eq. 13: Σ S_l = S·L·ρ), and not uniformly. With
// the published code's dense layers it is 27.5%.
func TestD2OAtEqualBudget(t *testing.T) {
	const layers, n, budget = 32, 1000, 200
	rng := rand.New(rand.NewPCG(1, 1))
	f := make([][]float64, layers) // skewed as attention's are: one head has far more than the others
	for l := range f {
		for range 32 {
			f[l] = append(f[l], math.Exp(rng.NormFloat64()*(0.3+float64(l)/16)))
		}
	}
	spread := map[string]float64{}
	for _, normalise := range []string{"heads", "layers"} {
		got := eviction.D2OBudgets(f, n, budget, eviction.D2OAllocation{Normalise: normalise})
		sum := 0
		for _, s := range got {
			sum += s
		}
		spread[normalise] = float64(slices.Max(got)) / float64(slices.Min(got))
		if sum != layers*budget {
			t.Errorf("%s: %d entries in all, want %d", normalise, sum, layers*budget)
		}
	}
	if spread["heads"] < 1.3 {
		t.Errorf("the largest budget is %.2f times the smallest one", spread["heads"])
	}
	t.Logf("largest over smallest budget: %.2f between the heads, %.2f over the sum", spread["heads"], spread["layers"])
	p, err := eviction.New("d2o", 0, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	same := p.Method.Plan(eviction.Prompt{Entries: n, Budget: budget}).CrossLayer.Budgets(f)
	if want := eviction.D2OBudgets(f, n, budget, eviction.D2OAllocation{Normalise: "heads"}); !slices.Equal(same, want) {
		t.Errorf("the default options give %v, want %v", same, want)
	}
	sum := 0
	for _, s := range eviction.D2OBudgets(f, n, budget, eviction.D2OAllocation{Normalise: "heads", Dense: true}) {
		sum += s
	}
	if share := float64(sum) / (layers * n); math.Abs(share-0.275) > 0.001 {
		t.Errorf("with dense layers %.1f%% is kept, want 27.5%%", 100*share)
	}
}
