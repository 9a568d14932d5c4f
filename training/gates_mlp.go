package training

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"glimpse/autodiff"
	"glimpse/checkpoints"
	"glimpse/gates"
	"glimpse/kernels"
	"glimpse/model"
)

// GateMLPs trains gates with one hidden layer by AdamW, layer by layer (KVzap, arXiv:2601.07891, §3). Each begins as the linear gate of
// least squares, since GELU(z) − GELU(−z) = z. What it minimises is the mean squared error of the logarithms of a label's scores. A gate
// becomes what had the least error of the rows that are watched, which may be the linear one: of few texts a gate soon learns them by
// heart.
type GateMLPs struct {
	Hidden       int // numbers between, at least two for each KV head
	Steps        int
	Batch        int // rows of a step
	Rows         int // most rows of a context that are learned from
	LearningRate float64
	Progress     func(layers int) // those that are done, from 0
}

// config is how the trainer's optimizer runs.
func (g *GateMLPs) config() Config {
	c := DefaultConfig()
	c.Steps, c.Batch, c.Warmup, c.WarmupRatio = g.Steps, g.Batch, 0, 0.05
	return c
}

// check refuses settings that nothing can be learned with.
func (g *GateMLPs) check(m *model.Model) error {
	least := 0
	for l := range m.Config.Layers {
		least = max(least, 2*m.Config.KV(l).Heads)
	}
	if g.Hidden < least {
		return fmt.Errorf("gates with %d numbers between, want at least %d: two for each KV head", g.Hidden, least)
	}
	for _, n := range []struct {
		name  string
		value int
	}{{"steps", g.Steps}, {"rows of a step", g.Batch}, {"rows of a context", g.Rows}} {
		if n.value < 1 {
			return fmt.Errorf("gates: %s: got %d, want at least 1", n.name, n.value)
		}
	}
	if !(g.LearningRate > 0 && g.LearningRate <= 10) {
		return fmt.Errorf("gates: learning rate: got %v, want above 0 to 10", g.LearningRate)
	}
	return nil
}

// train trains the gates of all layers from linear ones. Explained is of the rows that were held out.
func (g *GateMLPs) train(ctx context.Context, m *model.Model, fit *gates.Fit, linear []checkpoints.GateLayer, seed uint64) (*gates.Fitted, error) {
	out := &gates.Fitted{Explained: make([]float64, len(linear))}
	g.Progress(0)
	for l := range linear {
		gate, err := g.trainLayer(ctx, m, l, fit, linear[l], seed)
		if err != nil {
			return nil, fmt.Errorf("layer %d: %w", l, err)
		}
		out.Gates = append(out.Gates, gate)
		g.Progress(l + 1)
	}
	a, err := gates.Load(m, &checkpoints.Adapter{Kind: gates.Kind, Gates: out.Gates})
	if err != nil {
		return nil, err
	}
	for l := range linear {
		out.Explained[l] = explained(m, a, l, fit.Kept(l, gates.HoldOut))
	}
	return out, nil
}

// trainLayer trains the gate of a layer.
func (g *GateMLPs) trainLayer(ctx context.Context, m *model.Model, layer int, fit *gates.Fit, linear checkpoints.GateLayer, seed uint64) (_ checkpoints.GateLayer, err error) {
	defer kernels.CatchDevice(&err)
	rows, watched := fit.Kept(layer, gates.Learn), fit.Kept(layer, gates.Watch)
	rng := rand.New(rand.NewPCG(seed, 0x6d6c7073+uint64(layer)))
	mlp := newGateMLP(m, layer, g.Hidden, linear, rng)
	mlp.mean, mlp.deviation = fit.Moments(layer)
	mlp.beginLinear(linear)
	if rows.Len() == 0 { // of a layer without pairs of its own
		return mlp.export(), nil
	}
	s, err := mlp.student(min(g.Batch, rows.Len()))
	if err != nil {
		return nil, err
	}
	defer s.graph.Close()
	c, o := g.config(), newOptimizer(m, mlp.params)
	var order []int
	best, least := make([]*kernels.Tensor, len(mlp.params)), math.Inf(1)
	keep := func() error {
		e, err := s.errorOf(watched)
		if err == nil && !(e >= least) { // of no rows it is NaN, and the last ones are kept
			least = e
			for i, p := range mlp.params {
				best[i] = kernels.FromF64(p.Tensor.Float64s(), p.Tensor.Shape...)
			}
		}
		return err
	}
	for step := range g.Steps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if step%max(1, g.Steps/validations) == 0 {
			if err := keep(); err != nil {
				return nil, err
			}
		}
		if len(order) < s.rows {
			order = rng.Perm(rows.Len())
		}
		s.loadRows(rows, order[:s.rows])
		order = order[s.rows:]
		if err := s.step(o, &c, g.LearningRate, step); err != nil {
			return nil, fmt.Errorf("step %d: %w", step+1, err)
		}
	}
	if err := keep(); err != nil {
		return nil, err
	}
	for i, p := range mlp.params {
		kernels.Convert(p.Tensor, best[i])
	}
	return mlp.export(), nil
}

// validations is how often the error of watched rows is looked at.
const validations = 20

// gateMLP is a gate in training, whose inputs are brought to mean 0 and deviation 1: channels of a residual stream differ a
// hundredfold.
type gateMLP struct {
	m               *model.Model
	layer           int
	params          []model.Parameter // 0.weight [hidden, in], 0.bias [hidden], 2.weight [kvHeads, hidden], 2.bias [kvHeads]
	mean, deviation []float64         // of the inputs
}

// newGateMLP is at random inside and zero behind that.
func newGateMLP(m *model.Model, layer, hidden int, linear checkpoints.GateLayer, rng *rand.Rand) *gateMLP {
	in, heads := linear["weight"].Cols, linear["weight"].Rows
	inner := make([]float64, hidden*in)
	for i := range inner {
		inner[i] = rng.NormFloat64() / math.Sqrt(float64(in))
	}
	g := &gateMLP{m: m, layer: layer}
	for i, name := range checkpoints.MLPGate {
		shape := [][]int{{hidden, in}, {hidden}, {heads, hidden}, {heads}}[i]
		values := inner
		if i > 0 {
			values = make([]float64, kernels.ShapeLen(shape))
		}
		g.params = append(g.params, model.Parameter{Name: name, Tensor: m.LayerParameter(layer, values, shape...), Layer: layer})
	}
	return g
}

// beginLinear makes the gate the linear one: two numbers between are ±w·x of each head, and their GELU have ±1 as weights.
func (g *gateMLP) beginLinear(linear checkpoints.GateLayer) {
	weight, bias := linear["weight"], linear["bias"].Data
	in, out, shift := g.params[0].Tensor.Float64s(), g.params[2].Tensor.Float64s(), make([]float64, len(bias))
	hidden := g.params[1].Tensor.Len()
	for h := range bias {
		shift[h] = float64(bias[h])
		up, down := in[2*h*weight.Cols:][:weight.Cols], in[(2*h+1)*weight.Cols:][:weight.Cols]
		for i, w := range weight.Data[h*weight.Cols:][:weight.Cols] {
			up[i], down[i] = float64(w)*g.deviation[i], -float64(w)*g.deviation[i]
			shift[h] += float64(w) * g.mean[i]
		}
		out[h*hidden+2*h], out[h*hidden+2*h+1] = 1, -1
	}
	for i, values := range map[int][]float64{0: in, 2: out, 3: shift} {
		kernels.Convert(g.params[i].Tensor, kernels.FromF64(values, g.params[i].Tensor.Shape...))
	}
}

// export is the gate of inputs as they are.
func (g *gateMLP) export() checkpoints.GateLayer {
	inner, bias := g.params[0].Tensor.Float64s(), g.params[1].Tensor.Float64s()
	in := len(g.mean)
	for j := range bias {
		for i := range in {
			inner[j*in+i] /= g.deviation[i]
			bias[j] -= inner[j*in+i] * g.mean[i]
		}
	}
	out := make(checkpoints.GateLayer)
	for i, p := range g.params {
		values := [][]float64{inner, bias, nil, nil}[i]
		if values == nil {
			values = p.Tensor.Float64s()
		}
		x := checkpoints.Matrix{Rows: p.Tensor.Dim0(), Cols: p.Tensor.Width(), Data: make([]float32, len(values))}
		if len(p.Tensor.Shape) == 1 {
			x.Rows, x.Cols = 1, len(values)
		}
		for j, v := range values {
			x.Data[j] = float32(v)
		}
		out[p.Name] = x
	}
	return out
}

// gateStudent is the graph of a gate in training.
type gateStudent struct {
	*gateMLP
	graph   *autodiff.Graph
	rows    int             // of a step
	x, logs *kernels.Tensor // [rows, in], [rows, kvHeads]
}

// student compiles the graph of so many rows a step.
func (g *gateMLP) student(rows int) (*gateStudent, error) {
	on, in, heads := g.m.On(g.layer), g.params[0].Tensor.Width(), g.params[3].Tensor.Len()
	s := &gateStudent{gateMLP: g, rows: rows, x: on.Alloc(on.Compute(), rows, in), logs: on.Alloc(on.Compute(), rows, heads)}
	var err error
	s.graph, err = autodiff.Build(func(graph *autodiff.Graph) (autodiff.Node, error) {
		var p []autodiff.Node
		for _, x := range g.params {
			p = append(p, graph.Parameter(x.Name, x.Tensor))
		}
		inner := graph.GELU(graph.Dense(graph.Constant(s.x), p[0], p[1]))
		return graph.SquaredError(graph.Dense(inner, p[2], p[3]), s.logs), nil
	}, on)
	return s, err
}

// step does AdamW step i, from 0, of a schedule with that peak on the rows that are loaded.
func (s *gateStudent) step(o *optimizer, c *Config, peak float64, i int) error {
	if _, err := s.graph.Run(); err != nil {
		return err
	}
	grads, bad, err := o.gradients(s.graph)
	if err != nil {
		return err
	}
	if bad != "" {
		return fmt.Errorf("%s: %w: want a learning rate below %v", bad, ErrNonFinite, peak)
	}
	o.clear()
	o.addGradients(grads)
	o.update(c, peak, i, 1)
	return nil
}

// errorOf is the mean squared error of rows; NaN of none. What fills the last run are the first ones again.
func (s *gateStudent) errorOf(rows *gates.Rows) (float64, error) {
	sum, runs, at := 0.0, 0.0, make([]int, s.rows)
	for from := 0; from < rows.Len(); from += s.rows {
		for i := range at {
			at[i] = (from + i) % rows.Len()
		}
		s.loadRows(rows, at)
		e, err := s.graph.Run()
		if err != nil {
			return 0, err
		}
		sum, runs = sum+e, runs+1
	}
	return sum / runs, nil
}

// loadRows makes the rows at the given places those of the next run.
func (s *gateStudent) loadRows(rows *gates.Rows, at []int) {
	x, logs := make([]float32, s.x.Len()), make([]float32, s.logs.Len())
	rows.Read(x, logs, at)
	in := len(s.mean)
	for i, v := range x {
		x[i] = float32((float64(v) - s.mean[i%in]) / s.deviation[i%in])
	}
	kernels.Convert(s.x, kernels.FromF32(x, s.x.Shape...))
	kernels.Convert(s.logs, kernels.FromF32(logs, s.logs.Shape...))
}

// explained is the share of the variance of the rows' logarithms that a layer's gate predicts, the mean over its heads; NaN of no
// rows.
func explained(m *model.Model, a model.Gate, layer int, rows *gates.Rows) float64 {
	on, in, heads := m.On(layer), m.Config.Hidden, m.Config.KV(layer).Heads
	left, sum, squares := make([]float64, heads), make([]float64, heads), make([]float64, heads)
	const most = 512 // rows at once
	for from := 0; from < rows.Len(); from += most {
		var at []int
		for i := from; i < min(from+most, rows.Len()); i++ {
			at = append(at, i)
		}
		n := len(at)
		x, logs := make([]float32, n*in), make([]float32, n*heads)
		rows.Read(x, logs, at)
		h, scores := on.Alloc(on.Compute(), n, in), on.Alloc(on.Compute(), heads, n)
		kernels.Convert(h, kernels.FromF32(x, n, in))
		a.Score(m, layer, scores, h, on)
		for i, got := range scores.Float64s() {
			head, want := i/n, float64(logs[i%n*heads+i/n])
			left[head] += (got - want) * (got - want)
			sum[head] += want
			squares[head] += want * want
		}
	}
	total, n := 0.0, float64(rows.Len())
	for h := range heads {
		total += 1 - left[h]/(squares[h]-sum[h]*sum[h]/n)
	}
	return total / float64(heads)
}
