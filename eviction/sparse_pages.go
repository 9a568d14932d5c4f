package eviction

import (
	"slices"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// floatBytes is the size of the numbers that bounds hold.
const floatBytes = 4

// SparsePages is what a sparse policy knows of the cache, and keeps in its memory: minima and
// maxima of keys by dimension over pages of consecutive entries. Numbers of one dimension lie
// together, so that an estimate from a few dimensions reads these only. It chooses by
// estimated scores: half of the budget is for the traffic of estimation, the other half for
// attention (RocketKV §3.6, app. A.3). On a device the host knows how much there is to choose
// from, and nothing of the choice.
//
// Its steps can be recorded: what it keeps from step to step is allocated by a pageScratch's ops, and
// operations of a step go to the step's own backend.
type SparsePages struct {
	on        []*pageScratch // by layer
	ownMemory bool           // of the devices of all layers
	estimator Estimator      // nil chooses by the attention itself, with the whole budget
	budget    int
	bounds    int                  // kept per page: 0 nothing, 1 lower ones, 2 both
	layers    [][]headPages        // [layer][kvHead]; nil in layers that are left dense
	pooled    bool                 // only a pool may be attended to
	pools     []*kernels.Selection // by layer: the positions at the start; nil where these are the cache's own
	base      [][]int              // rows of the cache at the start, by layer and head, where there are pools
	sums      []*kernels.Tensor    // F64 [kvHeads, headDim] of values, by layer; nil without reallocation

	first, steps int // layer that a step begins with, steps so far
}

// pageScratch is what the layers on a device share.
type pageScratch struct {
	ops kernels.Selector

	scores, probabilities, ids, all *kernels.Tensor // of the layer whose turn it is

	counts  []*kernels.Tensor // I32 [countRows] each: numbers that estimates have read, where queries decide how many
	counted []int             // the steps of counts
}

// headPages are the positions of one KV head, which are cut into pages of size.
type headPages struct {
	size   int
	most   int             // positions there will be once the response is as long as it may get, as far as is known
	bounds *kernels.Tensor // F32 [bounds, headDim, capacity]
	known  int             // positions that the bounds hold
	summed int             // positions whose values the sums hold
	pool   []int32
	base   int
}

// NewSparsePages indexes what the session's cache holds, in the layers that are decided about but for the first dense, in pages of
// size entries: bounds is 0 to keep nothing of keys, 1 for lower bounds, 2 for both. A nil e
// chooses by the attention itself.
func NewSparsePages(s *Session, e Estimator, dense, size, bounds int) *SparsePages {
	return newSparsePagesBy(func(layer int) kernels.Selector { return s.Cache.On(layer).Selector() }, s, e, dense, size, bounds)
}

// newSparsePagesBy is NewSparsePages by the operations of each layer.
func newSparsePagesBy(ops func(layer int) kernels.Selector, s *Session, e Estimator, dense, size, bounds int) *SparsePages {
	st := &SparsePages{
		ownMemory: ops(0).OwnMemory(), estimator: e, budget: s.Prompt.Budget, bounds: bounds, pooled: s.Pool != nil,
		layers: make([][]headPages, s.Cache.Layers()), first: s.Prompt.Config.FirstAttention(),
	}
	for l := range st.layers {
		if own := ops(l); l == 0 || own != st.on[l-1].ops {
			st.on = append(st.on, &pageScratch{ops: own})
		} else {
			st.on = append(st.on, st.on[l-1])
		}
	}
	lists := st.pooled || !st.ownMemory // on the host, indices of the cache cost nothing to follow
	if lists {
		st.pools, st.base = make([]*kernels.Selection, len(st.layers)), make([][]int, len(st.layers))
	}
	decided := s.Prompt.layers()
	for _, l := range decided[min(dense, len(decided)):] {
		st.layers[l] = make([]headPages, s.Cache.KVHeads())
		pools := make([][]int32, len(st.layers[l]))
		for h := range pools {
			x := &st.layers[l][h]
			x.size = size
			n := s.Cache.Entries(l, h)
			if st.pooled {
				pools[h] = s.Pool[l][h]
			}
			if !st.ownMemory {
				pools[h] = listed(pools[h], st.pooled, n)
			}
			if lists {
				x.pool, x.base = pools[h], n
				st.base[l] = append(st.base[l], n)
			}
			n = x.positions(n)
			x.most = n + s.Prompt.MaxNew
			if bounds > 0 {
				st.room(l, x, s.Prompt.Config.HeadDim, pagesOf(n, size, 0))
			}
		}
		switch {
		case !lists:
		case st.ownMemory:
			st.pools[l] = s.kept[l]
		default:
			st.pools[l] = kernels.HostSelection(pools)
		}
		if bounds > 0 {
			st.index(s.Cache, l)
		}
	}
	return st
}

// index takes in the keys that a layer holds, so that a step has only its own to add.
func (st *SparsePages) index(c *kvcache.Cache, l int) {
	heads := st.layers[l]
	pages, from := &kernels.PageHeads{Heads: make([]kernels.PageHead, len(heads))}, make([]int, len(heads))
	if st.pools != nil {
		pages.Pool, pages.Base = st.pools[l], st.base[l]
	}
	for h := range heads {
		x := &heads[h]
		n := x.positions(c.Entries(l, h))
		if n == 0 {
			return
		}
		pages.Heads[h] = kernels.PageHead{Entries: n, Want: n, Size: x.size, Bounds: x.bounds}
	}
	st.on[l].ops.PageBounds(pages, c.View(l), from)
	for h := range heads {
		heads[h].known = pages.Heads[h].Entries
	}
}

// listed is a list of its own of a pool, or of all of n entries, with the room for what comes
// that a list has which grew one by one: Bytes counts it.
func listed(pool []int32, pooled bool, n int) (list []int32) {
	if !pooled {
		pool = upTo(0, n)
	}
	list = make([]int32, len(pool), grownTo(0, len(pool)))
	copy(list, pool)
	return list
}

// positions is the number of positions among so many entries of the cache, or before the
// entry of that index.
func (x *headPages) positions(entries int) int {
	if x.pool == nil {
		return entries
	}
	if entries >= x.base {
		return len(x.pool) + entries - x.base
	}
	n, _ := slices.BinarySearch(x.pool, int32(entries))
	return n
}

// room gives the bounds of a layer's head room for so many pages.
func (st *SparsePages) room(layer int, x *headPages, dim, pages int) {
	if x.bounds == nil || x.bounds.Shape[2] < pages {
		capacity := pageRoom(pages, x.size)
		if !st.ownMemory {
			capacity = grownTo(x.capacity(), pages)
		}
		x.bounds, x.known = st.on[layer].ops.Alloc(kernels.F32, st.bounds, dim, capacity), 0
	}
}

func (x *headPages) capacity() int {
	if x.bounds == nil {
		return 0
	}
	return x.bounds.Shape[2]
}

// grownTo is the capacity of a list on the host that has grown from a full one to n numbers.
func grownTo(capacity, n int) int {
	list := make([]float32, capacity)
	for len(list) < n {
		list = append(list, 0)
	}
	return cap(list)
}

// reserve makes room for the bounds of so many entries more.
func (st *SparsePages) reserve(c *kvcache.Cache, entries int) {
	for l := range st.layers {
		for h := range st.layers[l] {
			if x := &st.layers[l][h]; st.bounds > 0 {
				st.room(l, x, x.bounds.Shape[1], pagesOf(x.positions(c.Entries(l, h))+entries, x.size, 0))
			}
		}
	}
}

// growPositions is the room of pages beside an eighth of their entries.
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

func (st *SparsePages) Bytes() int64 {
	var n int64
	for _, heads := range st.layers {
		for _, x := range heads {
			if x.bounds != nil {
				n += int64(x.bounds.Bytes())
			}
			if !st.ownMemory {
				n += int64(cap(x.pool)) * 4
			}
		}
	}
	own := slices.Clone(st.sums)
	for _, on := range st.devices() {
		own = append(append(own, on.scores, on.probabilities, on.ids, on.all), on.counts...)
	}
	for _, t := range own {
		if t != nil {
			n += int64(t.Bytes())
		}
	}
	return n
}

// devices are what the layers share, of every device once.
func (st *SparsePages) devices() []*pageScratch { return slices.Compact(slices.Clone(st.on)) }

// Recordable implements SparseState.
func (st *SparsePages) Recordable() bool { return st.ownMemory }

func (st *SparsePages) Select(s *runner.SparseStep) (int64, error) {
	if s.Reader == st.first {
		st.steps++
	}
	if st.layers[s.Layer] == nil {
		return 0, nil
	}
	d := st.on[s.Layer].ops
	if st.Recordable() {
		d = s.Backend().Selector()
	}
	c := st.reachable(s)
	estimation := int64(c.read) * floatBytes
	if c.dense {
		return estimation, nil
	}
	on, pages := st.on[s.Layer], c.pages
	most, width := 0, 0
	for h := range pages.Heads {
		p := &pages.Heads[h]
		most, width = max(most, min(p.Want, p.Entries-p.From)), max(width, p.Pages())
	}
	on.scores = scratch(on.ops, on.scores, kernels.F32, len(pages.Heads), width)
	on.ids = scratch(on.ops, on.ids, kernels.I32, len(pages.Heads), most)
	if slices.ContainsFunc(pages.Heads, func(p kernels.PageHead) bool { return p.Bounds != nil }) {
		d.PageBounds(pages, s.Cache.View(s.Layer), c.from)
	}
	if c.estimates {
		st.estimate(d, s, c)
	}
	chosen := d.SelectPages(on.ids, on.scores, pages)
	if st.sums != nil && c.estimates {
		st.shareMissing(d, s, chosen, pages)
	}
	s.Selection = chosen
	if pages.Pool != nil {
		s.Selection = d.Compose(pages.Pool, chosen, pages.Base)
	}
	return estimation, nil
}

// reachable is what a step may choose, and what of it is estimated: what is seen but for entries that are chosen anyway.
type reachable struct {
	pages, estimated *kernels.PageHeads
	from             []int // by head, the first page whose bounds are not there
	dense            bool  // every head has all that it sees
	estimates        bool
	read             int // numbers, to estimate
}

func (st *SparsePages) reachable(s *runner.SparseStep) *reachable {
	n := len(st.layers[s.Layer])
	c := &reachable{pages: &kernels.PageHeads{Heads: make([]kernels.PageHead, n)}, from: make([]int, n), dense: !st.pooled}
	if st.pools != nil {
		c.pages.Pool, c.pages.Base = st.pools[s.Layer], st.base[s.Layer]
	}
	c.estimated = &kernels.PageHeads{Heads: make([]kernels.PageHead, n), Pool: c.pages.Pool, Base: c.pages.Base}
	for h := range n {
		st.reach(s, c, h)
		if p := &c.pages.Heads[h]; p.Bounds == nil {
			c.from[h] = p.Pages()
		}
	}
	return c
}

// reach is reachable for one head.
func (st *SparsePages) reach(s *runner.SparseStep, c *reachable, h int) {
	x, dim := &st.layers[s.Layer][h], s.Queries.Shape[2]
	n := x.positions(s.Cache.Entries(s.Layer, h))
	p, e := &c.pages.Heads[h], &c.estimated.Heads[h]
	*p = kernels.PageHead{From: x.positions(s.First[h]), Entries: n, Want: n, Size: 1}
	*e = *p
	if n-p.From <= st.budget {
		return
	}
	c.dense = false
	if st.estimator == nil {
		p.Want, c.estimates = st.budget, true
		return
	}
	half := st.budget / 2
	want, room := st.budget-half, half*2*dim
	if room == 0 {
		p.From = n - want
		*e = *p
		return
	}
	if st.sums != nil { // it is read, too
		room -= dim
		c.read += dim
	}
	r := st.estimator.Reach(Sight{p.From, n, max(n, x.most), x.size, dim}, room, want)
	if r.Size != x.size {
		x.size, x.known = r.Size, 0
	}
	p.From, p.Want, p.Recent, p.Size, p.Components = r.Start, want, r.Recent, x.size, r.Components
	c.estimates = c.estimates || want < n-r.Start
	st.room(s.Layer, x, dim, p.Pages())
	p.Bounds, p.Known, c.from[h] = x.bounds, x.known, x.known/x.size
	x.known = n
	if *e = *p; r.decided(want) && st.sums == nil {
		e.Want, e.Recent = n, 0 // all of it: nothing is estimated
		return
	}
	e.Entries, e.Want, e.Recent = r.End, want-(n-r.End), 0
	c.read += r.Read
}

// estimate scores the pages of a step.
func (st *SparsePages) estimate(d kernels.Selector, s *runner.SparseStep, c *reachable) {
	if st.estimator == nil {
		st.attention(d, s, c.pages)
		return
	}
	on := st.on[s.Layer]
	if on.probabilities == nil || on.probabilities.Width() != on.scores.Width() {
		on.probabilities = on.ops.Alloc(kernels.F32, s.Queries.Shape[1], on.scores.Width())
	}
	c.estimated.Logits = s.Logits()
	var counter *kernels.Tensor
	how := st.estimator.How()
	if how == kernels.EstimateBound {
		counter = on.counter(st.steps - 1)
	}
	d.EstimatePages(on.scores, on.probabilities, s.Queries, c.estimated, how, counter)
}

// countRows is how many estimates are counted in one tensor.
const countRows = 256

// counter is where one estimate of a step is counted.
func (on *pageScratch) counter(step int) *kernels.Tensor {
	at := len(on.counted) % countRows
	if at == 0 {
		on.counts = append(on.counts, on.ops.Place(kernels.NewTensor(kernels.I32, countRows)))
	}
	on.counted = append(on.counted, step)
	return on.counts[len(on.counts)-1].Rows(at, at+1)
}

// Estimated implements SparseState: what queries decide is counted where they lie.
func (st *SparsePages) Estimated() []int64 {
	var out []int64
	for _, on := range st.devices() {
		if len(on.counted) > 0 && out == nil {
			out = make([]int64, st.steps)
		}
		for i := 0; i < len(on.counted); i += countRows {
			steps := on.counted[i:min(len(on.counted), i+countRows)]
			for j, n := range on.counts[i/countRows].Rows(0, len(steps)).OnHost().I32() {
				out[steps[j]] += int64(n) * floatBytes
			}
		}
	}
	return out
}

// attention scores entries by the step's attention with nothing left out.
func (st *SparsePages) attention(d kernels.Selector, s *runner.SparseStep, pages *kernels.PageHeads) {
	entries, scores, on := entriesOf(s.Cache, s.Layer), s.Scores(), st.on[s.Layer]
	to := on.scores
	if pages.Pool != nil {
		on.all = scratch(on.ops, on.all, kernels.F32, len(entries), scores.Width())
		to = on.all
	}
	d.Scores(to, entries, []kernels.ScoreTerm{{LogScore: scores, Group: kernels.GroupLogMean}}, false)
	if pages.Pool != nil {
		every := make([][]int32, len(entries))
		for h, p := range pages.Heads {
			every[h] = upTo(0, p.Entries)
		}
		d.Pick(on.scores, to, d.Compose(pages.Pool, kernels.HostSelection(every), pages.Base))
	}
}

// keepMeans begins to sum the values of the cache.
func (st *SparsePages) keepMeans(c *kvcache.Cache) {
	dim := c.View(0)[0].V.Width()
	for _, on := range st.on {
		st.sums = append(st.sums, on.ops.Place(kernels.NewTensor(kernels.F64, c.KVHeads(), dim)))
	}
}

// shareMissing gives the attention that a step's estimate misses to the mean value, in heads
// that see everything.
func (st *SparsePages) shareMissing(d kernels.Selector, s *runner.SparseStep, chosen *kernels.Selection, pages *kernels.PageHeads) {
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
	probabilities := st.on[s.Layer].probabilities
	s.After = func(out *kernels.Tensor) { d.ShareMean(out, probabilities, chosen, sums, own) }
}
