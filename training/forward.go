package training

import (
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
	rows := &studentRows{m: m, g: g, s: s, x: x, lora: lora}
	for rows.l = range m.Config.Layers {
		if err := model.RunLayer(rows, m, rows.l); err != nil {
			panic(err) // of Attend, which returns none
		}
	}
	return rows.scores
}
