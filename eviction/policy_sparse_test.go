package eviction_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

func init() {
	for _, name := range []string{"quest", "sparq", "exact-topk", "hsa"} {
		naivePolicies[name] = func(c *naiveCase) naivePlan { return naivePlan{budgets: c.uniform(c.n())} }
	}
	naiveDecoders["quest"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		d := c.sparse(func(queries [][]float64, visible []pair, half int) ([]float64, int) {
			dim, page := len(queries[0]), c.int("page")
			last := func() int { return (len(visible) - 1) / page } // the page of the current entry, which is read anyway
			for last() > half {
				page *= 2
			}
			before := visible[:last()*page]
			scores := c.pageScores(queries, before, page, func(q []float64, lo, hi []float64) float64 {
				bound := 0.0
				for i := range q {
					bound += max(q[i]*lo[i], q[i]*hi[i]) / math.Sqrt(float64(dim))
				}
				return bound
			})
			return append(scores, make([]float64, len(visible)-len(before))...), len(visible) - len(before)
		}, nil)
		d.dense = c.int("dense")
		return d
	}
	naiveDecoders["sparq"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		return c.sparse(func(queries [][]float64, visible []pair, half int) ([]float64, int) {
			want := c.budget - half
			return logMeanRows(c.sparqScores(queries, visible, half)), 1 + int(c.option("local")*float64(want-1))
		}, func(queries [][]float64, visible []pair, half int, idx []int) func(int, []float64) []float64 {
			if c.int("mean") == 0 {
				return nil
			}
			scores := c.sparqScores(queries, visible, half)
			return func(query int, out []float64) []float64 {
				alpha := 0.0
				for _, j := range idx {
					alpha += math.Exp(scores[query][j])
				}
				y := make([]float64, len(out))
				for i := range y {
					mean := 0.0
					for _, e := range visible {
						mean += e.v[i] / float64(len(visible))
					}
					y[i] = alpha*out[i] + (1-alpha)*mean
				}
				return y
			}
		}).leave(c.int("dense"))
	}
	naiveDecoders["exact-topk"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		d := c.free().sparse(func(queries [][]float64, visible []pair, _ int) ([]float64, int) {
			var p matrix
			for _, q := range queries {
				row := make([]float64, len(visible))
				for j, e := range visible {
					for i := range q {
						row[j] += q[i] * e.k[i] / math.Sqrt(float64(len(q)))
					}
				}
				p = append(p, logSoftmax(row))
			}
			return logMeanRows(p), 0
		}, nil)
		return d.leave(c.int("dense"))
	}
	rocket := func(c *naiveCase) naivePlan {
		first := c.rocketFirst()
		w := max(1, min(c.int("window"), first/2, c.n()))
		scores := c.meanScores(c.prompt.attention, c.n()-w, c.n(), c.n())
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = append(pooled(s[:c.n()-w], c.int("kernel")), s[c.n()-w:]...)
			}
		}
		return naivePlan{scores: scores, budgets: c.denseBudgets(first), recent: w}
	}
	// hsa: the dimensions are those that half of the budget pays for when the response
	// has its full length, start + maxNew entries, or more.
	hsa := func(c *naiveCase, start int, left float64) naiveDecoder {
		return c.sparse(func(queries [][]float64, visible []pair, half int) ([]float64, int) {
			dim := len(queries[0])
			most, page := max(len(visible), start+c.maxNew), 1
			if left >= 2 {
				page = int(math.Ceil(math.Sqrt(left) - 1e-9))
			}
			wanted := max(1, int(float64(dim)*float64(page)/left+1e-9))
			for (most+page-1)/page > 2*dim*half {
				page *= 2
			}
			pages := (most + page - 1) / page
			k := min(dim, 2*dim*half/pages, wanted)
			dims := naiveLargest(queries, k)
			return c.pageScores(queries, visible, page, func(q []float64, lo, hi []float64) float64 {
				s, some, all := 0.0, 0.0, 0.0
				for _, v := range q {
					all += math.Abs(v)
				}
				for _, i := range dims {
					sign := 0.0
					for _, other := range queries {
						sign += other[i]
					}
					some += math.Abs(q[i])
					if sign >= 0 {
						s += q[i] * hi[i]
					} else {
						s += q[i] * lo[i]
					}
				}
				if some == 0 {
					return 0
				}
				return s / math.Sqrt(float64(dim)*some/all)
			}), 0
		}, nil)
	}
	for _, name := range []string{"rocketkv", "rocketkv-mt"} {
		naivePolicies[name], naiveDecoders[name] = rocket, func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
			start := c.n()
			if start > c.budget {
				start = c.rocketFirst()
			}
			ratio := c.rocketRatio()
			return hsa(c, start, ratio/math.Pow(ratio, c.rocketSplit())).leave(c.int("dense"))
		}
	}
	naiveDecoders["hsa"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		return hsa(c, c.n(), c.rocketRatio()).leave(c.int("dense"))
	}
}

// leave does not restrict the first layers.
func (d naiveDecoder) leave(dense int) naiveDecoder {
	d.dense = dense
	return d
}

// denseBudgets is the same budget in every layer but the first, which are left whole.
func (c *naiveCase) denseBudgets(budget int) []int {
	out := c.uniform(budget)
	for l := range min(c.int("dense"), len(out)) {
		out[l] = c.n()
	}
	return out
}

// rocketSplit is r of RocketKV §3.6 and app. B.1.2.
func (c *naiveCase) rocketSplit() float64 {
	if r := c.option("split"); r >= 0 {
		return r
	}
	return min(0.8, 0.2+0.06*math.Log2(c.rocketRatio()))
}

// rocketRatio is c of RocketKV §3.6: S, prompt and response, over the budget.
func (c *naiveCase) rocketRatio() float64 {
	return max(1, float64(c.n()+c.maxNew)/float64(c.budget))
}

// rocketFirst is what RocketKV's first stage keeps of the prompt: room for the response
// is part of S/c^r, and the prompt gets at least as much as the response.
func (c *naiveCase) rocketFirst() int {
	s, ratio := c.n()+c.maxNew, c.rocketRatio()
	whole := int(float64(s)*math.Pow(ratio, -c.rocketSplit()) + 1e-9)
	return max(whole, min(2*c.maxNew, s)) - c.maxNew
}

// sparse attends to everything within the budget, else to the entries with the best
// scores, logarithms of probabilities, in what estimation leaves of it. So many last
// entries count as the best.
func (c *naiveCase) sparse(scores func(q [][]float64, visible []pair, half int) (scores []float64, recent int), after func(q [][]float64, visible []pair, half int, idx []int) func(int, []float64) []float64) naiveDecoder {
	gap := math.Inf(1)
	choose := func(queries [][]float64, visible []pair) ([]int, func(int, []float64) []float64) {
		n := len(visible)
		all := make([]int, n)
		for j := range all {
			all[j] = j
		}
		half := c.budget / 2
		if c.estimateFree {
			half = 0
		}
		want := c.budget - half
		switch {
		case n <= c.budget:
			return all, nil
		case half == 0 && !c.estimateFree:
			return all[n-want:], nil
		}
		s, recent := scores(queries, visible, half)
		for j := n - min(recent, want); j < n; j++ {
			s[j] = math.Inf(1)
		}
		for j := n - recent; j < n-want; j++ {
			s[j] = math.Inf(-1)
		}
		slices.SortStableFunc(all, func(a, b int) int { return -cmp.Compare(s[a], s[b]) })
		cut := s[all[want-1]]
		near := func(other float64) {
			if !math.IsInf(cut, 1) && !math.IsInf(other, 0) {
				gap = min(gap, math.Abs(cut-other)/max(1, math.Abs(cut)))
			}
		}
		if b := s[all[want]]; b != cut {
			near(b)
		} else { // a page is cut: which one, depends on both of its neighbours
			if j := slices.IndexFunc(all, func(j int) bool { return s[j] < cut }); j >= 0 {
				near(s[all[j]])
			}
			for j := want - 1; j >= 0; j-- {
				if b := s[all[j]]; b != cut {
					near(b)
					break
				}
			}
		}
		idx := all[:want]
		slices.Sort(idx)
		if after == nil {
			return idx, nil
		}
		return idx, after(queries, visible, half, idx)
	}
	return naiveDecoder{choose: choose, gap: &gap}
}

// free is the case with the whole budget for attention.
func (c *naiveCase) free() *naiveCase {
	out := *c
	out.estimateFree = true
	return &out
}

// logMeanRows is the logarithm of the mean of rows of logarithms.
func logMeanRows(p matrix) []float64 {
	out := make([]float64, len(p[0]))
	for j := range out {
		top, sum := math.Inf(-1), 0.0
		for _, row := range p {
			top = max(top, row[j])
		}
		if out[j] = top; math.IsInf(top, -1) {
			continue
		}
		for _, row := range p {
			sum += math.Exp(row[j] - top)
		}
		out[j] += math.Log(sum / float64(len(p)))
	}
	return out
}

// logSoftmax turns logits into logarithms of probabilities.
func logSoftmax(x []float64) []float64 {
	top, sum, out := slices.Max(x), 0.0, make([]float64, len(x))
	for _, v := range x {
		sum += math.Exp(v - top)
	}
	for j, v := range x {
		out[j] = v - top - math.Log(sum)
	}
	return out
}

// pageScores gives every entry its page's score: the logarithm of the mean over queries
// of the softmax of the page's logits.
func (c *naiveCase) pageScores(queries [][]float64, visible []pair, page int, logit func(q, lo, hi []float64) float64) []float64 {
	pages := (len(visible) + page - 1) / page
	if pages == 0 {
		return nil
	}
	var p matrix
	for _, q := range queries {
		row := make([]float64, pages)
		for i := range row {
			var lo, hi []float64
			for _, e := range visible[i*page : min(len(visible), (i+1)*page)] {
				if lo == nil {
					lo, hi = slices.Clone(e.k), slices.Clone(e.k)
				}
				for d, v := range e.k {
					lo[d], hi[d] = min(lo[d], v), max(hi[d], v)
				}
			}
			row[i] = logit(q, lo, hi)
		}
		p = append(p, logSoftmax(row))
	}
	mean, out := logMeanRows(p), make([]float64, len(visible))
	for j := range out {
		out[j] = mean[j/page]
	}
	return out
}

// naiveLargest are the dimensions with the largest Σ|q|.
func naiveLargest(queries [][]float64, k int) []int {
	size, dims := make([]float64, len(queries[0])), make([]int, len(queries[0]))
	for i := range size {
		dims[i] = i
		for _, q := range queries {
			size[i] += math.Abs(q[i])
		}
	}
	slices.SortStableFunc(dims, func(a, b int) int { return -cmp.Compare(size[a], size[b]) })
	return dims[:k]
}

// sparqScores are log ŝ by query and entry; entries beyond the reach of estimation have
// −Inf.
func (c *naiveCase) sparqScores(queries [][]float64, visible []pair, half int) matrix {
	dim, n := len(queries[0]), len(visible)
	room := 2 * dim * half
	if c.int("mean") == 1 {
		room -= dim
	}
	start := max(0, n-room)
	r := min(dim, room/(n-start))
	if limit := c.int("components"); limit > 0 {
		r = min(r, limit)
	}
	dims := naiveLargest(queries, r)
	var out matrix
	for _, q := range queries {
		some, all := 0.0, 0.0
		for _, v := range q {
			all += math.Abs(v)
		}
		for _, i := range dims {
			some += math.Abs(q[i])
		}
		row := make([]float64, n)
		for j := range row {
			for _, i := range dims {
				if some > 0 {
					row[j] += q[i] * visible[j].k[i] / math.Sqrt(float64(dim)*some/all)
				}
			}
		}
		out = append(out, slices.Concat(slices.Repeat([]float64{math.Inf(-1)}, start), logSoftmax(row[start:])))
	}
	return out
}

// TestSplitCompression: RocketKV, arXiv:2502.14051, §3.6 by hand, its worked example first.
func TestSplitCompression(t *testing.T) {
	for _, c := range []struct {
		c, r, first, second float64
		page                int
		head                float64
		static              bool
	}{
		{64, 0.56, 10.2670, 6.2335, 3, 2.0778, false},     // the paper: 10.3×, 6.2×, pages of 3, 2.1×
		{1, 0.2, 1, 1, 1, 1, false},                       // nothing to compress
		{2, 0.26, 1.1975, 1.6702, 1, 1.6702, false},       // 2^0.26, 2^0.74: pages of 2 would leave less than 1 for the head
		{4, 0.32, 1.5583, 2.5669, 2, 1.2834, false},       // 4^0.32, 4^0.68
		{16, 0.44, 3.3870, 4.7240, 3, 1.5747, false},      // 2^1.76, 2^2.24
		{400, 0.71863, 74.1111, 5.3973, 3, 1.7991, false}, // log₂ 400 = 8.643856
		{1024, 0.8, 256, 4, 2, 2, false},                  // r reaches its limit: 2^8, 2^2
		{1 << 20, 0.8, 65536, 16, 4, 4, false},            // 2^16, 2^4
		{0.5, 0.2, 1, 1, 1, 1, false},                     // more budget than prompt
		{64, 0.5, 8, 8, 3, 2.6667, true},                  // an even split: √8 rounds up to 3
		{64, 0.3, 3.4822, 18.3792, 5, 3.6758, true},       // 2^1.8, 2^4.2
		{64, 0, 1, 64, 8, 8, true},                        // the second stage alone
		{64, 1, 64, 1, 1, 1, true},                        // the first one alone
	} {
		r := -1.0
		if c.static {
			r = c.r
		}
		got := eviction.SplitCompression(c.c, r)
		second := got.Head * float64(got.Page)
		near := func(what string, a, b float64) {
			if math.Abs(a-b) > 2e-4*b {
				t.Errorf("c=%v: %s %v, want %v", c.c, what, a, b)
			}
		}
		if got.R != c.r {
			near("r", got.R, c.r)
		}
		near("first", got.First, c.first)
		near("second", second, c.second)
		near("head", got.Head, c.head)
		if got.Page != c.page {
			t.Errorf("c=%v: pages of %d, want %d", c.c, got.Page, c.page)
		}
		compare.Close(t, "the stages make the whole", []float64{got.First * second}, []float64{max(1, c.c)}, 1e-9)
	}
}

// TestRocketKVFirstStage: what the first stage keeps of a prompt is what S/c^r has room
// for beside the response, or as much as the response is long; by hand.
func TestRocketKVFirstStage(t *testing.T) {
	for _, c := range []struct{ n, maxNew, budget, want int }{
		{8192, 512, 512, 1953},  // S = 8704, c = 17, r = 0.44525: 2465 − 512
		{8201, 512, 512, 1954},  // c = 17.018, r = 0.44534: 2466 − 512
		{8192, 0, 512, 2418},    // c = 16, r = 0.44: 8192/3.387
		{8192, 1024, 512, 1484}, // c = 18, r = 0.4502: 2508 − 1024
		{8192, 2048, 512, 2048}, // S/c^r = 2586 < 2 · 2048
		{100, 300, 64, 100},     // a response longer than the prompt: all of it
		{600, 400, 512, 441},    // S = 1000, c = 1.953, r = 0.25795: 841 − 400
	} {
		naive := naiveCase{option: func(string) float64 { return -1 }, tokens: make([]int32, c.n), budget: c.budget, maxNew: c.maxNew}
		got := eviction.FirstStage(eviction.Prompt{Entries: c.n, MaxNew: c.maxNew, Budget: c.budget})
		if second := naive.rocketFirst(); got != c.want || second != c.want {
			t.Errorf("%d tokens, %d new, budget %d: keeps %d, by the second implementation %d, want %d", c.n, c.maxNew, c.budget, got, second, c.want)
		}
	}
}

// TestSparseStepsSeeThemselves: whatever the scores, quest reads the last page and sparq
// the current entry and a window before it, within the half of the budget that is for
// attention.
func TestSparseStepsSeeThemselves(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 2}.Open(t, "cpu")
	for _, budget := range []int{1, 2, 3, 9, 30, 64} {
		want := budget - budget/2
		for name, last := range map[string]func(n int) int{
			"quest": func(n int) int { return (n-1)%4 + 1 }, // at least: pages may have been doubled
			"sparq": func(int) int { return 1 + (want-1)/4 },
		} {
			var set []string
			if name == "quest" {
				set = append(set, "quest.page=4")
			}
			s := prefill(t, m, policy(t, m, name, set...), modeltest.Tokens(m, 4, 200), budget)
			steps := 0
			eviction.SparseSteps(s, func(step *runner.SparseStep, _ int64) {
				steps++
				for h, idx := range step.Entries {
					n := s.Cache.Entries(step.Layer, h)
					recent := min(want, last(n))
					if len(idx) != want || !slices.Equal(idx[want-recent:], upTo(n-recent, n)) {
						t.Fatalf("%s budget=%d: %v of %d entries, want %d with the last %d", name, budget, idx, n, want, recent)
					}
				}
			})
			generate(t, s, 20)
			if steps != 19*m.Config.Layers {
				t.Errorf("%s: %d steps", name, steps)
			}
		}
	}
}

func upTo(from, to int) (out []int32) {
	for j := from; j < to; j++ {
		out = append(out, int32(j))
	}
	return out
}

// TestHSADimensionsStay: rocketkv's second stage reads the same number of dimensions at
// every step of a response, and as many as the compression leaves.
func TestHSADimensionsStay(t *testing.T) {
	m := modeltest.Llama{Layers: 2, HeadDim: 32, Seed: 2}.Open(t, "cpu")
	const n, budget, steps = 400, 60, 60
	rt := eviction.NewRuntime(m)
	s, err := rt.Prefill(background, policy(t, m, "rocketkv"), eviction.Prompt{Tokens: modeltest.Tokens(m, 4, n), MaxNew: steps, Budget: budget})
	if err != nil {
		t.Fatal(err)
	}
	// c = 460/60 = 7.667, r = 0.37630, c^(1−r) = 3.5618: pages of 2, 32 · 2/3.5618 = 17.97 dimensions
	const page, dims = 2, 17
	eviction.SparseSteps(s, func(step *runner.SparseStep, read int64) {
		pages := (s.Cache.Entries(step.Layer, 0) + page - 1) / page
		if want := int64(m.Config.KVHeads * pages * dims * 4); read != want {
			t.Errorf("layer %d with %d entries: %d bytes to choose, want %d: %d dimensions of %d pages", step.Layer, s.Cache.Entries(step.Layer, 0), read, want, dims, pages)
		}
	})
	generate(t, s, steps)
}
