package eviction

import (
	"math"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// floatBytes is the size of the numbers that page indices hold.
const floatBytes = 4

// pageIndex is what a sparse policy knows of one KV head's keys: their minima and
// maxima by dimension over pages of consecutive entries. Numbers of one dimension
// lie together, so that an estimate from a few dimensions reads these only.
type pageIndex struct {
	most   int         // entries there will be once the response is as long as it may get, as far as is known
	size   int         // entries per page
	idx    []int32     // the cache's indices of the entries; page i has idx[i·size:(i+1)·size]
	lo, hi [][]float32 // [dim][page]; hi is nil where pages have one entry, both where nothing is kept
}

// newPageIndex reads the keys of a head: of the entries in pool, or of all where
// it is nil. bounds tells how much is kept: 0 nothing, 1 only lo, 2 lo and hi.
func newPageIndex(c *model.Cache, layer, head int, pool []int32, size, bounds int) *pageIndex {
	x := &pageIndex{size: size}
	keys := c.View(layer)[head].K
	dim := keys.Width()
	if bounds >= 1 {
		x.lo = make([][]float32, dim)
	}
	if bounds >= 2 {
		x.hi = make([][]float32, dim)
	}
	if pool == nil {
		pool = upTo(0, c.Entries(layer, head))
	}
	var host []float32
	if bounds > 0 {
		host = keys.Float32s()
	}
	for _, j := range pool {
		if bounds > 0 {
			x.add(j, host[int(j)*dim:][:dim])
		} else {
			x.add(j, nil)
		}
	}
	return x
}

// pages is the number of pages, the last of which may be incomplete.
func (x *pageIndex) pages() int { return (len(x.idx) + x.size - 1) / x.size }

// add appends an entry.
func (x *pageIndex) add(index int32, key []float32) {
	fresh := len(x.idx)%x.size == 0
	x.idx = append(x.idx, index)
	last := x.pages() - 1
	for i := range x.lo {
		if fresh {
			x.lo[i] = append(x.lo[i], key[i])
		} else {
			x.lo[i][last] = min(x.lo[i][last], key[i])
		}
	}
	for i := range x.hi {
		if fresh {
			x.hi[i] = append(x.hi[i], key[i])
		} else {
			x.hi[i][last] = max(x.hi[i][last], key[i])
		}
	}
}

// double joins neighbouring pages.
func (x *pageIndex) double() {
	pages := x.pages()
	for i := range x.lo {
		lo, hi := x.lo[i], x.hi[i]
		for p := 0; p < pages; p += 2 {
			q := min(p+1, pages-1)
			lo[p/2], hi[p/2] = min(lo[p], lo[q]), max(hi[p], hi[q])
		}
		x.lo[i], x.hi[i] = lo[:(pages+1)/2], hi[:(pages+1)/2]
	}
	x.size *= 2
}

// bytes is the memory that the index holds.
func (x *pageIndex) bytes() int64 {
	n := int64(cap(x.idx)) * 4
	for i := range x.lo {
		n += int64(cap(x.lo[i])) * floatBytes
	}
	for i := range x.hi {
		n += int64(cap(x.hi[i])) * floatBytes
	}
	return n
}

// top are the indices of the want best entries among the positions [from, to) of idx.
// Entries have the scores of their pages, scores[0] being that of the page of
// position from; of equal scores the lower position wins.
func (x *pageIndex) top(scores []float32, from, to, want int) []int32 {
	first := from / x.size
	scores = scores[:pagesOf(to, x.size, from)]
	span := func(page int32) (int, int) { // positions in idx
		at := (first + int(page)) * x.size
		return max(from, at), min(to, at+x.size)
	}
	want = min(want, to-from)
	var chosen []int32
	total := 0
	for n := (want + x.size - 1) / x.size; ; n++ { // pages at the ends may be short
		chosen, total = kernels.TopK(scores, n), 0
		for _, p := range chosen {
			a, b := span(p)
			total += b - a
		}
		if total >= want {
			break
		}
	}
	worst := 0 // its entries are cut from the end
	for i, p := range chosen {
		if scores[p] <= scores[chosen[worst]] {
			worst = i
		}
	}
	out := make([]int32, 0, want)
	for i, p := range chosen {
		a, b := span(p)
		if i == worst {
			b -= total - want
		}
		out = append(out, x.idx[a:b]...)
	}
	return out
}

// sparseState chooses by estimated scores. Half of the budget is for the traffic
// of estimation, the other half for attention (RocketKV, arXiv:2502.14051, §3.6, app. A.3).
type sparseState struct {
	estimator
	budget int
	heads  [][]*pageIndex // [layer][kvHead]; nil in layers that are left dense
	pooled bool
	mean   [][]*meanValue // [layer][kvHead]; nil without reallocation
}

// sparseLayout is what a sparse policy knows of keys: bounds of pages of size in the
// layers from dense on.
type sparseLayout struct{ dense, size, bounds int }

// layouter is a SparseDecoder that keeps pages. s needs a prompt and a cache.
type layouter interface {
	layout(s *Session) sparseLayout
}

// startSparse begins on the device where the cache is on one, else on the host.
func startSparse(s *Session, e deviceEstimator, dense, size, bounds int) SparseState {
	if d := deviceOf(s.Cache); d != nil {
		return newDeviceSparse(d, s, e, dense, size, bounds)
	}
	return newSparseState(s, e, dense, size, bounds)
}

// newSparseState indexes what the session's cache holds, in the layers from dense
// on.
func newSparseState(s *Session, e estimator, dense, size, bounds int) *sparseState {
	st := &sparseState{estimator: e, budget: s.Prompt.Budget, pooled: s.Pool != nil}
	st.heads = make([][]*pageIndex, s.Cache.Layers())
	for l := dense; l < len(st.heads); l++ {
		for h := range s.Cache.KVHeads() {
			var pool []int32
			if s.Pool != nil {
				pool = s.Pool[l][h]
			}
			x := newPageIndex(s.Cache, l, h, pool, size, bounds)
			x.most = len(x.idx) + s.Prompt.MaxNew
			st.heads[l] = append(st.heads[l], x)
		}
	}
	return st
}

func (st *sparseState) Bytes() int64 {
	var n int64
	for l := range st.heads {
		for h, x := range st.heads[l] {
			n += x.bytes()
			if st.mean != nil {
				n += int64(len(st.mean[l][h].sum)) * 8
			}
		}
	}
	return n
}

func (st *sparseState) Select(s *model.SparseStep) (int64, error) {
	heads := st.heads[s.Layer]
	if heads == nil {
		return 0, nil
	}
	queries := groupQueries(s.Queries, len(heads))
	choice, dense, read := make([][]int32, len(heads)), !st.pooled, 0
	var share [][]float64 // of every query's estimated probability, by KV head; nil: all
	for h, x := range heads {
		x.add(int32(s.Cache.Entries(s.Layer, h)-1), s.Key(h))
		if st.mean != nil {
			st.mean[s.Layer][h].add(s.Value(h))
		}
		from, _ := slices.BinarySearch(x.idx, int32(s.First[h]))
		if len(x.idx)-from <= st.budget {
			choice[h] = x.idx[from:]
			continue
		}
		dense = false
		dim := s.Queries.Shape[2]
		half := st.budget / 2
		want, room := st.budget-half, half*2*dim
		if room == 0 {
			choice[h] = x.idx[len(x.idx)-want:]
			continue
		}
		if st.mean != nil { // it is read, too
			room -= dim
			read += dim
		}
		n := len(x.idx)
		r := st.reach(sight{from, n, max(n, x.most), x.size, dim}, room, want)
		for x.size < r.size {
			x.double()
		}
		recent := x.idx[n-r.recent:]
		if r.decided(want) && st.mean == nil {
			choice[h] = recent
			continue
		}
		logits, numbers := st.estimate(x, queries[h], r)
		read += numbers
		choice[h] = append(x.top(rank(logits), r.start, n-r.recent, want-r.recent), recent...)
		if st.mean != nil && s.First[h] == 0 {
			if share == nil {
				share = make([][]float64, len(heads))
			}
			for _, p := range logits { // logarithms of probabilities by now
				sum := 0.0
				for _, j := range choice[h] { // pages are entries here
					at, _ := slices.BinarySearch(x.idx, j)
					sum += math.Exp(float64(p[at-r.start]))
				}
				share[h] = append(share[h], sum)
			}
		}
	}
	if !dense {
		s.Entries = choice
	}
	if share != nil {
		means := st.mean[s.Layer]
		s.After = func(out *kernels.Tensor) { reallocate(out, share, means) }
	}
	return int64(read) * floatBytes, nil
}

// groupQueries are the queries of a step by KV head.
func groupQueries(q *kernels.Tensor, kvHeads int) [][][]float32 {
	flat, dim := q.Float32s(), q.Shape[2]
	out := make([][][]float32, kvHeads)
	group := q.Shape[1] / kvHeads
	for h := range q.Shape[1] {
		out[h/group] = append(out[h/group], flat[h*dim:][:dim])
	}
	return out
}

// meanValue is the running mean of the values of a head.
type meanValue struct {
	sum []float64
	n   int
}

func (m *meanValue) add(v []float64) {
	for i, x := range v {
		m.sum[i] += x
	}
	m.n++
}

// reallocate gives what was not attended to the mean value: a head's output y
// becomes α·y + (1−α)·v̄.
func reallocate(out *kernels.Tensor, share [][]float64, means []*meanValue) {
	dim, at := len(means[0].sum), 0
	y := out.Float64s()
	for h, m := range means {
		for _, alpha := range share[h] {
			for i := range dim {
				y[at+i] = alpha*y[at+i] + (1-alpha)*m.sum[i]/float64(m.n)
			}
			at += dim
		}
		if share[h] == nil {
			at += len(y) / len(means)
		}
	}
	kernels.Convert(out, kernels.FromF64(y, out.Shape...))
}
