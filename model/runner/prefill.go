package runner

import (
	"context"
	"slices"
	"sync/atomic"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
)

// prefillPass is a pass of a prompt, whose keys and values enter the cache.
type prefillPass struct {
	*Runner
	ctx      context.Context // of the whole pass, which may pause it
	cache    *kvcache.Cache
	opt      PrefillOptions
	tokens   []int32
	pos      []int32
	x        *kernels.Tensor // residual stream [rows, hidden], of appended probes besides
	h        *kernels.Tensor // x through the next layer's norm; nil where every chunk computes its own
	last     *kernels.Tensor // the last row [1, hidden] through the final norm
	chunks   [][2]int        // of rows that go through a layer together
	rows     layerRows       // of a chunk in the present layer
	appended []segment       // probes that run with the last chunk, as the papers append them: the weights are read once for both
	probes   []*layerRows    // those that run by themselves; both are of means, then of peaks, then references
	joint    jointObservations
	stage    int // of the model, that the pass is on
	// pipelined: passes on several devices run at the same time.
	pipelined bool
	done      func(more int) // of the options' Progress, or nil
	rowsDone  *atomic.Int64  // of all layers, on all devices
}

// newPrefillPass prepares a pass of tokens that follow the cache.
func (r *Runner) newPrefillPass(ctx context.Context, cache *kvcache.Cache, opt PrefillOptions, tokens []int32) *prefillPass {
	m, n := r.Model, len(tokens)
	p := &prefillPass{Runner: r, ctx: ctx, cache: cache, opt: opt, tokens: tokens, pos: kvcache.Positions(cache.Next(), n), rowsDone: new(atomic.Int64)}
	appends := opt.appendProbes || m.Backend.Traits().PrefillChunk(m.RowBytes()) > 0 // where a pass of their own would wait for the weights
	peaks := len(opt.Capture.Probes) + len(opt.Capture.PeakProbes)
	for i, rows := range opt.Capture.afterPrompt() {
		probe := r.probeSegment(cache, rows, cache.Next()+int32(n))
		probe.refers, probe.peak = i >= peaks, i >= len(opt.Capture.Probes) && i < peaks
		if appends {
			p.appended = append(p.appended, probe)
		} else {
			p.probes = append(p.probes, r.newProbe(probe))
		}
	}
	p.chunks = p.cutChunks(n)
	p.x = r.alloc(n+p.appendedRows(), m.Config.Hidden)
	m.Backend.Gather(p.x.Rows(0, n), m.Network.Embedding, tokens)
	from := n
	for i := range p.appended {
		probe := &p.appended[i]
		probe.Embeddings(m, p.x.Rows(from, from+probe.Rows()))
		from += probe.Rows()
	}
	for l := range m.Config.Layers {
		if from := m.Config.KVLayer(l); from != l && n > 1 { // chunks of the later layer see what the window has left
			cache.HoldWindow(from)
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

// leastRows are the least rows of a last chunk after others: products of fewer add up in another order, and what a prompt gives must not depend on
// which windows are observed.
const leastRows = 17

// cutChunks cuts n rows so that the last chunk holds the rows of every window. Folded probes
// come on top of the last one, which has fewer rows for that. After a prefix they are cut where
// they would be without it.
func (p *prefillPass) cutChunks(n int) (out [][2]int) {
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
		if to >= n || n-to < max(tail, min(size, leastRows)) {
			to = n
		}
		if rest, more := max(1, tail), p.appendedRows(); to == n && more > 0 && n-from+more > size && n-from > rest {
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
	return p.appendedRows()
}

func (p *prefillPass) appendedRows() (n int) {
	for i := range p.appended {
		n += p.appended[i].Rows()
	}
	return n
}

// tail is the number of last rows whose queries are needed together.
func (p *prefillPass) tail(c *Capture) int {
	n := 0
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
	c, n := &p.Model.Config, len(p.pos)
	all := segment{cache: p.cache, of: n, appends: true, o: &Observation{Layer: l, Cache: p.cache}}
	if !c.Recurrent(l) {
		all.observed = p.opt.Capture.in(l)
	}
	// Of the last layer no more is computed than somebody reads. One row needs all of it.
	partly := l == c.Layers-1 && !c.Recurrent(l) && p.opt.LogProbs == nil && (n+p.appendedRows() > 1 || p.opt.CacheOnly)
	p.startGates(&all)
	if p.startAllRows(&all); len(chunks) > 1 {
		p.startQueries(&all)
	}
	for _, chunk := range chunks {
		mark := p.arena.Mark()
		p.prepareRows(l, all, chunk, partly)
		if err := model.RunLayer(&p.rows, p.Model, l); err != nil {
			return err
		}
		if p.opt.Prefix != nil { // those who share the prompt's first tokens get the pairs
			p.opt.Prefix.TakeLayer(p.cache, l)
		}
		if chunk[1] < n { // what is observed lives until the layer is done
			p.arena.Release(mark)
		}
		if err := p.between(); err != nil {
			return err
		}
		if p.opt.LogProbs != nil && l+1 == c.Layers {
			if err := p.tellLogProbs(chunk[0], chunk[1]); err != nil {
				return err
			}
		}
	}
	if chunks[len(chunks)-1][1] < n {
		return nil
	}
	if p.last != nil && l+1 == c.Layers && p.rows.next != p.last {
		p.normInto(p.last, p.x.Rows(n-1, n), p.Model.Network.FinalNorm)
	}
	return p.observeLayer(&all)
}

// observeLayer runs the probes through a layer that all chunks have gone through, and tells the observer.
func (p *prefillPass) observeLayer(all *segment) error {
	o, next := all.o, p.pos[len(p.pos)-1]+1
	for _, probe := range p.probes {
		if err := probe.runLayer(o.Layer, o); err != nil {
			return err
		}
	}
	if o = p.joint.joinLayer(p.Runner, o); o == nil { // layers are to come that read the same pairs
		return nil
	}
	many := len(p.pos) > 1
	if many && p.Model.Config.SharesKV() && !all.observed.AllRows { // what a window holds now is not what it will
		p.cache.FitWindow(o.Layer, next)
	}
	if p.opt.Observe != nil {
		if err := p.opt.Observe(o); err != nil {
			return err
		}
	}
	if many {
		p.cache.FitWindow(o.Layer, next)
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

// between lets others run after a chunk of a prompt in a layer.
func (p *prefillPass) between() error {
	if len(p.pos) == 1 || p.pipelined {
		return nil
	}
	return Pause(p.ctx)
}

// following is where rows [from, to) through the norm of the layer after l go; nil where
// that layer computes them.
func (p *prefillPass) following(l, from, to int) *kernels.Tensor {
	if p.h == nil || p.Model.Leaves(l) || p.h.DType != inputType(p.Model, l+1, to-from, attentionReaders(p.Model, l+1)...) {
		return nil
	}
	return p.h.Rows(from, to)
}

// prepareRows prepares the rows of a chunk for layer l, partly as far as somebody reads what they give; all is what holds for
// every chunk of the layer.
func (p *prefillPass) prepareRows(l int, all segment, chunk [2]int, partly bool) {
	n, from, to := len(p.pos), chunk[0], chunk[1]+p.appendedIn(chunk[1])
	prompt := all
	prompt.QueryRows, prompt.pos, prompt.before = model.TokenRows(p.tokens[from:chunk[1]]), p.pos[from:chunk[1]], from
	readers := attentionReaders(p.Model, l)
	switch {
	case !partly:
		prompt.queries, prompt.onward = chunk[1]-from, chunk[1]-from
	default:
		readers = parallelReaders[:3]
		if chunk[1] == n {
			if prompt.queries = p.tail(&all.observed); !p.opt.CacheOnly {
				prompt.queries, prompt.onward = max(prompt.queries, 1), 1
			}
		}
		if all.observed.Queries {
			prompt.queries = chunk[1] - from
		}
	}
	r := &p.rows
	*r = layerRows{Runner: p.Runner, l: l, x: p.x.Rows(from, to), h: p.normalised(l, from, to, readers...), pos: prompt.pos, segments: append(r.segments[:0], prompt)}
	if chunk[1] == n && len(p.appended) > 0 {
		r.pos = slices.Clone(r.pos)
		for _, probe := range p.appended {
			probe.o, probe.queries, probe.onward = all.o, probe.Rows(), probe.Rows()
			if partly {
				probe.onward = 0
			}
			r.pos, r.segments = append(r.pos, probe.pos...), append(r.segments, probe)
		}
	}
	switch {
	case l+1 < p.Model.Config.Layers:
		r.next = p.following(l, from, to)
	case partly || r.x.Dim0() == 1:
		r.next = p.last
	}
}
