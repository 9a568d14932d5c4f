package autodiff

import (
	"fmt"
	"sync"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Graph is a differentiable computation on one backend. It is used by one
// goroutine at a time.
type Graph struct {
	engine *engine
	g      *G.ExprGraph
	params []*G.Node
	names  []string
	loss   *G.Node
	grads  G.Nodes
	vm     G.VM
	err    error // first error while building
	// work is the runs as a graph of the device; nil where it has none. The first run
	// loads what the device needs.
	work kernels.Graph
	ran  bool
	// attends are those of the present run.
	attends []*kernels.Attend
}

// Node is a tensor in a graph.
type Node struct{ n *G.Node }

// Sample is what a run computes on besides the parameters. Operations hold a
// pointer to it.
type Sample struct {
	Past      [][]kernels.KV     // keys and values of the prompt, [layer][kvHead]
	Positions []int32            // of the rows
	RoPE      *kernels.RoPETable // covers Positions
	Targets   []*kernels.Tensor  // per layer [heads, entries], logarithms of attention
}

// warm makes gorgonia fill its caches of shared constants once per type, which
// would otherwise be a data race between graphs of different goroutines.
var warm = sync.OnceFunc(func() {
	for _, dt := range []tensor.Dtype{tensor.Float32, tensor.Float64} {
		g := G.NewGraph()
		x := G.NewScalar(g, dt, G.WithName("x"))
		if _, err := G.Grad(G.Must(G.Square(x)), x); err != nil {
			panic("autodiff: warm-up: " + err.Error())
		}
	}
})

// New returns an empty graph.
func New(b kernels.Backend) *Graph {
	warm()
	g := &Graph{g: G.NewGraph(), work: b.NewGraph()}
	if g.work != nil {
		b = g.work.Backend()
	}
	g.engine = &engine{backend: b, arena: kernels.NewArena(b)}
	return g
}

// Parameter adds a trainable tensor. The graph reads it where it lies, so an
// optimiser updates it in place.
func (g *Graph) Parameter(name string, t *kernels.Tensor) Node {
	n := G.NewTensor(g.g, denseType(t.DType), len(t.Shape), G.WithShape(t.Shape...), G.WithName(name))
	v := g.engine.wrap(t)
	g.engine.params = append(g.engine.params, v)
	if err := G.Let(n, v); err != nil {
		g.fail(fmt.Errorf("parameter %s: %w", name, err))
	}
	g.params, g.names = append(g.params, n), append(g.names, name)
	return Node{n}
}

func (g *Graph) fail(err error) {
	if g.err == nil && err != nil {
		g.err = err
	}
}

// add applies an operation; the first error is kept for Compile.
func (g *Graph) add(o op, in ...Node) Node {
	ns := make([]*G.Node, len(in))
	for i, n := range in {
		if n.n == nil { // an earlier error
			return Node{}
		}
		ns[i] = n.n
	}
	n, err := g.apply(o, ns...)
	g.fail(err)
	return Node{n}
}

// Compile differentiates loss with respect to all parameters and prepares the
// graph for Run.
func (g *Graph) Compile(loss Node) error {
	if g.err != nil {
		return fmt.Errorf("autodiff: build: %w", g.err)
	}
	grads, err := G.Grad(loss.n, g.params...)
	if err != nil {
		return fmt.Errorf("autodiff: differentiate: %w", err)
	}
	g.loss, g.grads = loss.n, grads
	// Gorgonia merges nodes whose 32-bit hashes are equal.
	seen := make(map[uint32]*G.Node)
	for _, n := range g.g.AllNodes() {
		if other, ok := seen[n.Hashcode()]; ok && other != n {
			return fmt.Errorf("autodiff: nodes %v and %v have the same hash", other, n)
		}
		seen[n.Hashcode()] = n
	}
	g.vm = G.NewTapeMachine(g.g, G.WithEngine(g.engine))
	return nil
}

// Run computes loss and gradients for the current sample. Gradients and
// everything else of the previous run are overwritten.
func (g *Graph) Run() (loss float64, err error) {
	defer func() { // values live until the next run, and would keep the prompt's cache alive
		for _, a := range g.attends {
			a.Past = nil
		}
		g.attends = g.attends[:0]
	}()
	run := func() error {
		g.engine.release()
		g.vm.Reset()
		return g.vm.RunAll()
	}
	if g.work != nil && g.ran {
		err = g.work.Run(run)
	} else {
		err = run()
	}
	if err != nil {
		return 0, fmt.Errorf("autodiff: %w", err)
	}
	g.ran = true
	v, ok := g.loss.Value().(*value)
	if !ok {
		return 0, fmt.Errorf("autodiff: loss is a %T", g.loss.Value())
	}
	return v.t.At(0), nil
}

// Parameters are the names, in the order in which they were added.
func (g *Graph) Parameters() []string { return g.names }

// Gradient is the gradient of parameter i, valid until the next Run.
func (g *Graph) Gradient(i int) (*kernels.Tensor, error) {
	v, ok := g.grads[i].Value().(*value)
	if !ok || v.null {
		return nil, fmt.Errorf("autodiff: no gradient for %s", g.names[i])
	}
	return v.t, nil
}

// Nodes is the size of the graph, backward part included.
func (g *Graph) Nodes() int { return len(g.g.AllNodes()) }

// ScratchBytes is the memory that runs hold.
func (g *Graph) ScratchBytes() int64 { return g.engine.arena.Bytes() }

// Close releases the machine and the memory of the runs, which gorgonia's own pools
// would refer to until they are used again.
func (g *Graph) Close() error {
	if g.work != nil {
		g.work.Close()
	}
	if g.vm == nil {
		return nil
	}
	vm := g.vm
	g.vm = nil
	g.engine.forget()
	return vm.Close()
}
