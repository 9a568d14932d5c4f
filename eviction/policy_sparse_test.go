package eviction_test

import (
	"cmp"
	"math"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
)

func init() {
	for _, name := range []string{"quest", "sparq", "exact-topk", "hsa"} {
		naivePolicies[name] = func(c *naiveCase) naivePlan { return naivePlan{budgets: c.uniform(c.n())} }
	}
	naiveDecoders["quest"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		d := c.sparse(func(queries [][]float64, visible []pair, half int) []float64 {
			dim := len(queries[0])
			page := c.int("page")
			for (len(visible)+page-1)/page > half {
				page *= 2
			}
			return c.pageScores(queries, visible, page, func(q []float64, lo, hi []float64) float64 {
				bound := 0.0
				for i := range q {
					bound += max(q[i]*lo[i], q[i]*hi[i]) / math.Sqrt(float64(dim))
				}
				return bound
			})
		}, nil)
		d.dense = max(0, c.int("dense")) // the models here have less than 8 layers
		return d
	}
	naiveDecoders["sparq"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		return c.sparse(func(queries [][]float64, visible []pair, half int) []float64 {
			return meanRows(c.sparqScores(queries, visible, half))
		}, func(queries [][]float64, visible []pair, half int, idx []int) func(int, []float64) []float64 {
			if c.int("mean") == 0 {
				return nil
			}
			scores := c.sparqScores(queries, visible, half)
			return func(query int, out []float64) []float64 {
				alpha := 0.0
				for _, j := range idx {
					alpha += scores[query][j]
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
		})
	}
	naiveDecoders["exact-topk"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		d := c.free().sparse(func(queries [][]float64, visible []pair, _ int) []float64 {
			var p matrix
			for _, q := range queries {
				p = append(p, softmax(q, visible))
			}
			return meanRows(p)
		}, nil)
		return d
	}
	rocket := func(c *naiveCase) naivePlan {
		split, first := c.rocketSplit()
		_ = split
		w := max(1, min(c.int("window"), first/2))
		scores := c.meanScores(c.prompt.attention, c.n()-w, c.n(), c.n())
		for l := range scores {
			for h, s := range scores[l] {
				scores[l][h] = append(pooled(s[:c.n()-w], c.int("kernel")), s[c.n()-w:]...)
			}
		}
		return naivePlan{scores: scores, budgets: c.uniform(first), recent: w}
	}
	hsa := func(c *naiveCase, split eviction.Compression) naiveDecoder {
		return c.sparse(func(queries [][]float64, visible []pair, half int) []float64 {
			dim := len(queries[0])
			page := split.Page
			for (len(visible)+page-1)/page > 2*dim*half {
				page *= 2
			}
			pages := (len(visible) + page - 1) / page
			k := min(dim, 2*dim*half/pages, max(1, int(float64(dim)/split.Head+1e-9)))
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
			})
		}, nil)
	}
	for _, name := range []string{"rocketkv", "rocketkv-mt"} {
		naivePolicies[name], naiveDecoders[name] = rocket, func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
			split, _ := c.rocketSplit()
			return hsa(c, split)
		}
	}
	naiveDecoders["hsa"] = func(c *naiveCase, _ naivePlan, _ [][][]int32) naiveDecoder {
		all := max(1, float64(c.n()+c.maxNew)/float64(c.budget))
		page := math.Ceil(math.Sqrt(all) - 1e-9)
		return hsa(c, eviction.Compression{Page: int(page), Head: all / page})
	}
}

// rocketSplit is the split of §3.6 and what the first stage keeps.
func (c *naiveCase) rocketSplit() (eviction.Compression, int) {
	length := float64(c.n() + c.maxNew)
	split := eviction.SplitCompression(length / float64(c.budget))
	return split, max(c.budget, int(length/split.First+1e-9))
}

// sparse attends to everything within the budget, else to the entries with the
// best scores in what estimation leaves of it.
func (c *naiveCase) sparse(scores func(q [][]float64, visible []pair, half int) []float64, after func(q [][]float64, visible []pair, half int, idx []int) func(int, []float64) []float64) naiveDecoder {
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
		s := scores(queries, visible, half)
		slices.SortStableFunc(all, func(a, b int) int { return -cmp.Compare(s[a], s[b]) })
		if a, b := s[all[want-1]], s[all[want]]; a != b {
			gap = min(gap, (a-b)/a)
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

func meanRows(p matrix) []float64 {
	out := make([]float64, len(p[0]))
	for _, row := range p {
		for j, v := range row {
			out[j] += v / float64(len(p))
		}
	}
	return out
}

// pageScores gives every entry the softmax of its page's logit over pages, averaged
// over queries.
func (c *naiveCase) pageScores(queries [][]float64, visible []pair, page int, logit func(q, lo, hi []float64) float64) []float64 {
	pages := (len(visible) + page - 1) / page
	var p matrix
	for _, q := range queries {
		row, z := make([]float64, pages), 0.0
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
			row[i] = math.Exp(logit(q, lo, hi))
			z += row[i]
		}
		for i := range row {
			row[i] /= z
		}
		p = append(p, row)
	}
	mean, out := meanRows(p), make([]float64, len(visible))
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

// sparqScores are ŝ by query and entry; entries beyond the reach of estimation
// have none.
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
		some, all, z := 0.0, 0.0, 0.0
		for _, v := range q {
			all += math.Abs(v)
		}
		for _, i := range dims {
			some += math.Abs(q[i])
		}
		row := make([]float64, n)
		for j := start; j < n; j++ {
			for _, i := range dims {
				if some > 0 {
					row[j] += q[i] * visible[j].k[i] / math.Sqrt(float64(dim)*some/all)
				}
			}
			row[j] = math.Exp(row[j])
			z += row[j]
		}
		for j := range row {
			row[j] /= z
		}
		out = append(out, row)
	}
	return out
}

// TestSplitCompression: rocketkv.txt §3.6 by hand, its worked example first.
func TestSplitCompression(t *testing.T) {
	for _, c := range []struct {
		c, r, first, second float64
		page                int
		head                float64
	}{
		{64, 0.56, 10.2670, 6.2335, 3, 2.0778},     // the paper: 10.3×, 6.2×, pages of 3, 2.1×
		{1, 0.2, 1, 1, 1, 1},                       // nothing to compress
		{2, 0.26, 1.1975, 1.6702, 2, 0.8351},       // 2^0.26, 2^0.74
		{4, 0.32, 1.5583, 2.5669, 2, 1.2834},       // 4^0.32, 4^0.68
		{16, 0.44, 3.3870, 4.7240, 3, 1.5747},      // 2^1.76, 2^2.24
		{400, 0.71863, 74.1111, 5.3973, 3, 1.7991}, // log₂ 400 = 8.643856
		{1024, 0.8, 256, 4, 2, 2},                  // r reaches its limit: 2^8, 2^2
		{1 << 20, 0.8, 65536, 16, 4, 4},            // 2^16, 2^4
		{0.5, 0.2, 1, 1, 1, 1},                     // more budget than prompt
	} {
		got := eviction.SplitCompression(c.c)
		second := got.Head * float64(got.Page)
		near := func(what string, a, b float64) {
			if math.Abs(a-b) > 2e-4*b {
				t.Errorf("c=%v: %s %v, want %v", c.c, what, a, b)
			}
		}
		near("r", got.R, c.r)
		near("first", got.First, c.first)
		near("second", second, c.second)
		near("head", got.Head, c.head)
		if got.Page != c.page {
			t.Errorf("c=%v: pages of %d, want %d", c.c, got.Page, c.page)
		}
		compare.Close(t, "the stages make the whole", []float64{got.First * second}, []float64{max(1, c.c)}, 1e-9)
	}
}
