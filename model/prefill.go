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
	chunk  chunkRows       // in the present layer
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
		scores, lse, err := probe.layer(l)
		if err != nil {
			return err
		}
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

// chunkRows are rows of a pass that go through a layer together: of the prompt and, with
// the last of them, of folded probes.
type chunkRows struct {
	layerRows
	pass    *prefillPass
	o       *Observation
	from    int // first row of the prompt
	prompt  int // rows of the prompt, which come first
	last    bool
	queries *kernels.Tensor // of rows of the last layer, through its first norm
}

// start prepares the rows of a chunk for layer l.
func (c *chunkRows) start(p *prefillPass, l int, o *Observation, chunk [2]int, readers []Module) {
	from, prompt, to := chunk[0], chunk[1]-chunk[0], chunk[1]+p.foldedIn(chunk[1])
	*c = chunkRows{pass: p, o: o, from: from, prompt: prompt, last: chunk[1] == len(p.pos)}
	c.layerRows = layerRows{
		Runner: p.Runner, l: l, x: p.x.Rows(from, to), h: p.normalised(l, from, to, readers...),
		at: p.cache.at(p.folded.positions(p.pos, from, to)), low: p.folded.lowRank(l, prompt, to-from),
	}
}

// hiddenLayer runs all rows through layer l.
func (p *prefillPass) hiddenLayer(l int, o *Observation) error {
	p.startAllRows(o)
	c := &p.chunk
	for _, chunk := range p.chunks(len(p.pos)) {
		mark := p.arena.Mark()
		c.start(p, l, o, chunk, p.Model.attentionReaders(l))
		if c.next = p.last; l+1 < p.Model.Config.Layers {
			c.next = p.following(l, c.from, c.from+c.x.Dim0())
		}
		if err := RunLayer(c, p.Model, l); err != nil {
			return err
		}
		if !c.last { // what is observed lives until the layer is done
			p.arena.Release(mark)
		}
	}
	return nil
}

func (c *chunkRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	p, n, all := c.pass, c.prompt, len(c.at.pos)
	a := c.appendPairs(q, k, v)
	out := p.alloc(all, p.Model.Config.Heads*p.Model.Config.HeadDim)
	var lse *kernels.Tensor
	if p.opt.Capture.AllRows {
		lse = p.alloc(p.Model.Config.Heads, n)
	}
	if err := p.attention(c.l, c.o, firstRows(out, n), lse, a); err != nil {
		return nil, false, err
	}
	if all > n {
		p.observeFolded(c.o, q.Rows(n, all), k.Rows(n, all), v.Rows(n, all), out.Rows(n, all))
	}
	if lse != nil {
		p.allRows(c.o, a, lse, c.from)
	}
	if c.last {
		p.windows(c.o, a, a.Q, firstRows(k, n))
	}
	return out, true, nil
}

// appendPairs appends the prompt's pairs to the cache, to which its queries q are then to
// attend.
func (c *chunkRows) appendPairs(q, k, v *kernels.Tensor) *kernels.Attend {
	cache, pos := c.pass.cache, c.at.pos[:c.prompt]
	cache.append(c.l, firstRows(k, c.prompt), firstRows(v, c.prompt), pos)
	if q == nil {
		return nil
	}
	return c.attend(cache, c.l, firstRows(q, c.prompt), pos)
}

// lastRows are the rows of a chunk in the last layer: all of them have keys and values, the
// observed ones queries, those of windows and folded probes at the end, and the last row
// alone the rest.
type lastRows struct {
	chunkRows
	tail int // rows of the prompt that have queries
}

// lastLayer runs the rows through the last layer as far as somebody reads what it computes.
func (p *prefillPass) lastLayer(l int, o *Observation) error {
	c := &lastRows{tail: p.tail()}
	if !p.opt.CacheOnly {
		c.tail = max(c.tail, 1)
	}
	p.startAllRows(o)
	for _, chunk := range p.chunks(len(p.pos)) {
		mark := p.arena.Mark()
		c.start(p, l, o, chunk, parallelReaders[:3])
		if err := RunLayer(c, p.Model, l); err != nil {
			return err
		}
		if !c.last {
			p.arena.Release(mark)
		}
	}
	return nil
}

func (c *lastRows) Projections() (q, k, v *kernels.Tensor) {
	k = c.project(KProj, c.h)
	prompt := layerRows{Runner: c.Runner, l: c.l, low: noLowRank}
	v = prompt.project(VProj, firstRows(c.h, c.prompt))
	if rows := c.tail + c.pass.folded.rows; c.last && rows > 0 {
		n := len(c.pass.pos)
		c.queries = c.pass.normalised(c.l, n-c.tail, n+c.pass.folded.rows, QProj)
		tail := layerRows{Runner: c.Runner, l: c.l, low: c.pass.folded.lowRank(c.l, c.tail, rows)}
		q = tail.project(QProj, c.queries)
	}
	return q, k, v
}

// NormRotate is not for rows of which not all have queries.
func (c *lastRows) NormRotate(q, k *kernels.Tensor) bool { return false }

func (c *lastRows) Rotate(m Module, x *kernels.Tensor) *kernels.Tensor {
	if x != nil {
		at := c.at
		at.pos = at.pos[len(at.pos)-x.Dim0():]
		c.rotate(x, at)
	}
	return x
}

func (c *lastRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	p, b := c.pass, c.Model.Backend
	n, prompt, tail := len(p.pos), c.prompt, c.tail
	c.appendPairs(nil, k, v)
	if p.opt.Capture.AllRows {
		pos := c.at.pos[:prompt]
		all := &layerRows{Runner: c.Runner, l: c.l, at: p.cache.at(pos), low: noLowRank}
		a := p.attend(p.cache, c.l, normRotate(all, c.Model, c.l, QProj, all.project(QProj, firstRows(c.h, prompt))), pos)
		lse := p.alloc(c.Model.Config.Heads, prompt)
		b.Attention(nil, lse, a)
		p.allRows(c.o, a, lse, c.from)
	}
	if q == nil {
		return nil, false, nil
	}
	if rows := q.Dim0(); rows > tail {
		p.observeFolded(c.o, q.Rows(tail, rows), k.Rows(prompt, k.Dim0()), nil, nil)
	}
	if tail == 0 {
		return nil, false, nil
	}
	a := p.attend(p.cache, c.l, firstRows(q, tail), p.pos[n-tail:])
	if p.opt.CacheOnly {
		p.windows(c.o, a, a.Q, firstRows(k, prompt))
		return nil, false, nil
	}
	out := p.alloc(1, c.Model.Config.Heads*c.Model.Config.HeadDim)
	if err := p.attention(c.l, c.o, out, nil, rowsOf(a, tail-1, tail)); err != nil {
		return nil, false, err
	}
	p.windows(c.o, a, a.Q, firstRows(k, prompt))
	c.x, c.h, c.next, c.low = p.x.Rows(n-1, n), c.queries.Rows(tail-1, tail), p.last, noLowRank
	if c.Model.Network.Layers[c.l].shared() && c.h.DType != b.Compute() { // the MLP reads them once more
		c.h = p.normalised(c.l, n-1, n, c.Model.attentionReaders(c.l)...)
	}
	return out, true, nil
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
	layerRows
	cache       *Cache
	probe       Prober
	peak        bool            // the largest probability of any row instead of the mean
	scores, lse *kernels.Tensor // on the cache, in the layer that has run
}

func (r *Runner) newProbePass(cache *Cache, probe Prober, from int32) *probePass {
	n := probe.Rows()
	x := r.alloc(n, r.Model.Config.Hidden)
	probe.Embeddings(r.Model, x)
	h := r.norm(x, r.Model.Network.Layers[0].AttentionNorm)
	return &probePass{layerRows: layerRows{Runner: r, x: x, h: h, next: h, at: cache.at(positions(from, n))}, cache: cache, probe: probe}
}

// layer runs the rows through layer l and returns their scores on the cache, and
// their lse.
func (p *probePass) layer(l int) (scores, lse *kernels.Tensor, err error) {
	p.l, p.low = l, func(m Module) *LowRank { return p.probe.LowRank(l, m) }
	err = RunLayer(p, p.Model, l)
	return p.scores, p.lse, err
}

// reach tells that there is more of the network to run than the queries and keys of its
// last layer: values and outputs of that layer reach no score.
func (p *probePass) reach() bool { return VProj.ReachesScores(p.l, p.Model.Config.Layers) }

func (p *probePass) Projections() (q, k, v *kernels.Tensor) {
	if p.reach() {
		return p.layerRows.Projections()
	}
	return p.project(QProj, p.h), p.project(KProj, p.h), nil
}

func (p *probePass) Attend(q, k, v *kernels.Tensor) (out *kernels.Tensor, ok bool, err error) {
	a := p.attend(p.cache, p.l, q, p.at.pos)
	a.K, a.V = k, v
	if p.reach() {
		out = p.alloc(len(p.at.pos), p.Model.Config.Heads*p.Model.Config.HeadDim)
	}
	p.scores, p.lse = p.observeProbe(out, a, p.peak)
	return out, out != nil, nil
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
