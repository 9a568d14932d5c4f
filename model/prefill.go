package model

import (
	"math"

	"glimpse/kernels"
)

// prefillPass is a pass of rows whose keys and values enter the cache.
type prefillPass struct {
	*Runner
	cache  *Cache
	opt    PrefillOptions
	pos    []int32
	x      *kernels.Tensor // residual stream [rows, hidden]
	h      *kernels.Tensor // x through the next layer's norm; nil where there is more than one chunk
	last   *kernels.Tensor // the last row [1, hidden] through the final norm
	probes []*probePass

	peakProbes []*probePass
}

// newPrefillPass prepares a pass of embedded rows x.
func (r *Runner) newPrefillPass(cache *Cache, opt PrefillOptions, pos []int32, x *kernels.Tensor) *prefillPass {
	p := &prefillPass{Runner: r, cache: cache, opt: opt, pos: pos, x: x}
	if len(p.chunks(len(pos))) == 1 {
		p.h = r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	}
	if !opt.CacheOnly {
		p.last = r.alloc(1, x.Width())
	}
	return p
}

// chunks cuts n rows so that the last chunk holds the rows of every window.
func (p *prefillPass) chunks(n int) [][2]int {
	size := p.opt.Chunk
	if size <= 0 {
		size = defaultChunk
	}
	tail := p.tail()
	var out [][2]int
	for from := 0; from < n; {
		to := from + size
		if to >= n || n-to < tail {
			to = n
		}
		out = append(out, [2]int{from, to})
		from = to
	}
	return out
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
	if l == p.Model.Config.Layers-1 && (len(p.pos) > 1 || p.opt.CacheOnly) { // one row needs all of it
		run = p.lastLayer
	}
	if err := run(l, o); err != nil {
		return err
	}
	for _, probe := range p.probes {
		o.Probes = append(o.Probes, probe.layer(l))
	}
	for _, probe := range p.peakProbes {
		o.PeakProbes = append(o.PeakProbes, probe.layer(l))
	}
	if p.opt.Observe == nil {
		return nil
	}
	return p.opt.Observe(o)
}

// normalised are rows [from, to) through the norm of layer l.
func (p *prefillPass) normalised(l, from, to int) *kernels.Tensor {
	if p.h != nil {
		return p.h.Rows(from, to)
	}
	return p.norm(p.x.Rows(from, to), p.Model.Network.Layers[l].AttentionNorm)
}

// project computes and caches keys and values of normalised rows h.
func (p *prefillPass) project(l int, h *kernels.Tensor, pos []int32) (k *kernels.Tensor) {
	k = p.key(l, h, pos, noLowRank)
	p.cache.append(l, k, p.value(l, h, noLowRank), pos)
	return k
}

func (p *prefillPass) hiddenLayer(l int, o *Observation) error {
	c := &p.Model.Config
	n := len(p.pos)
	p.startAllRows(o)
	for _, chunk := range p.chunks(n) {
		mark := p.arena.Mark()
		x, pos := p.x.Rows(chunk[0], chunk[1]), p.pos[chunk[0]:chunk[1]]
		h := p.normalised(l, chunk[0], chunk[1])
		q, k, v := p.projections(l, h, pos)
		p.cache.append(l, k, v, pos)
		a := p.attend(p.cache, l, q, pos)
		out := p.alloc(len(pos), c.Heads*c.HeadDim)
		var lse *kernels.Tensor
		if p.opt.Capture.AllRows {
			lse = p.alloc(c.Heads, len(pos))
		}
		if err := p.attention(l, o, out, lse, a); err != nil {
			return err
		}
		next := p.h
		if l == c.Layers-1 {
			next = p.last
		}
		p.finish(l, x, h, out, noLowRank, next)
		if lse != nil {
			p.allRows(o, a, lse, chunk[0])
		}
		if chunk[1] == n { // what is observed lives until the layer is done
			p.windows(o, a, q, k)
			break
		}
		p.arena.Release(mark)
	}
	return nil
}

// lastLayer needs attention and MLP of the last row alone, and the queries of
// the observed rows: all of them chunk by chunk, those of windows at the end.
func (p *prefillPass) lastLayer(l int, o *Observation) error {
	c, b := &p.Model.Config, p.Model.Backend
	n, rows := len(p.pos), p.tail()
	if !p.opt.CacheOnly {
		rows = max(rows, 1)
	}
	p.startAllRows(o)
	var k *kernels.Tensor
	for _, chunk := range p.chunks(n) {
		mark := p.arena.Mark()
		pos := p.pos[chunk[0]:chunk[1]]
		h := p.normalised(l, chunk[0], chunk[1])
		k = p.project(l, h, pos)
		if p.opt.Capture.AllRows {
			a := p.attend(p.cache, l, p.query(l, h, pos, noLowRank), pos)
			lse := p.alloc(c.Heads, len(pos))
			b.Attention(nil, lse, a)
			p.allRows(o, a, lse, chunk[0])
		}
		if chunk[1] < n {
			p.arena.Release(mark)
		}
	}
	if rows == 0 {
		return nil
	}
	pos := p.pos[n-rows:]
	h := p.normalised(l, n-rows, n)
	q := p.query(l, h, pos, noLowRank)
	a := p.attend(p.cache, l, q, pos)
	if p.opt.CacheOnly {
		p.windows(o, a, q, k)
		return nil
	}
	out := p.alloc(1, c.Heads*c.HeadDim)
	if err := p.attention(l, o, out, nil, rowsOf(a, rows-1, rows)); err != nil {
		return err
	}
	p.windows(o, a, q, k)
	p.finish(l, p.x.Rows(n-1, n), h.Rows(rows-1, rows), out, noLowRank, p.last)
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
		b.(kernels.SelectedAttention).AttentionSelected(out, lse, attended, chosen)
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

// layer runs the rows through layer l and returns their scores on the cache.
func (p *probePass) layer(l int) *kernels.Tensor {
	c, b := &p.Model.Config, p.Model.Backend
	low := func(m Module) *LowRank { return p.probe.LowRank(l, m) }
	h := p.h
	a := p.attend(p.cache, l, p.query(l, h, p.pos, low), p.pos)
	a.K = p.key(l, h, p.pos, low)
	last := l == c.Layers-1
	lse := p.alloc(c.Heads, len(p.pos))
	var out *kernels.Tensor
	if !last { // the last layer's values and outputs reach no score
		a.V = p.value(l, h, low)
		out = p.alloc(len(p.pos), c.Heads*c.HeadDim)
	}
	var scores *kernels.Tensor
	if p.peak {
		b.Attention(out, lse, a)
		scores = p.peaks(a, lse)
	} else {
		scores = p.scores(a, p.arena)
		b.ObserveAttention(out, lse, scores, a)
	}
	if !last {
		p.finish(l, p.x, h, out, low, h)
	}
	return scores
}
