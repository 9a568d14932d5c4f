package runner

import (
	"slices"
	"sync/atomic"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// prefillPass is a pass of rows whose keys and values enter the cache.
type prefillPass struct {
	*Runner
	cache    *kvcache.Cache
	opt      PrefillOptions
	observed Capture // in the present layer
	pos      []int32
	x        *kernels.Tensor // residual stream [rows, hidden], of appended probes besides
	h        *kernels.Tensor // x through the next layer's norm; nil where every chunk computes its own
	last     *kernels.Tensor // the last row [1, hidden] through the final norm
	appended appendedProbes  // probes that run with the last chunk
	probes   []*probePass    // others, of means and then of peaks
	joint    jointObservations
	tokens   []int32
	pairs    sharedPairs // of appended probes
	chunks   [][2]int    // of rows that go through a layer together
	chunk    chunkRows   // in the present layer
	stage    int         // of the model, that the pass is on
	// pipelined: passes on several devices run at the same time.
	pipelined bool
	done      func(more int) // of Runner.OnPrefill, or nil
	rowsDone  *atomic.Int64  // of all layers, on all devices
}

// newPrefillPass prepares a pass of tokens that follow the cache.
func (r *Runner) newPrefillPass(cache *kvcache.Cache, opt PrefillOptions, tokens []int32) *prefillPass {
	m, n := r.Model, len(tokens)
	p := &prefillPass{Runner: r, cache: cache, opt: opt, tokens: tokens, pos: kvcache.Positions(cache.Next(), n), rowsDone: new(atomic.Int64)}
	if opt.appendProbes || m.Backend.PrefillChunk(m.RowBytes()) > 0 { // where a pass of their own would wait for the weights
		p.appended = newAppended(opt.Capture, cache.Next()+int32(n))
	}
	p.chunks = p.cut(n)
	p.x = r.alloc(n+p.appended.rows, m.Config.Hidden)
	m.Backend.Gather(p.x.Rows(0, n), m.Network.Embedding, tokens)
	p.appended.embed(m, p.x)
	p.pairs = r.newSharedPairs(p.appended.rows)
	for l := range m.Config.Layers {
		if from := m.Config.KVLayer(l); from != l && n > 1 { // chunks of the later layer see what the window has left
			cache.HoldWindow(from)
		}
	}
	if p.appended.rows == 0 {
		for i, probe := range slices.Concat(opt.Capture.Probes, opt.Capture.PeakProbes) {
			pass := r.newProbePass(cache, probe, cache.Next()+int32(n))
			pass.peak = i >= len(opt.Capture.Probes)
			p.probes = append(p.probes, pass)
		}
	}
	if p.startNorms(0); p.h != nil {
		p.normInto(p.h, p.x, m.Network.Layers[0].AttentionNorm)
	}
	return p
}

// startNorms makes room for the rows through the norms of layer l and of those that follow on
// its device.
func (p *prefillPass) startNorms(l int) {
	p.h, p.last = nil, nil
	first := inputType(p.Model, l, p.chunks[0][1]+p.appendedIn(p.chunks[0][1]), attentionReaders(p.Model, l)...)
	if len(p.chunks) == 1 || first != p.on.Compute() { // half the memory of x or less
		p.h = p.arena.Alloc(first, p.x.Shape...)
	}
	if !p.opt.CacheOnly && p.stage == len(p.stages)-1 {
		p.last = p.alloc(1, p.x.Width())
	}
}

// cut cuts n rows so that the last chunk holds the rows of every window. Folded probes
// come on top of the last one, which has fewer rows for that. After a prefix they are cut where
// they would be without it.
func (p *prefillPass) cut(n int) (out [][2]int) {
	if p.opt.Prefix == nil {
		return p.cutWhole(n)
	}
	before := p.opt.Prefix.Len()
	for _, c := range p.cutWhole(before + n) {
		if c[1] > before {
			out = append(out, [2]int{max(0, c[0]-before), c[1] - before})
		}
	}
	return out
}

func (p *prefillPass) cutWhole(n int) [][2]int {
	size := p.opt.Chunk
	if size <= 0 {
		size = p.Model.ChunkRows()
	}
	tail := p.tail(&p.opt.Capture)
	var out [][2]int
	for from := 0; from < n; {
		to := from + size
		if to >= n || n-to < tail {
			to = n
		}
		if rest := max(1, tail); to == n && p.appended.rows > 0 && n-from+p.appended.rows > size && n-from > rest {
			to = n - rest
		}
		out = append(out, [2]int{from, to})
		from = to
	}
	return out
}

// appendedIn is the number of appended rows that run with a chunk that ends at row to.
func (p *prefillPass) appendedIn(to int) int {
	if to < len(p.pos) {
		return 0
	}
	return p.appended.rows
}

// tail is the number of last rows whose queries are needed together.
func (p *prefillPass) tail(c *Capture) int {
	n := 0
	if c.Queries {
		n = len(p.pos)
	}
	for _, w := range slices.Concat(c.Windows, c.PeakWindows) {
		n = max(n, w)
	}
	return min(n, len(p.pos))
}

// layer runs chunks, after the last one the probes, through layer l and reports what was
// observed.
func (p *prefillPass) layer(l int, chunks [][2]int) error {
	mark := p.arena.Mark()
	defer p.arena.Release(mark)
	o := &Observation{Layer: l, Cache: p.cache}
	if p.observed = p.opt.Capture.in(l); p.Model.Config.Recurrent(l) {
		p.observed = Capture{}
	}
	run := p.hiddenLayer
	if l == p.Model.Config.Layers-1 && !p.Model.Config.Recurrent(l) && p.opt.LogProbs == nil && (len(p.pos)+p.appended.rows > 1 || p.opt.CacheOnly) { // one row needs all of it
		run = p.lastLayer
	}
	if err := run(l, o, chunks); err != nil {
		return err
	}
	if chunks[len(chunks)-1][1] < len(p.pos) {
		return nil
	}
	for _, probe := range p.probes {
		scores, lse, err := probe.layer(l)
		if err != nil {
			return err
		}
		if scores != nil {
			o.addProbe(scores, lse, probe.peak)
		}
	}
	n, shares := len(p.pos), p.Model.Config.KVFrom != nil
	if o = p.joint.add(p.Runner, o); o == nil { // layers are to come that read the same pairs
		return nil
	}
	if shares && n > 1 && !p.observed.AllRows { // what a window holds now is not what it will
		p.cache.FitWindow(o.Layer, p.pos[n-1]+1)
	}
	if p.opt.Observe != nil {
		if err := p.opt.Observe(o); err != nil {
			return err
		}
	}
	if n > 1 {
		p.cache.FitWindow(o.Layer, p.pos[n-1]+1)
	}
	return nil
}

// normalised are rows [from, to) of x through the norm of layer l, for modules to read.
func (p *prefillPass) normalised(l, from, to int, readers ...model.Module) *kernels.Tensor {
	t := inputType(p.Model, l, to-from, readers...)
	if p.h != nil && p.h.DType == t {
		return p.h.Rows(from, to)
	}
	x := p.x.Rows(from, to)
	return p.normInto(p.arena.Alloc(t, x.Shape...), x, p.Model.Network.Layers[l].AttentionNorm)
}

// shared gives the pairs of a chunk to those who share the prompt's first tokens.
func (p *prefillPass) shared(l int) {
	if p.opt.Prefix != nil {
		p.opt.Prefix.Take(p.cache, l)
	}
}

// between lets others run after a chunk of a prompt in a layer.
func (p *prefillPass) between() error {
	if len(p.pos) == 1 || p.pipelined {
		return nil
	}
	return p.pause()
}

// following is where rows [from, to) through the norm of the layer after l go; nil where
// that layer computes them.
func (p *prefillPass) following(l, from, to int) *kernels.Tensor {
	if p.h == nil || p.Model.Leaves(l) || p.h.DType != inputType(p.Model, l+1, to-from, attentionReaders(p.Model, l+1)...) {
		return nil
	}
	return p.h.Rows(from, to)
}

// firstRows are the first n rows of x.
func firstRows(x *kernels.Tensor, n int) *kernels.Tensor {
	if x == nil || x.Dim0() == n {
		return x
	}
	return x.Rows(0, n)
}

// rowsFrom are the rows of x from the given one on.
func rowsFrom(x *kernels.Tensor, from int) *kernels.Tensor {
	if x == nil {
		return nil
	}
	return x.Rows(from, x.Dim0())
}

// chunkRows are rows of a pass that go through a layer together: of the prompt and, with
// the last of them, of appended probes.
type chunkRows struct {
	layerRows
	pass   *prefillPass
	o      *Observation
	from   int // first row of the prompt
	prompt int // rows of the prompt, which come first
	last   bool
}

// start prepares the rows of a chunk for layer l.
func (c *chunkRows) start(p *prefillPass, l int, o *Observation, chunk [2]int, readers []model.Module) {
	from, prompt, to := chunk[0], chunk[1]-chunk[0], chunk[1]+p.appendedIn(chunk[1])
	*c = chunkRows{pass: p, o: o, from: from, prompt: prompt, last: chunk[1] == len(p.pos)}
	c.layerRows = layerRows{
		Runner: p.Runner, l: l, x: p.x.Rows(from, to), h: p.normalised(l, from, to, readers...),
		at: at(p.cache, p.appended.positions(p.pos, from, to)), low: p.appended.lowRank(l, prompt, to-from), rows: p.appended.rowsWith(p.tokens[from:chunk[1]], to-from),
	}
}

// hiddenLayer runs chunks through layer l.
func (p *prefillPass) hiddenLayer(l int, o *Observation, chunks [][2]int) error {
	p.startAllRows(o)
	c := &p.chunk
	for _, chunk := range chunks {
		mark := p.arena.Mark()
		c.start(p, l, o, chunk, attentionReaders(p.Model, l))
		switch {
		case l+1 < p.Model.Config.Layers:
			c.next = p.following(l, c.from, c.from+c.x.Dim0())
		case c.x.Dim0() == 1:
			c.next = p.last
		}
		if err := model.RunLayer(c, p.Model, l); err != nil {
			return err
		}
		p.shared(l)
		if !c.last { // what is observed lives until the layer is done
			p.arena.Release(mark)
		}
		if err := p.between(); err != nil {
			return err
		}
		if p.opt.LogProbs != nil && l+1 == p.Model.Config.Layers {
			if err := p.tellLogProbs(chunk[0], chunk[1]); err != nil {
				return err
			}
		}
	}
	if n := len(p.pos); c.last && p.last != nil && c.next != p.last && l+1 == p.Model.Config.Layers {
		p.normInto(p.last, p.x.Rows(n-1, n), p.Model.Network.FinalNorm)
	}
	return nil
}

// DeltaNet runs the prompt's rows, and then those of every appended probe on the state that they leave.
func (c *chunkRows) DeltaNet(d *model.DeltaNet, scale float64) (*kernels.Tensor, bool, error) {
	runs := []model.DeltaRun{{Rows: c.prompt, State: c.pass.cache.State(c.l)}}
	if c.x.Dim0() > c.prompt {
		for _, probe := range c.pass.appended.probes {
			runs = append(runs, c.copiedState(c.pass.cache, probe.Rows()))
		}
	}
	return c.deltaNet(d, scale, runs...)
}

func (c *chunkRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	p, n, all := c.pass, c.prompt, len(c.at.pos)
	a := c.appendPairs(q, k, v)
	out := p.alloc(all, p.Model.Config.Heads*c.headDim())
	if err := p.attendRows(c.o, firstRows(out, n), a, firstRows(k, n), c.from, c.last); err != nil {
		return nil, false, err
	}
	if all > n {
		p.observeAppended(c.o, q.Rows(n, all), rowsFrom(k, n), rowsFrom(v, n), out.Rows(n, all))
	}
	return out, true, nil
}

// appendPairs appends the prompt's pairs to the cache, to which its queries q are then to
// attend.
func (c *chunkRows) appendPairs(q, k, v *kernels.Tensor) *kernels.Attend {
	cache, pos := c.pass.cache, c.at.pos[:c.prompt]
	if k != nil {
		cache.Append(c.l, firstRows(k, c.prompt), firstRows(v, c.prompt), pos)
	}
	if q == nil {
		return nil
	}
	return c.attendChunk(firstRows(q, c.prompt), pos)
}

// attendChunk lets queries of the prompt's rows in the chunk attend. Where another layer has appended the pairs, those of later
// chunks are there, too.
func (c *chunkRows) attendChunk(q *kernels.Tensor, pos []int32) *kernels.Attend {
	a := c.attend(c.pass.cache, c.l, q, pos)
	if c.shares() {
		a.Past = withoutLast(a.Past, len(c.pass.pos)-c.from-c.prompt)
	}
	return a
}
