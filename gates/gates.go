package gates

import (
	"fmt"
	"maps"
	"slices"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
)

// Kind is the registered name.
const Kind = checkpoints.GatesKind

func init() {
	model.AdapterKinds.Add(Kind, model.AdapterKind{
		Doc:   "gates that score entries when they are made (KVzap, arXiv:2601.07891; Fast KVzip, arXiv:2601.17668)",
		Usual: func(m *model.Model) (model.Adapter, error) { return usual(m), nil },
		Load:  func(m *model.Model, a *checkpoints.Adapter) (model.Adapter, error) { return Load(m, a) },
	})
}

// gate is what scores the entries of one layer.
type gate interface {
	score(p pass, scores, h *kernels.Tensor)
	weights() int
}

// pass is what computes the scores of some rows.
type pass struct {
	on     kernels.Backend
	memory kernels.Allocator // of results in between
	counts bool              // memory alone: there are no numbers
}

// Gates are the gates of all layers of a model, in its backend.
type Gates struct {
	layers []gate
	params []model.Parameter
	stored []checkpoints.GateLayer
}

var _ model.GateAdapter = (*Gates)(nil)

// Kind implements model.Adapter.
func (*Gates) Kind() string { return Kind }

// Parameters implements model.Adapter.
func (a *Gates) Parameters() []model.Parameter { return a.params }

// Export implements model.Adapter.
func (a *Gates) Export() *checkpoints.Adapter {
	return &checkpoints.Adapter{Kind: Kind, Gates: a.stored, Loss: "mse", PoolingKernel: 1}
}

// Score implements model.Gate.
func (a *Gates) Score(m *model.Model, layer int, scores, h *kernels.Tensor, memory kernels.Allocator) {
	a.layers[layer].score(pass{m.On(layer), memory, m.Counts()}, scores, h)
}

// Weights implements model.Gate.
func (a *Gates) Weights(layer int) int { return a.layers[layer].weights() }

// usual are linear gates of zeros. KVzap's MLPs have 512 numbers between, which is less than a prompt's chunk has anyway.
func usual(m *model.Model) *Gates {
	a := &Gates{}
	for l := range m.Config.Layers {
		in, out := m.Config.Hidden, m.Config.KV(l).Heads
		var zeros []float64
		if !m.Counts() {
			zeros = make([]float64, out*in)
			a.stored = append(a.stored, checkpoints.GateLayer{
				"weight": {Rows: out, Cols: in, Data: make([]float32, out*in)}, "bias": {Rows: 1, Cols: out, Data: make([]float32, out)},
			})
		}
		a.layers = append(a.layers, &linear{m.LayerParameter(l, zeros, out, in), make([]float32, out)})
	}
	return a
}

// Load takes stored gates into the backend of m, whose shapes they must fit.
func Load(m *model.Model, stored *checkpoints.Adapter) (*Gates, error) {
	if stored.Kind != Kind {
		return nil, fmt.Errorf("load adapter: kind %q, want %q: %w", stored.Kind, Kind, checkpoints.ErrWrongKind)
	}
	if len(stored.Gates) != m.Config.Layers {
		return nil, fmt.Errorf("load adapter: gates of %d layers, want %d for model %s", len(stored.Gates), m.Config.Layers, m.Name)
	}
	a := &Gates{stored: stored.Gates}
	for l, tensors := range stored.Gates {
		g, err := a.loadGate(m, l, tensors)
		if err != nil {
			return nil, fmt.Errorf("load adapter: gate of layer %d: %w", l, err)
		}
		a.layers = append(a.layers, g)
	}
	return a, nil
}

// loadGate makes the gate of a layer.
func (a *Gates) loadGate(m *model.Model, layer int, tensors checkpoints.GateLayer) (gate, error) {
	f := &filled{adapter: a, m: m, layer: layer, tensors: tensors}
	in, out := m.Config.Hidden, m.Config.KV(layer).Heads
	if !m.Config.HoldsKV(layer) { // whose gate is of no use
		out = anySize
	}
	var g gate
	switch {
	case tensors.Is(checkpoints.LinearGate):
		g = &linear{f.tensor("weight", out, in), f.numbers("bias", 1, out)}
	case tensors.Is(checkpoints.MLPGate):
		n := tensors["0.weight"].Rows
		g = &mlp{f.tensor("0.weight", n, in), f.tensor("0.bias", 1, n), linear{f.tensor("2.weight", out, n), f.numbers("2.bias", 1, out)}}
	case tensors.Is(checkpoints.LowRankGate):
		g = newLowRank(f, in, out, m.Config.Group())
	default:
		return nil, fmt.Errorf("tensors %v, want those of a linear gate, an MLP, or one of low rank", slices.Sorted(maps.Keys(tensors)))
	}
	return g, f.err
}

// anySize is a number of rows or columns that is not checked.
const anySize = -1

// filled takes stored tensors into a layer's backend, until one has another shape.
type filled struct {
	adapter *Gates
	m       *model.Model
	layer   int
	tensors checkpoints.GateLayer
	err     error
}

// matrix is the stored tensor of that name, which must have the shape.
func (f *filled) matrix(name string, rows, cols int) checkpoints.Matrix {
	x := f.tensors[name]
	if (rows != anySize && x.Rows != rows || cols != anySize && x.Cols != cols) && f.err == nil {
		f.err = fmt.Errorf("%s: shape [%d %d], want [%d %d] for model %s", name, x.Rows, x.Cols, rows, cols, f.m.Name)
	}
	return x
}

// tensor is a stored tensor in the layer's backend: a vector where it has one row.
func (f *filled) tensor(name string, rows, cols int) *kernels.Tensor {
	x := f.matrix(name, rows, cols)
	shape := []int{x.Rows, x.Cols}
	if rows == 1 {
		shape = shape[1:]
	}
	on := f.m.On(f.layer)
	t := on.Alloc(on.Compute(), shape...)
	kernels.Convert(t, kernels.FromF32(x.Data, shape...))
	f.adapter.params = append(f.adapter.params, model.Parameter{Name: fmt.Sprintf("layers.%d.%s", f.layer, name), Tensor: t, Layer: f.layer})
	return t
}

// numbers are a stored tensor's on the host.
func (f *filled) numbers(name string, rows, cols int) []float32 {
	return f.matrix(name, rows, cols).Data
}

// linear is W h + b.
type linear struct {
	weight *kernels.Tensor // [kvHeads, in]
	bias   []float32       // [kvHeads]
}

func (g *linear) weights() int { return g.weight.Len() }

// score multiplies the weight by the rows, not the rows by the weight: scores have a row for each KV head.
func (g *linear) score(p pass, scores, h *kernels.Tensor) {
	for head, b := range g.bias {
		p.on.Fill(scores.Rows(head, head+1), float64(b))
	}
	p.on.Linear(scores, g.weight, h, nil, 1, 1)
}

// mlp has one hidden layer, with GELU.
type mlp struct {
	weight, bias *kernels.Tensor // [n, in], [n]
	out          linear
}

func (g *mlp) weights() int { return g.weight.Len() + g.out.weights() }

func (g *mlp) score(p pass, scores, h *kernels.Tensor) {
	h = p.widened(h)
	inner := p.memory.Alloc(p.on.Compute(), h.Dim0(), g.weight.Dim0())
	p.on.Linear(inner, h, g.weight, g.bias, 1, 0)
	p.on.GELU(inner, inner)
	g.out.score(p, scores, inner)
}

// widened are rows of the compute type, which the weights of gates are.
func (p pass) widened(h *kernels.Tensor) *kernels.Tensor {
	if h.DType == p.on.Compute() {
		return h
	}
	wide := p.memory.Alloc(p.on.Compute(), h.Shape...)
	p.on.Gather(wide, h, kernels.Ascending(h.Dim0()))
	return wide
}
