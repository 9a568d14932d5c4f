package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model"
)

// deviceEstimator is an estimator that a device knows.
type deviceEstimator interface {
	estimator
	onDevice() kernels.Estimate
}

// deviceSparse is what a sparse policy knows of the cache of a device, and keeps there:
// the host knows how much there is to choose from, and nothing of what was chosen.
//
// Its steps can be recorded: what it keeps from step to step is allocated on d, and
// operations of a step go to the step's own backend.
type deviceSparse struct {
	d         kernels.Selector
	estimator deviceEstimator // nil chooses by the attention itself, with the whole budget
	budget    int
	bounds    int                  // kept per page: 0 nothing, 1 lower ones, 2 both
	layers    [][]devicePages      // [layer][kvHead]; nil in layers that are left dense
	pools     []*kernels.Selection // by layer; nil without
	base      [][]int              // rows of the cache at the start, by layer and head, where there are pools
	sums      []*kernels.Tensor    // F64 [kvHeads, headDim] of values, by layer; nil without reallocation

	scores, probabilities, ids, all *kernels.Tensor // of the layer whose turn it is

	steps   int               // so far
	counts  []*kernels.Tensor // I32 [countRows] each: numbers that estimates have read, where queries decide how many
	counted []int             // the steps of counts
}

// devicePages are the positions of one KV head, which are cut into pages of size.
type devicePages struct {
	size   int
	most   int             // positions there will be once the response is as long as it may get, as far as is known
	bounds *kernels.Tensor // F32 [bounds, headDim, capacity]
	known  int             // positions that the bounds hold
	summed int             // positions whose values the sums hold
	pool   []int32
	base   int
}

func newDeviceSparse(d kernels.Selector, s *Session, e deviceEstimator, dense, size, bounds int) *deviceSparse {
	st := &deviceSparse{d: d, estimator: e, budget: s.Prompt.Budget, bounds: bounds, layers: make([][]devicePages, s.Cache.Layers())}
	kvHeads := s.Cache.KVHeads()
	for l := dense; l < len(st.layers); l++ {
		st.layers[l] = make([]devicePages, kvHeads)
		for h := range st.layers[l] {
			st.layers[l][h].size = size
		}
	}
	if s.Pool != nil {
		st.pools, st.base = make([]*kernels.Selection, len(st.layers)), make([][]int, len(st.layers))
		for l := range st.layers {
			st.pools[l] = s.kept[l]
			for h := range kvHeads {
				st.base[l] = append(st.base[l], s.Cache.Entries(l, h))
				if l >= dense {
					x := &st.layers[l][h]
					x.pool, x.base = s.Pool[l][h], st.base[l][h]
				}
			}
		}
	}
	for l := range st.layers {
		for h := range st.layers[l] {
			x := &st.layers[l][h]
			n := x.positions(s.Cache.Entries(l, h))
			x.most = n + s.Prompt.MaxNew
			if bounds > 0 {
				x.room(d, bounds, s.Prompt.Config.HeadDim, pagesOf(n, size, 0))
			}
		}
	}
	return st
}

// positions is the number of positions among so many entries of the cache, or before the
// entry of that index.
func (x *devicePages) positions(entries int) int {
	if x.pool == nil {
		return entries
	}
	if entries >= x.base {
		return len(x.pool) + entries - x.base
	}
	n, _ := slices.BinarySearch(x.pool, int32(entries))
	return n
}

// room gives the bounds room for so many pages.
func (x *devicePages) room(d kernels.Selector, bounds, dim, pages int) {
	if x.bounds == nil || x.bounds.Shape[2] < pages {
		x.bounds, x.known = d.Alloc(kernels.F32, bounds, dim, pageRoom(pages, x.size)), 0
	}
}

// growPositions is what pages have room for beside an eighth of what there is.
const growPositions = 32

// pageRoom is the room for so many pages of size and what comes.
func pageRoom(pages, size int) int { return pages + pages/8 + (growPositions+size-1)/size }

// scratch is t, or a larger tensor where that is too small for rows of width.
func scratch(d kernels.Selector, t *kernels.Tensor, dtype kernels.DType, rows, width int) *kernels.Tensor {
	if t != nil && t.Dim0() == rows && t.Width() >= width {
		return t
	}
	return d.Alloc(dtype, rows, pageRoom(width, 1))
}

func (st *deviceSparse) Bytes() int64 {
	var n int64
	for _, heads := range st.layers {
		for _, x := range heads {
			if x.bounds != nil {
				n += int64(x.bounds.Bytes())
			}
		}
	}
	for _, t := range slices.Concat(st.sums, []*kernels.Tensor{st.scores, st.probabilities, st.ids, st.all}, st.counts) {
		if t != nil {
			n += int64(t.Bytes())
		}
	}
	return n
}

// onDeviceAlone tells that Select reads nothing of the device.
func (*deviceSparse) onDeviceAlone() bool { return true }

func (st *deviceSparse) Select(s *model.SparseStep) (int64, error) {
	if s.Layer == 0 {
		st.steps++
	}
	heads := st.layers[s.Layer]
	if heads == nil {
		return 0, nil
	}
	d, dim := s.Backend().Selector(), s.Queries.Shape[2]
	pages := &kernels.PageHeads{Heads: make([]kernels.PageHead, len(heads))}
	if st.pools != nil {
		pages.Pool, pages.Base = st.pools[s.Layer], st.base[s.Layer]
	}
	// What is estimated is what is seen but for entries that are chosen anyway.
	estimated := &kernels.PageHeads{Heads: make([]kernels.PageHead, len(heads)), Pool: pages.Pool, Base: pages.Base}
	dense, estimates, read := st.pools == nil, false, 0
	from := make([]int, len(heads)) // first pages whose bounds are not there
	for h := range heads {
		x := &heads[h]
		n := x.positions(s.Cache.Entries(s.Layer, h))
		p := &pages.Heads[h]
		*p = kernels.PageHead{From: x.positions(s.First[h]), Entries: n, Want: n, Size: 1}
		estimated.Heads[h] = *p
		seen := n - p.From
		if seen <= st.budget {
			continue
		}
		dense = false
		if st.estimator == nil {
			p.Want, estimates = st.budget, true
			continue
		}
		half := st.budget / 2
		want, room := st.budget-half, half*2*dim
		if room == 0 {
			p.From = n - want
			estimated.Heads[h] = *p
			continue
		}
		if st.sums != nil { // it is read, too
			room -= dim
			read += dim
		}
		r := st.estimator.reach(sight{p.From, n, max(n, x.most), x.size, dim}, room, want)
		if r.size != x.size {
			x.size, x.known = r.size, 0
		}
		p.From, p.Want, p.Recent, p.Size, p.Components = r.start, want, r.recent, x.size, r.components
		estimates = estimates || want < n-r.start
		x.room(st.d, st.bounds, dim, p.Pages())
		p.Bounds, from[h] = x.bounds, x.known/x.size
		x.known = n
		e := &estimated.Heads[h]
		if *e = *p; r.decided(want) && st.sums == nil {
			e.Want, e.Recent = n, 0 // all of it: nothing is estimated
			continue
		}
		e.Entries, e.Want, e.Recent = r.end, want-(n-r.end), 0
		read += r.read
	}
	for h := range heads {
		if pages.Heads[h].Bounds == nil {
			from[h] = pages.Heads[h].Pages()
		}
	}
	if dense {
		return int64(read) * floatBytes, nil
	}
	most, width := 0, 0
	for h := range heads {
		p := &pages.Heads[h]
		most, width = max(most, min(p.Want, p.Entries-p.From)), max(width, p.Pages())
	}
	st.scores = scratch(st.d, st.scores, kernels.F32, len(heads), width)
	st.ids = scratch(st.d, st.ids, kernels.I32, len(heads), most)
	if slices.ContainsFunc(pages.Heads, func(p kernels.PageHead) bool { return p.Bounds != nil }) {
		d.PageBounds(pages, s.Cache.View(s.Layer), from)
	}
	switch {
	case !estimates:
	case st.estimator == nil:
		st.attention(d, s, pages)
	default:
		queries := s.Queries.Shape[1]
		if st.probabilities == nil || st.probabilities.Width() != st.scores.Width() {
			st.probabilities = st.d.Alloc(kernels.F32, queries, st.scores.Width())
		}
		how := st.estimator.onDevice()
		var counter *kernels.Tensor
		if how == kernels.EstimateBound {
			counter = st.counter()
		}
		d.EstimatePages(st.scores, st.probabilities, s.Queries, estimated, how, counter)
	}
	chosen := d.SelectPages(st.ids, st.scores, pages)
	if st.sums != nil && estimates {
		st.share(d, s, chosen, pages)
	}
	s.Selection = chosen
	if pages.Pool != nil {
		s.Selection = d.Compose(pages.Pool, chosen, pages.Base)
	}
	return int64(read) * floatBytes, nil
}

// countRows is how many estimates are counted in one tensor.
const countRows = 256

// counter is where one estimate is counted.
func (st *deviceSparse) counter() *kernels.Tensor {
	at := len(st.counted) % countRows
	if at == 0 {
		st.counts = append(st.counts, st.d.Place(kernels.NewTensor(kernels.I32, countRows)))
	}
	st.counted = append(st.counted, st.steps-1)
	return st.counts[len(st.counts)-1].Rows(at, at+1)
}

// readLater are the bytes that the estimates of every step have read but for what Select
// has told; nil of none.
func (st *deviceSparse) readLater() []int64 {
	if len(st.counted) == 0 {
		return nil
	}
	out := make([]int64, st.steps)
	for i := 0; i < len(st.counted); i += countRows {
		steps := st.counted[i:min(len(st.counted), i+countRows)]
		for j, n := range st.counts[i/countRows].Rows(0, len(steps)).OnHost().I32() {
			out[steps[j]] += int64(n) * floatBytes
		}
	}
	return out
}

// attention scores entries by the step's attention with nothing left out.
func (st *deviceSparse) attention(d kernels.Selector, s *model.SparseStep, pages *kernels.PageHeads) {
	entries := make([]int, len(pages.Heads))
	for h := range entries {
		entries[h] = s.Cache.Entries(s.Layer, h)
	}
	scores := s.Scores()
	to := st.scores
	if pages.Pool != nil {
		st.all = scratch(st.d, st.all, kernels.F32, len(entries), scores.Width())
		to = st.all
	}
	d.Scores(to, entries, []kernels.ScoreTerm{{LogScore: scores, Group: kernels.GroupLogMean}}, false)
	if pages.Pool != nil {
		every := make([][]int32, len(entries))
		for h, p := range pages.Heads {
			every[h] = upTo(0, p.Entries)
		}
		d.PickScores(st.scores, to, d.Compose(pages.Pool, kernels.HostSelection(every), pages.Base))
	}
}

// keepMeans begins to sum the values of the cache.
func (st *deviceSparse) keepMeans(c *model.Cache) {
	dim := c.View(0)[0].V.Width()
	for range st.layers {
		st.sums = append(st.sums, st.d.Place(kernels.NewTensor(kernels.F64, c.KVHeads(), dim)))
	}
}

// share gives the attention that a step's estimate misses to the mean value, in heads
// that see everything.
func (st *deviceSparse) share(d kernels.Selector, s *model.SparseStep, chosen *kernels.Selection, pages *kernels.PageHeads) {
	sums, from := st.sums[s.Layer], make([]int, len(pages.Heads))
	own := &kernels.PageHeads{Heads: slices.Clone(pages.Heads), Pool: pages.Pool, Base: pages.Base}
	for h := range own.Heads {
		x, p := &st.layers[s.Layer][h], &own.Heads[h]
		from[h], x.summed = x.summed, p.Entries
		if s.First[h] > 0 {
			p.Want = p.Entries // and stays as it is
		}
	}
	d.AddValues(sums, own, s.Cache.View(s.Layer), from)
	probabilities := st.probabilities
	s.After = func(out *kernels.Tensor) { d.ShareMean(out, probabilities, chosen, sums, own) }
}
