package training

import (
	"glimpse/autodiff"
	"glimpse/model"
)

// studentRows are an adapter's rows in the graph that differentiates their pass: the
// operations of a decoder layer, as nodes.
type studentRows struct {
	m      *model.Model
	g      *autodiff.Graph
	s      *autodiff.Sample
	lora   func(layer int, module model.Module) *autodiff.LoRA
	l      int
	x, h   autodiff.Node   // residual stream, and through AttentionNorm
	scores []autodiff.Node // of the layers so far
}

var _ model.LayerOps[autodiff.Node] = (*studentRows)(nil)

// reach is false in the last layer, whose values and outputs reach no score.
func (p *studentRows) reach() bool { return model.VProj.ReachesScores(p.l, p.m.Config.Layers) }

func (p *studentRows) Projections() (q, k, v autodiff.Node) {
	p.h = p.Norm(p.x, p.m.Network.Layers[p.l].AttentionNorm)
	q, k = p.Linear(model.QProj, p.h, 1), p.Linear(model.KProj, p.h, 1)
	if p.reach() {
		v = p.Linear(model.VProj, p.h, 1)
	}
	return q, k, v
}

func (p *studentRows) NormRotate(q, k autodiff.Node) bool { return false }

func (p *studentRows) Norm(x autodiff.Node, n model.Norm) autodiff.Node {
	switch eps := p.m.Config.RMSNormEps; {
	case n.Weight == nil:
		return x
	case n.Bias != nil:
		return p.g.LayerNorm(x, n.Weight, n.Bias, eps)
	default:
		return p.g.RMSNorm(x, n.Weight, eps)
	}
}

func (p *studentRows) Rotate(m model.Module, x autodiff.Node) autodiff.Node {
	heads := p.m.Config.Heads
	if m == model.KProj {
		heads = p.m.Config.KVHeads
	}
	return p.g.RoPE(x, p.s, heads, p.m.Config.HeadDim)
}

func (p *studentRows) Attend(q, k, v autodiff.Node) (out autodiff.Node, ok bool, err error) {
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

func (p *studentRows) Linear(m model.Module, x autodiff.Node, scale float64) autodiff.Node {
	lin := p.m.Network.Layers[p.l].Linear(m)
	return p.g.Scale(p.g.Linear(x, lin.Weight, lin.Bias, p.lora(p.l, m)), scale)
}

func (p *studentRows) Normalised() autodiff.Node { return p.h }

func (p *studentRows) Read(n model.Norm, _ []model.Module) autodiff.Node { return p.Norm(p.x, n) }

func (p *studentRows) Add(delta autodiff.Node) { p.x = p.g.Add(p.x, delta) }

func (p *studentRows) AddRead(delta autodiff.Node, n model.Norm, readers []model.Module) autodiff.Node {
	p.Add(delta)
	return p.Read(n, readers)
}

func (p *studentRows) Leave(delta autodiff.Node, _ model.Norm) { p.Add(delta) }

func (p *studentRows) Gated(autodiff.Node) (act autodiff.Node, ok bool) { return act, false }

func (p *studentRows) SiLUMul(gate, up autodiff.Node) autodiff.Node { return p.g.SiLUMul(gate, up) }

func (p *studentRows) GELU(x autodiff.Node) autodiff.Node { return p.g.GELU(x) }
