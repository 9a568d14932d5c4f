package model

import "glimpse/autodiff"

// ScoreGraph adds to g the pass of learned rows through the frozen network, on
// top of the sample's prompt, and returns every layer's scores: the graph twin of
// Runner.Probe. rows is [n, hidden]; lora gives the trainable update of a module,
// nil for none.
func (m *Model) ScoreGraph(g *autodiff.Graph, s *autodiff.Sample, rows autodiff.Node, lora func(layer int, module Module) *autodiff.LoRA) []autodiff.Node {
	p := &graphRows{m: m, g: g, s: s, x: rows, lora: lora}
	for p.l = range m.Config.Layers {
		if err := RunLayer(p, m, p.l); err != nil {
			panic(err) // of Attend, which returns none
		}
	}
	return p.scores
}

// graphRows are learned rows whose pass is differentiated.
type graphRows struct {
	m      *Model
	g      *autodiff.Graph
	s      *autodiff.Sample
	lora   func(layer int, module Module) *autodiff.LoRA
	l      int
	x, h   autodiff.Node   // residual stream, and through AttentionNorm
	scores []autodiff.Node // of the layers so far
}

var _ LayerOps[autodiff.Node] = (*graphRows)(nil)

// reach is false in the last layer, whose values and outputs reach no score.
func (p *graphRows) reach() bool { return VProj.ReachesScores(p.l, p.m.Config.Layers) }

func (p *graphRows) Projections() (q, k, v autodiff.Node) {
	p.h = p.HeadNorm(p.x, p.m.Network.Layers[p.l].AttentionNorm)
	q, k = p.Linear(QProj, p.h, 1), p.Linear(KProj, p.h, 1)
	if p.reach() {
		v = p.Linear(VProj, p.h, 1)
	}
	return q, k, v
}

func (p *graphRows) NormRotate(q, k autodiff.Node) bool { return false }

func (p *graphRows) HeadNorm(x autodiff.Node, n Norm) autodiff.Node {
	switch eps := p.m.Config.RMSNormEps; {
	case n.Weight == nil:
		return x
	case n.Bias != nil:
		return p.g.LayerNorm(x, n.Weight, n.Bias, eps)
	default:
		return p.g.RMSNorm(x, n.Weight, eps)
	}
}

func (p *graphRows) Rotate(m Module, x autodiff.Node) autodiff.Node {
	heads := p.m.Config.Heads
	if m == KProj {
		heads = p.m.Config.KVHeads
	}
	return p.g.RoPE(x, p.s, heads, p.m.Config.HeadDim)
}

func (p *graphRows) Attend(q, k, v autodiff.Node) (out autodiff.Node, ok bool, err error) {
	c := &p.m.Config
	heads := autodiff.Heads{Query: c.Heads, KV: c.KVHeads, Dim: c.HeadDim, Window: c.Window(p.l)}
	var scores autodiff.Node
	if ok = p.reach(); ok {
		out, scores = p.g.Attention(q, k, v, p.s, p.l, heads)
	} else {
		scores = p.g.Scores(q, k, p.s, p.l, heads)
	}
	p.scores = append(p.scores, scores)
	return out, ok, nil
}

func (p *graphRows) Linear(m Module, x autodiff.Node, scale float64) autodiff.Node {
	lin := p.m.Network.Layers[p.l].Linear(m)
	return p.g.Scale(p.g.Linear(x, lin.Weight, lin.Bias, p.lora(p.l, m)), scale)
}

func (p *graphRows) Normalised() autodiff.Node { return p.h }

func (p *graphRows) Norm(n Norm, _ []Module) autodiff.Node { return p.HeadNorm(p.x, n) }

func (p *graphRows) Add(delta autodiff.Node) { p.x = p.g.Add(p.x, delta) }

func (p *graphRows) AddNorm(delta autodiff.Node, n Norm, readers []Module) autodiff.Node {
	p.Add(delta)
	return p.Norm(n, readers)
}

func (p *graphRows) Leave(delta autodiff.Node, _ Norm) { p.Add(delta) }

func (p *graphRows) Gated(autodiff.Node) (act autodiff.Node, ok bool) { return act, false }

func (p *graphRows) SiLUMul(gate, up autodiff.Node) autodiff.Node { return p.g.SiLUMul(gate, up) }

func (p *graphRows) GELU(x autodiff.Node) autodiff.Node { return p.g.GELU(x) }

// SampleOf is what ScoreGraph's rows run on: the cache as it is and the positions
// that follow it. Targets are the caller's.
func (m *Model) SampleOf(cache *Cache, rows int) autodiff.Sample {
	s := m.rowsAfter(cache.next, rows, cache.long)
	for l := range cache.heads {
		s.Past = append(s.Past, cache.View(l))
	}
	return s
}

// RowsAfter is the part of a sample that places rows after a prompt of next tokens.
func (m *Model) RowsAfter(next int32, rows int) autodiff.Sample {
	return m.rowsAfter(next, rows, m.Config.long(int(next)))
}

func (m *Model) rowsAfter(next int32, rows int, long bool) autodiff.Sample {
	s := autodiff.Sample{Positions: positions(next, rows)}
	s.RoPE = m.rope(s.Positions, long)
	return s
}
