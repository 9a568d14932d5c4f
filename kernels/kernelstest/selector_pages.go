package kernelstest

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// sparseCase is what a step chooses from, with the rows of every head's positions.
type sparseCase struct {
	pages *kernels.PageHeads
	past  []kernels.KV
	rows  [][]int
	k, v  [][]float64
	dim   int
	width int // most pages of a head
}

func newSparseCase(d Device, rng *rand.Rand, dim, bounds, most int, dtype kernels.DType) *sparseCase {
	c := &sparseCase{pages: &kernels.PageHeads{}, dim: dim}
	pooled := rng.IntN(2) == 0
	var pool [][]int32
	for range 1 + rng.IntN(3) {
		n := 1 + rng.IntN(most)
		x := kernels.PageHead{Entries: n, Size: 1 + rng.IntN(7), Components: 1 + rng.IntN(dim)}
		if rng.IntN(3) == 0 {
			x.From = rng.IntN(n)
		}
		x.Want = 1 + rng.IntN(n-x.From+1)
		x.Recent = rng.IntN(3) / 2 * rng.IntN(x.Want+1)
		x.Bounds = d.B.Alloc(kernels.F32, bounds, dim, x.Pages()+rng.IntN(3))
		var rows []int
		entries := n
		if pooled {
			known, base := rng.IntN(n+1), 0
			var idx []int32
			for range known {
				idx = append(idx, int32(base))
				base += 1 + rng.IntN(3)
			}
			pool, c.pages.Base = append(pool, idx), append(c.pages.Base, base)
			for _, j := range idx {
				rows = append(rows, int(j))
			}
			for j := range n - known {
				rows = append(rows, base+j)
			}
			entries = base + n - known
		} else {
			for j := range n {
				rows = append(rows, j)
			}
		}
		kv := kernels.KV{K: d.Stored(dtype, Random(rng, entries*dim, 1), entries, dim), V: d.Stored(dtype, Random(rng, entries*dim, 1), entries, dim)}
		c.k, c.v = append(c.k, kv.K.Float64s()), append(c.v, kv.V.Float64s())
		c.pages.Heads, c.past, c.rows = append(c.pages.Heads, x), append(c.past, kv), append(c.rows, rows)
		c.width = max(c.width, x.Pages())
	}
	if pooled {
		c.pages.Pool = kernels.HostSelection(pool)
	}
	return c
}

// bound is the minimum and maximum of a page in a dimension.
func (c *sparseCase) bound(h, page, i int) (lo, hi float64) {
	x := c.pages.Heads[h]
	lo, hi = math.Inf(1), math.Inf(-1)
	for p := page * x.Size; p < min(x.Entries, (page+1)*x.Size); p++ {
		v := c.k[h][c.rows[h][p]*c.dim+i]
		lo, hi = min(lo, v), max(hi, v)
	}
	return lo, hi
}

// testSparseEstimate: bounds of pages are the bounds of their keys, also where they are
// computed from some page on, and estimates are as the formulas in float64.
func testSparseEstimate(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(60, 21) {
		how := kernels.Estimate(seed % 3)
		bounds := 2
		if how == kernels.EstimatePartial && rng.IntN(2) == 0 {
			bounds = 1
		}
		dim, group := 1+rng.IntN([]int{5, 40, 256}[rng.IntN(3)]), 1+rng.IntN(4)
		c := newSparseCase(d, rng, dim, bounds, []int{4, 60, 700}[seed%3], []kernels.DType{kernels.F32, kernels.BF16}[rng.IntN(2)])
		name := fmt.Sprintf("seed %d: estimate %d, %d dimensions, %d queries", seed, how, dim, group)
		from := make([]int, len(c.past))
		sel.PageBounds(c.pages, c.past, from)
		for h, x := range c.pages.Heads { // once more from some page on: nothing before it changes
			from[h] = rng.IntN(x.Pages() + 1)
		}
		sel.PageBounds(c.pages, c.past, from)
		for h, x := range c.pages.Heads {
			got := x.Bounds.Float64s()
			for i := range dim {
				for page := range x.Pages() {
					lo, hi := c.bound(h, page, i)
					at := i*x.Bounds.Shape[2] + page
					if got[at] != lo || bounds == 2 && got[len(got)/2+at] != hi {
						t.Fatalf("%s: head %d page %d dimension %d: bound %v, want %v and %v", name, h, page, i, got[at], lo, hi)
					}
				}
			}
		}

		kvHeads := len(c.past)
		heads := kvHeads * group
		queries := Random(rng, heads*dim, 1)
		if rng.IntN(4) == 0 { // probabilities of most pages are less than float32 can hold
			for i := range queries {
				queries[i] *= 500
			}
		}
		if rng.IntN(8) == 0 {
			clear(queries[:dim])
		}
		unit := 1 / math.Sqrt(float64(dim))
		sinks := make([]float64, heads)
		for i := range sinks {
			sinks[i] = math.Inf(-1)
		}
		if rng.IntN(3) == 0 { // of models that scale and bound logits otherwise
			unit = 0.1
			sinks = Random(rng, heads, 3)
			c.pages.Logits = kernels.Logits{Scale: unit, SoftCap: 2, Sinks: d.Stored(kernels.F32, sinks, heads)}
		}
		scores, probabilities, counter := d.Garbage(kvHeads, c.width), d.Garbage(heads, c.width), d.B.Place(kernels.NewTensor(kernels.I32, 1))
		q := d.Stored(kernels.F32, queries, 1, heads, dim)
		queries = q.Float64s()
		sel.EstimatePages(scores, probabilities, q, c.pages, how, counter)
		reads := 0
		for h, x := range c.pages.Heads {
			if x.Want >= x.Entries-x.From {
				continue
			}
			first := x.From / x.Size
			dims := make([]int, dim)
			size, sum := make([]float64, dim), make([]float64, dim)
			for i := range dim {
				dims[i] = i
				negative, positive := 0, 0
				for g := range group {
					v := queries[(h*group+g)*dim+i]
					size[i], sum[i] = size[i]+math.Abs(v), sum[i]+v
					if v < 0 {
						negative = 1
					} else {
						positive = 1
					}
				}
				reads += (negative + positive) * (x.Pages() - first)
			}
			if how != kernels.EstimateBound {
				slices.SortStableFunc(dims, func(a, b int) int { return -cmp.Compare(size[a], size[b]) })
				dims = dims[:x.Components]
			}
			mean := slices.Repeat([]float64{math.Inf(-1)}, x.Pages()-first)
			for g := range group {
				query := queries[(h*group+g)*dim:][:dim]
				some, all := 0.0, 0.0
				for _, v := range query {
					all += math.Abs(v)
				}
				for _, i := range dims {
					some += math.Abs(query[i])
				}
				scale := unit
				if how != kernels.EstimateBound {
					scale = unit * math.Sqrt(all/some)
				}
				if some == 0 {
					scale = 0
				}
				p, top, z := make([]float64, len(mean)), math.Inf(-1), 0.0
				for j := range p {
					logit := 0.0
					for _, i := range dims {
						lo, hi := c.bound(h, first+j, i)
						v := hi
						if how == kernels.EstimatePartial || how == kernels.EstimateSigned && sum[i] < 0 || how == kernels.EstimateBound && query[i] < 0 {
							v = lo
						}
						logit += query[i] * v * scale
					}
					if c.pages.SoftCap > 0 {
						logit = c.pages.SoftCap * math.Tanh(logit/c.pages.SoftCap)
					}
					p[j], top = logit, max(top, logit)
				}
				z = math.Exp(sinks[h*group+g] - top)
				for j := range p {
					z += math.Exp(p[j] - top)
				}
				for j := range p {
					p[j] -= top + math.Log(z)
					mean[j] = logSum(mean[j], p[j]-math.Log(float64(group)))
					p[j] = math.Exp(p[j])
				}
				row := given(sel, probabilities)[(h*group+g)*c.width+first:][:len(p)]
				compare.Close(t, fmt.Sprintf("%s: head %d query %d", name, h, g), row, p, 1e-4, compare.Floor(1e-6))
			}
			compare.Close(t, fmt.Sprintf("%s: head %d", name, h), scores.Float64s()[h*c.width+first:][:len(mean)], mean, 1e-4, compare.Floor(1e-2))
		}
		if got := int(counter.OnHost().I32()[0]); how == kernels.EstimateBound && got != reads || how != kernels.EstimateBound && got != 0 {
			t.Errorf("%s: %d numbers are counted, want %d", name, got, reads)
		}
		if t.Failed() {
			return
		}
	}
}

// logSum is the logarithm of the sum of numbers whose logarithms are given.
func logSum(a, b float64) float64 {
	if a < b {
		a, b = b, a
	}
	return a + math.Log1p(math.Exp(b-a))
}

// bestPositions are the last positions, where some are asked for, and before them the positions of
// the best pages by definition: pages are taken one after the other until they hold enough,
// and the last one taken is cut.
func bestPositions(x kernels.PageHead, scores []float32) (out []int32) {
	if x.Want < x.Entries-x.From && x.Recent > 0 {
		before := x
		before.Entries, before.Want, before.Recent = x.Entries-x.Recent, x.Want-x.Recent, 0
		out = bestPositions(before, scores)
		for j := before.Entries; j < x.Entries; j++ {
			out = append(out, int32(j))
		}
		return out
	}
	first := x.From / x.Size
	var order []int
	for p := first; p < x.Pages(); p++ {
		order = append(order, p)
	}
	rank := func(p int) float64 {
		if v := float64(scores[p]); v == v {
			return v
		}
		return math.Inf(-1)
	}
	slices.SortStableFunc(order, func(a, b int) int { return -cmp.Compare(rank(a), rank(b)) })
	for _, p := range order {
		for j := max(x.From, p*x.Size); j < min(x.Entries, (p+1)*x.Size) && len(out) < x.Want; j++ {
			out = append(out, int32(j))
		}
	}
	slices.Sort(out)
	return out
}

// testSparseSelect: bit for bit the pages of sorting, with plateaus and odd numbers,
// for pages that are short at both ends.
func testSparseSelect(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(120, 22) {
		c := newSparseCase(d, rng, 1, 1, []int{3, 40, 300, 5000}[seed%4], kernels.F32)
		entries := make([]int, len(c.past))
		for h, x := range c.pages.Heads {
			entries[h] = x.Pages()
		}
		scores, rows := d.scoreTable(rng, entries)
		most := 0
		for _, x := range c.pages.Heads {
			most = max(most, min(x.Want, x.Entries-x.From))
		}
		s := sel.SelectPages(d.B.Alloc(kernels.I32, len(entries), most+rng.IntN(3)), scores, c.pages)
		for h, got := range s.Indices() {
			if want := bestPositions(c.pages.Heads[h], rows[h]); !slices.Equal(got, want) {
				t.Fatalf("seed %d: head %d %+v: chooses %v, want %v of %v", seed, h, c.pages.Heads[h], got, want, rows[h])
			}
		}
	}
}

// testSparseMean: values are summed as on the host, and what is missing goes to
// their mean, by a query's own probabilities.
func testSparseMean(t *testing.T, d Device, sel kernels.Selector) {
	for seed, rng := range seeds(40, 23) {
		dim, group := 1+rng.IntN([]int{5, 256}[seed%2]), 1+rng.IntN(4)
		c := newSparseCase(d, rng, dim, 1, []int{4, 300}[seed%2], []kernels.DType{kernels.F32, kernels.BF16}[rng.IntN(2)])
		kvHeads, width := len(c.past), 0
		chosen, from := make([][]int32, kvHeads), make([]int, kvHeads)
		sums := d.B.Place(kernels.NewTensor(kernels.F64, kvHeads, dim))
		for h := range c.pages.Heads {
			x := &c.pages.Heads[h]
			x.Size, width = 1, max(width, x.Entries)
			idx := rng.Perm(x.Entries - x.From)[:min(x.Want, x.Entries-x.From)]
			for _, j := range idx {
				chosen[h] = append(chosen[h], int32(x.From+j))
			}
			slices.Sort(chosen[h])
			from[h] = rng.IntN(x.Entries + 1)
		}
		whole := c.pages.Heads
		part := slices.Clone(whole)
		for h := range part { // a part first, then the rest
			part[h].From, part[h].Entries = 0, max(1, from[h])
			from[h] = part[h].Entries
		}
		sel.AddValues(sums, &kernels.PageHeads{Heads: part, Pool: c.pages.Pool, Base: c.pages.Base}, c.past, make([]int, kvHeads))
		sel.AddValues(sums, c.pages, c.past, from)
		out, p := d.Stored(kernels.F32, Random(rng, kvHeads*group*dim, 1), 1, kvHeads*group*dim), d.Stored(kernels.F32, Random(rng, kvHeads*group*width, 0.1), kvHeads*group, width)
		before, probabilities, got := out.Float64s(), given(sel, p), sums.Float64s()
		sel.ShareMean(out, p, kernels.HostSelection(chosen), sums, c.pages)
		after := out.Float64s()
		for h, x := range whole {
			sum := make([]float64, dim)
			for _, r := range c.rows[h] {
				for i := range sum {
					sum[i] += c.v[h][r*dim+i]
				}
			}
			if !slices.Equal(got[h*dim:][:dim], sum) {
				t.Fatalf("seed %d: head %d: sums %v, want %v", seed, h, got[h*dim:][:dim], sum)
			}
			for g := h * group; g < (h+1)*group; g++ {
				alpha, want := 0.0, slices.Clone(before[g*dim:][:dim])
				for _, j := range chosen[h] {
					alpha += probabilities[g*width+int(j)]
				}
				for i := range want {
					if x.Want < x.Entries-x.From {
						want[i] = alpha*want[i] + (1-alpha)*sum[i]/float64(x.Entries)
					}
				}
				compare.Close(t, fmt.Sprintf("seed %d: query %d", seed, g), after[g*dim:][:dim], want, 1e-5, compare.Floor(1))
			}
		}
	}
}

// given are the probabilities of queries; the host's estimates are their logarithms.
func given(sel kernels.Selector, t *kernels.Tensor) []float64 {
	p := t.Float64s()
	if !sel.OwnMemory() {
		for i, v := range p {
			p[i] = math.Exp(v)
		}
	}
	return p
}
