package runner

import (
	"glimpse/kernels"
	"glimpse/model"
)

// lastRows are the rows of a chunk in the last layer: all of them have keys and values, the
// observed ones queries, those of windows and appended probes at the end, and the last row
// alone the rest.
type lastRows struct {
	chunkRows
	tail    int             // rows of the prompt that have queries
	queries *kernels.Tensor // what these and the probes' are projected from
}

// lastLayer runs the rows through the last layer as far as somebody reads what it computes.
func (p *prefillPass) lastLayer(l int, o *Observation, chunks [][2]int) error {
	c := &lastRows{tail: p.tail(&p.observed)}
	if !p.opt.CacheOnly {
		c.tail = max(c.tail, 1)
	}
	p.startAllRows(o)
	for _, chunk := range chunks {
		mark := p.arena.Mark()
		c.start(p, l, o, chunk, parallelReaders[:3])
		if err := model.RunLayer(c, p.Model, l); err != nil {
			return err
		}
		p.shared(l)
		if !c.last {
			p.arena.Release(mark)
		}
		if err := p.between(); err != nil {
			return err
		}
	}
	return nil
}

func (c *lastRows) Projections() (q, k, v *kernels.Tensor) {
	if !c.shares() {
		k = c.project(model.KProj, c.h)
		prompt := layerRows{Runner: c.Runner, l: c.l, low: noLowRank}
		v = prompt.values(firstRows(k, c.prompt), firstRows(c.h, c.prompt))
	}
	if rows := c.tail + c.pass.appended.rows; c.last && rows > 0 {
		n := len(c.pass.pos)
		c.queries = c.pass.normalised(c.l, n-c.tail, n+c.pass.appended.rows, model.QProj)
		tail := layerRows{Runner: c.Runner, l: c.l, low: c.pass.appended.lowRank(c.l, c.tail, rows)}
		q = tail.project(model.QProj, c.queries)
	}
	return q, k, v
}

// NormRotate is not for rows of which not all have queries.
func (c *lastRows) NormRotate(q, k *kernels.Tensor) bool { return false }

func (c *lastRows) Rotate(m model.Module, x *kernels.Tensor) *kernels.Tensor {
	if x != nil {
		at := c.at
		at.pos = at.pos[len(at.pos)-x.Dim0():]
		c.rotate(c.l, m, x, at)
	}
	return x
}

func (c *lastRows) Attend(q, k, v *kernels.Tensor) (*kernels.Tensor, bool, error) {
	p, b := c.pass, c.on
	n, prompt, tail := len(p.pos), c.prompt, c.tail
	c.appendPairs(nil, k, v)
	if p.observed.AllRows {
		pos := c.at.pos[:prompt]
		all := &layerRows{Runner: c.Runner, l: c.l, at: at(p.cache, pos), low: noLowRank}
		a := c.attendChunk(model.NormRotate(all, c.Model, c.l, model.QProj, all.project(model.QProj, firstRows(c.h, prompt))), pos)
		lse := p.alloc(c.Model.Config.Heads, prompt)
		b.Attention(nil, lse, a)
		p.allRows(c.o, a, lse, c.from)
	}
	if q == nil {
		return nil, false, nil
	}
	if rows := q.Dim0(); rows > tail {
		p.observeAppended(c.o, q.Rows(tail, rows), rowsFrom(k, prompt), nil, nil)
	}
	if tail == 0 {
		return nil, false, nil
	}
	a := p.attend(p.cache, c.l, firstRows(q, tail), p.pos[n-tail:])
	if p.opt.CacheOnly {
		p.windows(c.o, a, a.Q, firstRows(k, prompt))
		return nil, false, nil
	}
	out := p.alloc(1, c.Model.Config.Heads*c.headDim())
	if err := p.attention(c.l, c.o, out, nil, rowsOf(a, tail-1, tail)); err != nil {
		return nil, false, err
	}
	p.windows(c.o, a, a.Q, firstRows(k, prompt))
	c.x, c.h, c.next, c.low, c.rows = p.x.Rows(n-1, n), c.queries.Rows(tail-1, tail), p.last, noLowRank, []embeddedRows{{tokens: p.tokens[n-1:]}}
	if layer := &c.Model.Network.Layers[c.l]; (layer.Shared() || layer.OutputGate.Weight != nil) && c.h.DType != b.Compute() { // they are read once more
		c.h = p.normalised(c.l, n-1, n, attentionReaders(c.Model, c.l)...)
	}
	return out, true, nil
}
