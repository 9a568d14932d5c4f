package training

import (
	"fmt"
	"slices"

	"glimpse/autodiff"
	"glimpse/kernels"
	"glimpse/model"
)

// student is the compiled graph of one adapter: the pass of its rows through the frozen
// model, the loss, and the gradients of its parameters.
type student struct {
	graph     *autodiff.Graph
	sample    *autodiff.Sample // what the next run computes on
	objective objective
	rows      int // of the adapter
}

// newStudent compiles the graph of an adapter.
func newStudent(m *model.Model, a model.RowsAdapter, o objective) (*student, error) {
	s := &student{sample: new(autodiff.Sample), objective: o, rows: a.Rows()}
	var err error
	if err = o.checkModel(m); err == nil {
		s.graph, err = autodiff.Build(func(g *autodiff.Graph) (autodiff.Node, error) {
			p, err := forward(g, m, a, s.sample, o.answers())
			if err != nil {
				return autodiff.Node{}, err
			}
			last := autodiff.Node{}
			if p.answers > 0 {
				last = p.x
			}
			return g.Loss(p.scores, s.sample, o.addLayer, last, o.addAnswer(m, s.sample)), nil
		}, m.Devices()...)
	}
	if err != nil {
		return nil, fmt.Errorf("train: adapter %s: %w", a.Kind(), err)
	}
	return s, nil
}

// runSample is the loss of a sample, as minimised. Gradients stay until the next run.
func (s *student) runSample(sample autodiff.Sample) (float64, error) {
	*s.sample = sample
	// The next prompt's keys and values would otherwise stand beside this one's.
	defer func() { *s.sample = autodiff.Sample{} }()
	return s.graph.Run()
}

// forward adds an adapter's parameters to g, in their order, and the pass of its rows
// through the frozen model on top of the sample's prompt, and behind them so many tokens of its answer. The pass then has every layer's
// scores, none of layers that are not Scored: the graph twin of Runner.Probe.
func forward(g *autodiff.Graph, m *model.Model, a model.RowsAdapter, s *autodiff.Sample, answers int) (*pass, error) {
	layers := m.Config.ScoredLayers()
	p := &pass{g: g, m: m, adapter: a, sample: s, answers: answers, nodes: make(map[*kernels.Tensor]autodiff.Node), scores: make([]autodiff.Node, layers), pairs: make([][2]autodiff.Node, layers)}
	params := a.Parameters()
	for _, x := range params {
		g.Enter(m.On(x.Layer), autodiff.Node{})
		p.nodes[x.Tensor] = g.Parameter(x.Name, x.Tensor)
	}
	if err := p.checkParameters(params); err != nil {
		return nil, err
	}
	p.x = p.nodes[params[0].Tensor]
	p.rows = p.x
	if answers > 0 {
		layers = m.Config.Layers
		p.x = g.Join(p.x, answers, func(dst *kernels.Tensor) { model.TokenRows(s.Answer.Tokens).Embeddings(m, dst) })
	}
	for p.l = range layers {
		p.x = g.Enter(m.On(p.l), p.x)
		if err := model.RunLayer(p, m, p.l); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// pass is an adapter's rows on their way through the decoder layers, as nodes of a graph.
type pass struct {
	g       *autodiff.Graph
	m       *model.Model
	adapter model.RowsAdapter
	sample  *autodiff.Sample
	nodes   map[*kernels.Tensor]autodiff.Node // of the parameters
	answers int                               // tokens that run behind the rows
	l       int                               // layer
	rows    autodiff.Node                     // the learned rows
	x, h    autodiff.Node                     // residual stream, and through AttentionNorm
	scores  []autodiff.Node                   // by the layer that holds the cache
	pairs   [][2]autodiff.Node                // keys and values of the rows, likewise
}

var _ model.LayerOps[autodiff.Node] = (*pass)(nil)

// checkParameters holds an adapter to what model.RowsAdapter says of Parameters.
func (p *pass) checkParameters(params []model.Parameter) error {
	rows, hidden := p.adapter.Rows(), p.m.Config.Hidden
	if len(params) == 0 || !slices.Equal(params[0].Tensor.Shape, []int{rows, hidden}) {
		return fmt.Errorf("first parameter: want the rows [%d %d]", rows, hidden)
	}
	for l := range p.m.Config.Layers {
		for _, module := range model.FactorModules {
			low := p.adapter.LowRank(l, module)
			if low == nil {
				continue
			}
			_, hasA := p.nodes[low.A]
			_, hasB := p.nodes[low.B]
			if !hasA || !hasB {
				return fmt.Errorf("layer %d: %s: low-rank factors that are no parameters", l, module)
			}
		}
	}
	return nil
}

// reached is false in the last scored layer, whose values and outputs reach no score, unless an answer goes on.
func (p *pass) reached() bool {
	return p.answers > 0 || model.VProj.ReachesScores(p.l, p.m.Config.ScoredLayers())
}

func (p *pass) Projections() (q, k, v autodiff.Node) {
	p.h = p.Norm(p.x, p.m.Network.Layers[p.l].AttentionNorm)
	q = p.Linear(model.QProj, p.h, 1)
	if p.m.Config.KVLayer(p.l) != p.l {
		return q, k, v
	}
	k = p.Linear(model.KProj, p.h, 1)
	if v = k; p.m.Network.Layers[p.l].Linear(model.VProj) != nil && p.reached() {
		v = p.Linear(model.VProj, p.h, 1)
	}
	return q, k, v
}

func (p *pass) NormRotate(q, k autodiff.Node) bool { return false }

func (p *pass) Norm(x autodiff.Node, n model.Norm) autodiff.Node {
	if n.Weight == nil {
		return x
	}
	return p.g.Norm(x, n.Of(&p.m.Config))
}

func (p *pass) Rotate(m model.Module, x autodiff.Node) autodiff.Node {
	kv := p.m.Config.KV(p.l)
	if m == model.KProj {
		return p.g.KeyRoPE(x, p.sample, p.l, kv.Heads, kv.Dim)
	}
	return p.g.QueryRoPE(x, p.sample, p.l, p.m.Config.Heads, kv.Dim)
}

func (p *pass) Attend(q, k, v autodiff.Node) (out autodiff.Node, ok bool, err error) {
	c, kv, layer := &p.m.Config, p.m.Config.KV(p.l), p.m.Config.KVLayer(p.l)
	if layer == p.l {
		p.pairs[layer] = [2]autodiff.Node{k, v}
	}
	k, v = p.pairs[layer][0], p.pairs[layer][1]
	heads := autodiff.Heads{Query: c.Heads, KV: kv.Heads, Dim: kv.Dim, Window: c.Window(p.l), Scale: c.AttentionScale(), SoftCap: c.AttentionCap, Sinks: p.m.Network.Layers[p.l].Sinks}
	var scores autodiff.Node
	if ok = p.reached(); p.answers > 0 {
		out, scores = p.g.AttentionBehind(q, k, v, p.sample, layer, heads, p.adapter.Rows())
	} else if ok {
		out, scores = p.g.Attention(q, k, v, p.sample, layer, heads)
	} else {
		scores = p.g.Scores(q, k, p.sample, layer, heads)
	}
	switch readers := slices.Index(c.Readers(layer), p.l); { // before this one
	case !c.Scored(layer) || layer >= len(p.scores):
	case readers == 0:
		p.scores[layer] = scores
	default:
		p.scores[layer] = p.g.MergeScores(p.scores[layer], scores, float64(readers), 1)
	}
	return out, ok, nil
}

// Input is the rows' own embedding for the layer; the padding token's is a constant.
func (p *pass) Input(in *model.LayerInput) autodiff.Node {
	projected := p.g.Norm(p.g.Linear(p.rows, in.Projection, nil, nil), kernels.Norm(in.Norm))
	return p.g.Function("layer input", projected,
		func(b kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor) {
			b.Copy(y, x)
			in.AddTokens(b, arena, y, slices.Repeat([]int32{in.Padding}, x.Dim0()))
		},
		func(b kernels.Backend, _ *kernels.Arena, dx *kernels.Tensor, _ []*kernels.Tensor, _, dy *kernels.Tensor) {
			b.Copy(dx, dy)
		})
}

func (p *pass) Linear(m model.Module, x autodiff.Node, scale float64) autodiff.Node {
	lin := p.m.Network.Layers[p.l].Linear(m)
	var lora *autodiff.LoRA
	if low := p.adapter.LowRank(p.l, m); low != nil {
		lora = &autodiff.LoRA{A: p.nodes[low.A], B: p.nodes[low.B], Scale: low.Scale}
		if p.answers > 0 {
			lora.Rows = p.adapter.Rows()
		}
	}
	return p.g.Scale(p.g.Linear(x, lin.Weight, lin.Bias, lora), scale)
}

func (p *pass) Normalised() autodiff.Node { return p.h }

func (p *pass) Read(n model.Norm, _ []model.Module) autodiff.Node { return p.Norm(p.x, n) }

func (p *pass) Add(delta autodiff.Node) { p.x = p.g.Add(p.x, delta) }

func (p *pass) AddRead(delta autodiff.Node, n model.Norm, readers []model.Module) autodiff.Node {
	p.Add(delta)
	return p.Read(n, readers)
}

func (p *pass) Leave(delta autodiff.Node, _ model.Norm) { p.Add(delta) }

func (p *pass) Gated(autodiff.Node) (act autodiff.Node, ok bool) { return act, false }

func (p *pass) GateMul(act kernels.Gate, gate, up autodiff.Node, _ model.Module) autodiff.Node {
	return p.g.GateMul(act, gate, up)
}

func (p *pass) Experts(e *model.Experts, h autodiff.Node, scale float64) autodiff.Node {
	var modules []model.Module
	var params []autodiff.Node
	low := make(map[model.Module]*model.LowRank)
	for _, m := range model.ExpertModules {
		if u := p.adapter.LowRank(p.l, m); u != nil {
			modules, low[m] = append(modules, m), u
			params = append(params, p.nodes[u.A], p.nodes[u.B])
		}
	}
	of := func(b kernels.Backend, arena *kernels.Arena, x *kernels.Tensor) model.Pass {
		return model.Pass{On: b, Arena: arena, H: x, Low: func(m model.Module) []model.RowUpdate {
			if low[m] == nil {
				return nil
			}
			return []model.RowUpdate{{LowRank: low[m]}}
		}}
	}
	return p.g.Function("experts", h,
		func(b kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor) {
			e.Forward(y, of(b, arena, x), scale)
		},
		func(b kernels.Backend, arena *kernels.Arena, dx *kernels.Tensor, dParams []*kernels.Tensor, x, dy *kernels.Tensor) {
			factors := make(map[model.Module]*model.LowRank)
			for i, m := range modules {
				factors[m] = &model.LowRank{A: dParams[2*i], B: dParams[2*i+1]}
			}
			e.Backward(dx, factors, of(b, arena, x), dy, scale)
		}, params...)
}

func (p *pass) Sum(a, b autodiff.Node) autodiff.Node { return p.g.Add(a, b) }

func (p *pass) GELU(x autodiff.Node) autodiff.Node { return p.g.GELU(x) }

// Recur runs the rows from the state that the prompt has left.
func (p *pass) Recur(r model.Recurrent, scale float64) (autodiff.Node, bool, error) {
	l, sample, counts := p.l, p.sample, p.m.Counts()
	p.h = p.Norm(p.x, p.m.Network.Layers[l].AttentionNorm)
	of := func(b kernels.Backend, arena *kernels.Arena, x *kernels.Tensor, state, from model.State) model.MixerPass {
		return model.MixerPass{On: b, Arena: arena, H: x, Runs: []model.Run{{Rows: x.Dim0(), State: state, From: from}}, Counts: counts}
	}
	return p.g.Function("recurrence", p.h,
		func(b kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor) {
			mark := arena.Mark()
			r.Forward(y, of(b, arena, x, model.NewState(b, arena, r, false), sample.States[l]), scale)
			arena.Release(mark)
		},
		func(b kernels.Backend, arena *kernels.Arena, dx *kernels.Tensor, _ []*kernels.Tensor, x, dy *kernels.Tensor) {
			mark := arena.Mark()
			r.Backward(dx, of(b, arena, x, sample.States[l], nil), dy, scale)
			arena.Release(mark)
		}), true, nil
}

func (p *pass) OutputGate(gate model.Linear, x autodiff.Node) autodiff.Node {
	counts := p.m.Counts()
	return p.g.Function2("output gate", x, p.g.Linear(p.h, gate.Weight, gate.Bias, nil),
		func(y, x, z *kernels.Tensor) {
			if !counts {
				kernels.Convert(y, x)
				model.MulLogistic(y, z)
			}
		},
		func(dx, dz, x, z, dy *kernels.Tensor) {
			if !counts {
				model.MulLogisticGrad(dx, dz, x, z, dy)
			}
		})
}
