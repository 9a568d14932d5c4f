package autodiff

import (
	"errors"
	"fmt"
	"sync"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Graph is a differentiable computation on one backend, or on several, one after the other. It
// is used by one goroutine at a time.
type Graph struct {
	engine  *engine                     // of the operations that are added
	engines []*engine                   // of all devices
	on      map[kernels.Backend]*engine // by the device that callers know
	g       *G.ExprGraph
	params  []*G.Node
	names   []string
	loss    *G.Node
	grads   G.Nodes
	vm      G.VM
	err     error // first error while building
	// work is the runs as a graph of the device; nil where it has none. The first run
	// loads what the device needs.
	work kernels.Graph
	ran  bool
	// readsNumbers tells that an operation reads numbers on the host, which a graph of the device cannot.
	readsNumbers bool
	// attends belong to the present run.
	attends []*kernels.Attend
}

// Node is a tensor in a graph.
type Node struct {
	n  *G.Node
	on *engine // whose memory it is in
}

// Sample is what a run computes on besides the parameters. Operations hold a
// pointer to it.
type Sample struct {
	Past      [][]kernels.KV       // keys and values of the prompt, [layer][kvHead]
	Positions []int32              // of the rows
	QueryRoPE []*kernels.RoPETable // per layer, cover Positions
	KeyRoPE   []*kernels.RoPETable // the same ones but where queries are scaled by their positions
	Targets   []*kernels.Tensor    // per layer [heads, entries], logarithms of attention; nil of layers without keys and values
	States    [][]*kernels.Tensor  // per layer, what a recurrent one knows of the prompt; nil of others
	Answer    *Behind              // nil: the rows run alone
}

// Behind is what runs behind the rows. It attends to an evicted cache and to the last rows.
type Behind struct {
	Tokens   []int32         // always as many
	From, To int             // of them, those whose next token is compared
	Teacher  *kernels.Tensor // [tokens, hidden], what the head reads of them with the whole cache
	Staying  int             // last rows that the tokens attend to
	// Past is what is kept of a layer by the rows' scores [heads, entries], in memory that lives as long as the run.
	Past func(b kernels.Backend, memory *kernels.Arena, layer int, scores *kernels.Tensor) []kernels.KV
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

// errSameHash: Gorgonia merges nodes whose 32-bit hashes are equal.
var errSameHash = errors.New("two nodes have the same hash")

// Build returns the graph on devices that define adds to and whose loss it returns,
// differentiated with respect to all parameters and ready for Run. Operations are added on the
// first device, until Enter names another. A few graphs in a thousand have two nodes of the same
// hash; define is then called again, with an empty graph and other hashes.
func Build(define func(*Graph) (loss Node, err error), devices ...kernels.Backend) (*Graph, error) {
	for tries := 1; ; tries++ {
		g := newGraph(devices)
		loss, err := define(g)
		if err == nil {
			err = g.differentiate(loss)
		}
		if err == nil {
			return g, nil
		}
		if shut := g.Close(); shut != nil || tries == 8 || !errors.Is(err, errSameHash) {
			return nil, errors.Join(err, shut)
		}
	}
}

func newGraph(devices []kernels.Backend) *Graph {
	warm()
	g := &Graph{g: G.NewGraph(), on: make(map[kernels.Backend]*engine)}
	if len(devices) == 1 {
		g.work = devices[0].NewGraph()
	}
	for _, b := range devices {
		known := b
		if g.work != nil {
			b = g.work.Backend()
		}
		if g.on[known] == nil {
			g.on[known] = &engine{backend: b, arena: kernels.NewArena(b)}
			g.engines = append(g.engines, g.on[known])
		}
	}
	g.engine = g.engines[0]
	return g
}

// Enter adds the operations that follow on device b, one of New's, and returns x there.
func (g *Graph) Enter(b kernels.Backend, x Node) Node {
	from, to := x.on, g.on[b]
	if g.engine = to; x.n == nil || from == to {
		return x
	}
	move := func(to *engine, in []*value) *value {
		y := to.allocValue(in[0].t.Shape...)
		to.backend.Copy(y.t, in[0].t)
		return y
	}
	return g.addNode(op{name: "enter", out: x.n.Shape(), forward: func(in []*value) *value { return move(to, in) },
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			return g.gradients("enter", in, func(v []*value) []*value { return []*value{move(from, v)} }, grad)
		},
	}, x)
}

// Parameter adds a trainable tensor, in memory of the present device. The graph reads it where it lies, so an
// optimiser updates it in place.
func (g *Graph) Parameter(name string, t *kernels.Tensor) Node {
	x := g.leaf(name, t)
	g.params, g.names = append(g.params, x.n), append(g.names, name)
	return x
}

// leaf is a tensor that is read where it lies.
func (g *Graph) leaf(name string, t *kernels.Tensor) Node {
	n := G.NewTensor(g.g, denseType(t.DType), len(t.Shape), G.WithShape(t.Shape...), G.WithName(name))
	v := g.engine.wrap(t)
	g.engine.leaves = append(g.engine.leaves, v)
	if err := G.Let(n, v); err != nil {
		g.recordError(fmt.Errorf("%s: %w", name, err))
	}
	return Node{n, g.engine}
}

func (g *Graph) recordError(err error) {
	if g.err == nil && err != nil {
		g.err = err
	}
}

// addNode adds an operation's node; the first error is kept for Compile.
func (g *Graph) addNode(o op, in ...Node) Node {
	ns := make([]*G.Node, len(in))
	for i, n := range in {
		if n.n == nil { // an earlier error
			return Node{}
		}
		ns[i] = n.n
	}
	n, err := g.applyOperation(o, ns...)
	g.recordError(err)
	return Node{n, g.engine}
}

// differentiate derives loss with respect to all parameters and prepares the graph for Run.
func (g *Graph) differentiate(loss Node) error {
	if g.err != nil {
		return fmt.Errorf("autodiff: build: %w", g.err)
	}
	grads, err := G.Grad(loss.n, g.params...)
	if err != nil {
		return fmt.Errorf("autodiff: differentiate: %w", err)
	}
	g.loss, g.grads = loss.n, grads
	seen := make(map[uint32]*G.Node)
	for _, n := range g.g.AllNodes() {
		if other, ok := seen[n.Hashcode()]; ok && other != n {
			return fmt.Errorf("autodiff: %w: %v and %v", errSameHash, other, n)
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
		for _, e := range g.engines {
			e.release()
		}
		g.vm.Reset()
		return g.vm.RunAll()
	}
	if g.work != nil && g.ran && !g.readsNumbers {
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

// ScratchBytes is the memory that runs hold.
func (g *Graph) ScratchBytes() (n int64) {
	for _, e := range g.engines {
		n += e.arena.Bytes()
	}
	return n
}

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
	for _, e := range g.engines {
		e.forget()
	}
	return vm.Close()
}
