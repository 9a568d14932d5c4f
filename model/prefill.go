package model

import (
	"math"
	"slices"

	"glimpse/kernels"
)

// prefillPass is a pass of rows whose keys and values enter the cache.
type prefillPass struct {
	*Runner
	cache  *Cache
	opt    PrefillOptions
	pos    []int32
	x      *kernels.Tensor // residual stream [rows, hidden], of folded probes besides
	h      *kernels.Tensor // x through the next layer's norm; nil where every chunk computes its own
	last   *kernels.Tensor // the last row [1, hidden] through the final norm
	folded folded          // probes that run with the last chunk
	probes []*probePass    // others, of means and then of peaks
}

// newPrefillPass prepares a pass of tokens that follow the cache.
func (r *Runner) newPrefillPass(cache *Cache, opt PrefillOptions, tokens []int32) *prefillPass {
	m, n := r.Model, len(tokens)
	p := &prefillPass{Runner: r, cache: cache, opt: opt, pos: positions(cache.next, n)}
	if opt.fold || m.folds() {
		p.folded = newFolded(opt.Capture, cache.next+int32(n))
	}
	p.x = r.alloc(n+p.folded.rows, m.Config.Hidden)
	m.Backend.Gather(p.x.Rows(0, n), m.Network.Embedding, tokens)
	p.folded.embed(m, p.x)
	if p.folded.rows == 0 {
		for i, probe := range slices.Concat(opt.Capture.Probes, opt.Capture.PeakProbes) {
			pass := r.newProbePass(cache, probe, cache.next+int32(n))
			pass.peak = i >= len(opt.Capture.Probes)
			p.probes = append(p.probes, pass)
		}
	}
	chunks := p.chunks(n)
	first := m.inputType(0, chunks[0][1]+p.foldedIn(chunks[0][1]), m.attentionReaders(0)...)
	if len(chunks) == 1 || first != m.Backend.Compute() { // half the memory of x or less
		p.h = r.normInto(r.arena.Alloc(first, p.x.Shape...), p.x, m.Network.Layers[0].AttentionNorm)
	}
	if !opt.CacheOnly {
		p.last = r.alloc(1, p.x.Width())
	}
	return p
}

// chunks cuts n rows so that the last chunk holds the rows of every window. Folded probes
// come on top of the last one, which has fewer rows for that.
func (p *prefillPass) chunks(n int) [][2]int {
	size := p.opt.Chunk
	if size <= 0 {
		size = p.Model.chunkRows()
	}
	tail := p.tail()
	var out [][2]int
	for from := 0; from < n; {
		to := from + size
		if to >= n || n-to < tail {
			to = n
		}
		if rest := max(1, tail); to == n && p.folded.rows > 0 && n-from+p.folded.rows > size && n-from > rest {
			to = n - rest
		}
		out = append(out, [2]int{from, to})
		from = to
	}
	return out
}

// foldedIn is the number of folded rows that run with a chunk that ends at row to.
func (p *prefillPass) foldedIn(to int) int {
	if to < len(p.pos) {
		return 0
	}
	return p.folded.rows
}

// tail is the number of last rows whose queries are needed together.
func (p *prefillPass) tail() int {
	n := 0
	if p.opt.Capture.Queries {
		n = len(p.pos)
	}
	for _, w := range p.opt.Capture.Windows {
		n = max(n, w)
	}
	for _, w := range p.opt.Capture.PeakWindows {
		n = max(n, w)
	}
	return min(n, len(p.pos))
}

// layer runs all rows, then the probes, through layer l and reports what was
// observed.
func (p *prefillPass) layer(l int) error {
	mark := p.arena.Mark()
	defer p.arena.Release(mark)
	o := &Observation{Layer: l, Cache: p.cache}
	run := p.hiddenLayer
	if l == p.Model.Config.Layers-1 && (len(p.pos)+p.folded.rows > 1 || p.opt.CacheOnly) { // one row needs all of it
		run = p.lastLayer
	}
	if err := run(l, o); err != nil {
		return err
	}
	for _, probe := range p.probes {
		scores, lse := probe.layer(l)
		o.addProbe(scores, lse, probe.peak)
	}
	if p.opt.Observe == nil {
		return nil
	}
	return p.opt.Observe(o)
}

// normalised are rows [from, to) of x through the norm of layer l, for modules to read.
func (p *prefillPass) normalised(l, from, to int, readers ...Module) *kernels.Tensor {
	t := p.Model.inputType(l, to-from, readers...)
	if p.h != nil && p.h.DType == t {
		return p.h.Rows(from, to)
	}
	x := p.x.Rows(from, to)
	return p.normInto(p.arena.Alloc(t, x.Shape...), x, p.Model.Network.Layers[l].AttentionNorm)
}

// following is where rows [from, to) through the norm of the layer after l go; nil where
// that layer computes them.
func (p *prefillPass) following(l, from, to int) *kernels.Tensor {
	if p.h == nil || p.h.DType != p.Model.inputType(l+1, to-from, p.Model.attentionReaders(l+1)...) {
		return nil
	}
	return p.h.Rows(from, to)
}

// firstRows are the first n rows of x.
func firstRows(x *kernels.Tensor, n int) *kernels.Tensor {
	if x.Dim0() == n {
		return x
	}
	return x.Rows(0, n)
}

func (p *prefillPass) hiddenLayer(l int, o *Observation) error {
	c := &p.Model.Config
	n := len(p.pos)
	p.startAllRows(o)
	for _, chunk := range p.chunks(n) {
		mark := p.arena.Mark()
		from, rows, to := chunk[0], chunk[1]-chunk[0], chunk[1]+p.foldedIn(chunk[1])
		pos, low := p.folded.positions(p.pos, from, to), p.folded.lowRank(l, rows, to-from)
		h := p.normalised(l, from, to, p.Model.attentionReaders(l)...)
		q, k, v := p.projections(l, h, p.cache.at(pos), low)
		p.cache.append(l, firstRows(k, rows), firstRows(v, rows), pos[:rows])
		a := p.attend(p.cache, l, firstRows(q, rows), pos[:rows])
		out := p.alloc(len(pos), c.Heads*c.HeadDim)
		var lse *kernels.Tensor
		if p.opt.Capture.AllRows {
			lse = p.alloc(c.Heads, rows)
		}
		if err := p.attention(l, o, firstRows(out, rows), lse, a); err != nil {
			return err
		}
		if to > chunk[1] {
			p.observeFolded(o, q.Rows(rows, to-from), k.Rows(rows, to-from), v.Rows(rows, to-from), out.Rows(rows, to-from))
		}
		next := p.last
		if l+1 < c.Layers {
			next = p.following(l, from, to)
		}
		p.finish(l, p.x.Rows(from, to), h, out, low, next)
		if lse != nil {
			p.allRows(o, a, lse, from)
		}
		if chunk[1] == n { // what is observed lives until the layer is done
			p.windows(o, a, a.Q, firstRows(k, rows))
			break
		}
		p.arena.Release(mark)
	}
	return nil
}

// lastLayer needs attention and MLP of the last row alone, and the queries of
// the observed rows: all of them chunk by chunk, those of windows and folded probes at the
// end.
func (p *prefillPass) lastLayer(l int, o *Observation) error {
	c, b := &p.Model.Config, p.Model.Backend
	n, tail := len(p.pos), p.tail()
	if !p.opt.CacheOnly {
		tail = max(tail, 1)
	}
	p.startAllRows(o)
	var k *kernels.Tensor
	rows := 0 // of the chunk
	for _, chunk := range p.chunks(n) {
		mark := p.arena.Mark()
		from, to := chunk[0], chunk[1]+p.foldedIn(chunk[1])
		rows = chunk[1] - from
		pos := p.folded.positions(p.pos, from, to)
		h := p.normalised(l, from, to, QProj, KProj, VProj)
		k = p.key(l, h, p.cache.at(pos), p.folded.lowRank(l, rows, to-from))
		p.cache.append(l, firstRows(k, rows), p.value(l, firstRows(h, rows), noLowRank), pos[:rows])
		if p.opt.Capture.AllRows {
			a := p.attend(p.cache, l, p.query(l, firstRows(h, rows), p.cache.at(pos[:rows]), noLowRank), pos[:rows])
			lse := p.alloc(c.Heads, rows)
			b.Attention(nil, lse, a)
			p.allRows(o, a, lse, from)
		}
		if chunk[1] < n {
			p.arena.Release(mark)
		}
	}
	from, to := n-tail, n+p.folded.rows
	if from == to {
		return nil
	}
	h := p.normalised(l, from, to, QProj)
	pos := p.folded.positions(p.pos, from, to)
	q := p.query(l, h, p.cache.at(pos), p.folded.lowRank(l, tail, to-from))
	if to > n {
		p.observeFolded(o, q.Rows(tail, to-from), k.Rows(rows, rows+p.folded.rows), nil, nil)
	}
	if tail == 0 {
		return nil
	}
	a := p.attend(p.cache, l, firstRows(q, tail), pos[:tail])
	if !p.opt.CacheOnly {
		out := p.alloc(1, c.Heads*c.HeadDim)
		if err := p.attention(l, o, out, nil, rowsOf(a, tail-1, tail)); err != nil {
			return err
		}
		h := h.Rows(tail-1, tail)
		if p.Model.Network.Layers[l].shared() && h.DType != b.Compute() { // which reads them once more
			h = p.normalised(l, n-1, n, p.Model.attentionReaders(l)...)
		}
		p.finish(l, p.x.Rows(n-1, n), h, out, noLowRank, p.last)
	}
	p.windows(o, a, a.Q, firstRows(k, rows))
	return nil
}

// attention computes the output of rows that attend. A decoding step is observed
// by the same operation, whatever the width of the windows.
func (p *prefillPass) attention(l int, o *Observation, out, lse *kernels.Tensor, a *kernels.Attend) error {
	b, windows := p.Model.Backend, len(p.opt.Capture.Windows)
	if len(p.pos) == 1 && windows > 0 && p.opt.Sparse == nil {
		if lse == nil {
			lse = p.alloc(a.Heads(), 1)
		}
		scores := p.scores(a, p.arena)
		b.ObserveAttention(out, lse, scores, a)
		for range windows {
			o.Windows = append(o.Windows, scores)
		}
		return nil
	}
	attended, chosen, after, err := p.restrict(p.opt.Sparse, p.cache, l, a)
	if err != nil {
		return err
	}
	if chosen != nil {
		b.AttentionSelected(out, lse, attended, chosen, p.arena)
	} else {
		b.Attention(out, lse, attended)
	}
	if after != nil {
		after(out)
	}
	return nil
}

// windows observes the last rows of q, the queries of the last chunk, unless that
// is done.
func (p *prefillPass) windows(o *Observation, a *kernels.Attend, q, k *kernels.Tensor) {
	rows := q.Dim0()
	for _, w := range p.opt.Capture.Windows[len(o.Windows):] {
		window := rowsOf(a, rows-min(w, rows), rows)
		o.Windows = append(o.Windows, p.Runner.observe(window, p.arena))
	}
	for _, w := range p.opt.Capture.PeakWindows {
		window := rowsOf(a, rows-min(w, rows), rows)
		lse := p.alloc(window.Heads(), window.Rows())
		p.Model.Backend.Attention(nil, lse, window)
		o.PeakWindows = append(o.PeakWindows, p.peaks(window, lse))
	}
	if p.opt.Capture.Queries {
		o.Queries, o.Keys = q, k
	}
}

// startAllRows makes room for the scores of all rows on all entries that the
// layer will hold; no column is seen yet.
func (p *prefillPass) startAllRows(o *Observation) {
	if !p.opt.Capture.AllRows {
		return
	}
	width := 0
	for h := range p.cache.KVHeads() {
		width = max(width, p.cache.Entries(o.Layer, h))
	}
	o.AllRows = p.alloc(p.Model.Config.Heads, width+len(p.pos))
	p.Model.Backend.Fill(o.AllRows, math.Inf(-1))
	if p.opt.Capture.Squares {
		o.Squares = p.alloc(o.AllRows.Shape...)
		p.Model.Backend.Fill(o.Squares, math.Inf(-1))
	}
}

// allRows merges the scores of one chunk's rows into those of the seen rows
// before it.
func (p *prefillPass) allRows(o *Observation, a *kernels.Attend, lse *kernels.Tensor, seen int) {
	p.mergeRows(o.AllRows, a, lse, seen)
	if o.Squares == nil {
		return
	}
	// The square of a probability is exp(2·logit − 2·lse): the same reduction of
	// doubled logits.
	b, twice, lse2 := p.Model.Backend, *a, p.alloc(lse.Shape...)
	b.Add(lse2, lse, lse)
	twice.Scale *= 2
	p.mergeRows(o.Squares, &twice, lse2, seen)
}

func (p *prefillPass) mergeRows(acc *kernels.Tensor, a *kernels.Attend, lse *kernels.Tensor, seen int) {
	b := p.Model.Backend
	if seen == 0 {
		b.ObservedScores(acc, lse, a)
		return
	}
	scores := p.alloc(acc.Shape...)
	b.Fill(scores, math.Inf(-1))
	b.ObservedScores(scores, lse, a)
	b.MergeScores(acc, scores, float64(seen), float64(a.Rows()))
}

// probePass is rows that are run after a prompt and leave no trace.
type probePass struct {
	*Runner
	cache *Cache
	probe Prober
	peak  bool // the largest probability of any row instead of the mean
	pos   []int32
	x     *kernels.Tensor
	h     *kernels.Tensor // x through the next layer's norm
}

func (r *Runner) newProbePass(cache *Cache, probe Prober, from int32) *probePass {
	n := probe.Rows()
	x := r.alloc(n, r.Model.Config.Hidden)
	probe.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	return &probePass{Runner: r, cache: cache, probe: probe, pos: positions(from, n), x: x, h: h}
}

// layer runs the rows through layer l and returns their scores on the cache, and
// their lse.
func (p *probePass) layer(l int) (scores, lse *kernels.Tensor) {
	c := &p.Model.Config
	low := func(m Module) *LowRank { return p.probe.LowRank(l, m) }
	h, at := p.h, p.cache.at(p.pos)
	a := p.attend(p.cache, l, p.query(l, h, at, low), p.pos)
	a.K = p.key(l, h, at, low)
	last := l == c.Layers-1
	var out *kernels.Tensor
	if !last { // the last layer's values and outputs reach no score
		a.V = p.value(l, h, low)
		out = p.alloc(len(p.pos), c.Heads*c.HeadDim)
	}
	scores, lse = p.observeProbe(out, a, p.peak)
	if !last {
		p.finish(l, p.x, h, out, low, h)
	}
	return scores, lse
}

// observeProbe attends with rows a, out being nil or their output, and returns their
// scores and lse.
func (r *Runner) observeProbe(out *kernels.Tensor, a *kernels.Attend, peak bool) (scores, lse *kernels.Tensor) {
	b := r.Model.Backend
	lse = r.alloc(a.Heads(), a.Rows())
	if peak {
		b.Attention(out, lse, a)
		return r.peaks(a, lse), lse
	}
	scores = r.scores(a, r.arena)
	b.ObserveAttention(out, lse, scores, a)
	return scores, lse
}

// addProbe takes in one probe's scores.
func (o *Observation) addProbe(scores, lse *kernels.Tensor, peak bool) {
	if peak {
		o.PeakProbes, o.PeakProbeLSE = append(o.PeakProbes, scores), append(o.PeakProbeLSE, lse)
	} else {
		o.Probes, o.ProbeLSE = append(o.Probes, scores), append(o.ProbeLSE, lse)
	}
}
