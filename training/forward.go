package training

import (
	"cmp"
	"fmt"

	"glimpse/autodiff"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
)

// student is the compiled graph of one adapter: the pass of its rows through the frozen
// model, the loss, and the gradients of its parameters.
type student struct {
	graph  *autodiff.Graph
	sample *autodiff.Sample // what the next run computes on
}

// newStudent compiles the graph of an adapter.
func newStudent(m *model.Model, a model.Adapter, loss losses.Loss) (*student, error) {
	s := &student{graph: autodiff.New(m.Backend), sample: new(autodiff.Sample)}
	scores := forward(s.graph, m, a, s.sample)
	if err := s.graph.Compile(s.graph.Loss(scores, s.sample, loss.Func)); err != nil {
		return nil, fmt.Errorf("train: adapter %s: %w", a.Kind(), err)
	}
	return s, nil
}

// run is the loss of a sample, as minimised. Gradients stay until the next run.
func (s *student) run(sample autodiff.Sample) (float64, error) {
	*s.sample = sample
	// The next prompt's keys and values would otherwise stand beside this one's.
	defer func() { *s.sample = autodiff.Sample{} }()
	return s.graph.Run()
}

// forward adds an adapter's parameters to g, in their order, and the pass of its rows
// through the frozen model on top of the sample's prompt. It returns every layer's scores:
// the graph twin of Runner.Probe.
func forward(g *autodiff.Graph, m *model.Model, a model.Adapter, s *autodiff.Sample) []autodiff.Node {
	nodes := make(map[*kernels.Tensor]autodiff.Node)
	var x autodiff.Node
	for i, p := range a.Parameters() {
		n := g.Parameter(p.Name, p.Tensor)
		if nodes[p.Tensor] = n; i == 0 {
			x = n
		}
	}
	lora := func(l int, module model.Module) *autodiff.LoRA {
		low := a.LowRank(l, module)
		if low == nil {
			return nil
		}
		return &autodiff.LoRA{A: nodes[low.A], B: nodes[low.B], Scale: low.Scale}
	}
	c := &m.Config
	scores := make([]autodiff.Node, c.Layers)
	for l := range m.Network.Layers {
		layer := &m.Network.Layers[l]
		heads := autodiff.Heads{Query: c.Heads, KV: c.KVHeads, Dim: c.HeadDim, Window: c.Window(l)}
		norm := func(x autodiff.Node, n model.Norm) autodiff.Node {
			switch {
			case n.Weight == nil:
				return x
			case n.Bias != nil:
				return g.LayerNorm(x, n.Weight, n.Bias, c.RMSNormEps)
			}
			return g.RMSNorm(x, n.Weight, c.RMSNormEps)
		}
		linear := func(module model.Module, x autodiff.Node) autodiff.Node {
			lin := layer.Linear(module)
			return g.Linear(x, lin.Weight, lin.Bias, lora(l, module))
		}
		h := norm(x, layer.AttentionNorm)
		q, k := norm(linear(model.QProj, h), layer.QueryNorm), norm(linear(model.KProj, h), layer.KeyNorm)
		if c.Rotates(l) {
			q, k = g.RoPE(q, s, c.Heads, c.HeadDim), g.RoPE(k, s, c.KVHeads, c.HeadDim)
		}
		if l == c.Layers-1 {
			scores[l] = g.Scores(q, k, s, l, heads)
			break
		}
		var attention autodiff.Node
		attention, scores[l] = g.Attention(q, k, linear(model.VProj, h), s, l, heads)
		before, block := x, cmp.Or(c.BlockScale, 1)
		x = g.Add(x, g.Scale(linear(model.OProj, attention), block))
		switch {
		case !layer.Parallel:
			h = norm(x, layer.MLPNorm)
		case layer.MLPNorm.Weight != nil:
			h = norm(before, layer.MLPNorm)
		}
		var act autodiff.Node
		if up := linear(model.UpProj, h); layer.Linear(model.GateProj) != nil {
			act = g.SiLUMul(linear(model.GateProj, h), up)
		} else {
			act = g.GELU(up)
		}
		x = g.Add(x, g.Scale(linear(model.DownProj, act), block))
	}
	return scores
}
