package autodiff

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"glimpse/kernels"
	_ "glimpse/kernels/backends" // which tests open by name
)

// opCase is a graph of one operation: build adds parameters and returns what the loss reads.
type opCase struct {
	build func(c *opGraph) []Node
	// loss, where it is set, is the graph's loss itself.
	loss func(c *opGraph) Node
	// prompts are the lengths of the sample's prompt, one run each; none is one run without
	// a prompt.
	prompts []int
	// stays are the rows that an answer of two tokens attends to; 0 is no answer, -1 none of them.
	stays int
}

// opGraph is the graph of a case while it is built.
type opGraph struct {
	*Graph
	t       *testing.T
	rng     *rand.Rand
	sample  *Sample
	devices []kernels.Backend
	params  []*kernels.Tensor
}

// random is a tensor of normal numbers.
func (c *opGraph) random(shape ...int) *kernels.Tensor {
	t := kernels.NewTensor(kernels.F64, shape...)
	for i := range t.F64() {
		t.F64()[i] = c.rng.NormFloat64()
	}
	return t
}

// parameter is a random tensor whose gradient is checked.
func (c *opGraph) parameter(shape ...int) Node {
	t := c.random(shape...)
	c.params = append(c.params, t)
	return c.Parameter(fmt.Sprintf("p%d", len(c.params)), t)
}

// Extents of the cases.
const (
	rows, kvHeads, headDim = 3, 2, 4
	heads                  = 2 * kvHeads
	width                  = heads * headDim
)

var grouped = Heads{Query: heads, KV: kvHeads, Dim: headDim, Scale: 0.5}

// opCases are the operations of Graph by the name of their method, and what is said of
// each.
var opCases = map[string]map[string]opCase{
	"Add": {
		"two nodes": {build: func(c *opGraph) []Node { return []Node{c.Add(c.parameter(rows, width), c.parameter(rows, width))} }},
		"fan-out": {build: func(c *opGraph) []Node { // gradients of both readers are added
			x := c.parameter(rows, width)
			return []Node{c.Add(x, c.GELU(x))}
		}},
	},
	"Enter": {
		"another device and back": {build: func(c *opGraph) []Node {
			x := c.parameter(rows, width)
			y := c.Enter(c.devices[1], c.Enter(c.devices[1], x)) // is there already
			y = c.GELU(c.Add(y, y))
			return []Node{y, c.Add(x, c.Enter(c.devices[0], y))}
		}},
	},
	"Scale": {
		"by a number": {build: func(c *opGraph) []Node { return []Node{c.Scale(c.parameter(rows, width), -0.37)} }},
		"by 1":        {build: func(c *opGraph) []Node { return []Node{c.Scale(c.GELU(c.parameter(rows, width)), 1)} }},
	},
	"Norm": {
		"rows": {build: func(c *opGraph) []Node {
			return []Node{c.Norm(c.parameter(rows, width), kernels.Norm{Weight: c.random(width), Eps: 1e-5})}
		}},
		"heads": {build: func(c *opGraph) []Node {
			return []Node{c.Norm(c.parameter(rows, width), kernels.Norm{Weight: c.random(headDim), Eps: 1e-5})}
		}},
		"bias": {build: func(c *opGraph) []Node {
			return []Node{c.Norm(c.parameter(rows, width), kernels.Norm{Weight: c.random(width), Bias: c.random(width), Eps: 1e-5})}
		}},
	},
	"GELU": {
		"rows": {build: func(c *opGraph) []Node { return []Node{c.GELU(c.parameter(rows, width))} }},
	},
	"Function": {
		"squares": {build: func(c *opGraph) []Node {
			square := func(_ kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor) {
				defer arena.Release(arena.Mark())
				copied := arena.Alloc(kernels.F64, x.Shape...)
				for i, v := range x.F64() {
					copied.F64()[i] = v * v
				}
				copy(y.F64(), copied.F64())
			}
			return []Node{c.Function("square", c.parameter(rows, width), square, func(_ kernels.Backend, _ *kernels.Arena, dx *kernels.Tensor, _ []*kernels.Tensor, x, dy *kernels.Tensor) {
				for i, v := range x.F64() {
					dx.F64()[i] = 2 * v * dy.F64()[i]
				}
			})}
		}},
		"of a parameter": {build: func(c *opGraph) []Node {
			factors := c.parameter(2)
			p := c.params[len(c.params)-1]
			scaled := func(_ kernels.Backend, _ *kernels.Arena, y, x *kernels.Tensor) {
				for i, v := range x.F64() {
					y.F64()[i] = v * p.F64()[i%2]
				}
			}
			return []Node{c.Function("scaled", c.parameter(rows, width), scaled, func(_ kernels.Backend, _ *kernels.Arena, dx *kernels.Tensor, dParams []*kernels.Tensor, x, dy *kernels.Tensor) {
				clear(dParams[0].F64())
				for i, v := range x.F64() {
					dx.F64()[i] = p.F64()[i%2] * dy.F64()[i]
					dParams[0].F64()[i%2] += v * dy.F64()[i]
				}
			}, factors)}
		}},
	},
	"Function2": {
		"product": {build: func(c *opGraph) []Node {
			return []Node{c.Function2("product", c.parameter(rows, width), c.parameter(rows, width),
				func(y, x, z *kernels.Tensor) {
					for i, v := range x.F64() {
						y.F64()[i] = v * z.F64()[i]
					}
				},
				func(dx, dz, x, z, dy *kernels.Tensor) {
					for i, d := range dy.F64() {
						dx.F64()[i], dz.F64()[i] = d*z.F64()[i], d*x.F64()[i]
					}
				})}
		}},
	},
	"GateMul": {
		"rows": {build: func(c *opGraph) []Node {
			return []Node{c.GateMul(kernels.SiLU, c.parameter(rows, width), c.parameter(rows, width))}
		}},
		"one node twice": {build: func(c *opGraph) []Node {
			x := c.parameter(rows, width)
			return []Node{c.GateMul(kernels.SiLU, x, x)}
		}},
		"GELU": {build: func(c *opGraph) []Node {
			return []Node{c.GateMul(kernels.GELUTanh, c.parameter(rows, width), c.parameter(rows, width))}
		}},
		"clamped SwiGLU": {build: func(c *opGraph) []Node {
			return []Node{c.GateMul(kernels.ClampedSwiGLU, c.Scale(c.parameter(rows, width), 4), c.Scale(c.parameter(rows, width), 6))}
		}},
	},
	"QueryRoPE": {
		"after prompts": {prompts: []int{1, 7}, build: func(c *opGraph) []Node {
			return []Node{c.QueryRoPE(c.parameter(rows, width), c.sample, 0, heads, headDim)}
		}},
	},
	"KeyRoPE": {
		"after prompts": {prompts: []int{1, 7}, build: func(c *opGraph) []Node {
			return []Node{c.KeyRoPE(c.parameter(rows, width), c.sample, 0, heads, headDim)}
		}},
	},
	"Linear": {
		"weight": {build: func(c *opGraph) []Node {
			return []Node{c.Linear(c.parameter(rows, width), c.random(5, width), nil, nil)}
		}},
		"weight and bias": {build: func(c *opGraph) []Node {
			return []Node{c.Linear(c.parameter(rows, width), c.random(5, width), c.random(5), nil)}
		}},
		"LoRA": {build: func(c *opGraph) []Node {
			lora := &LoRA{A: c.parameter(2, width), B: c.parameter(5, 2), Scale: 1.5}
			return []Node{c.Linear(c.parameter(rows, width), c.random(5, width), nil, lora)}
		}},
		"LoRA of the first rows": {build: func(c *opGraph) []Node {
			lora := &LoRA{A: c.parameter(2, width), B: c.parameter(5, 2), Scale: 1.5, Rows: 2}
			return []Node{c.Linear(c.parameter(rows, width), c.random(5, width), c.random(5), lora)}
		}},
		"LoRA and bias": {build: func(c *opGraph) []Node {
			lora := &LoRA{A: c.parameter(1, width), B: c.parameter(5, 1), Scale: 4}
			return []Node{c.Linear(c.parameter(rows, width), c.random(5, width), c.random(5), lora)}
		}},
	},
	"Attention": {
		"output and scores": {prompts: []int{1, 9, 40}, build: func(c *opGraph) []Node {
			out, scores := c.Attention(c.parameter(rows, width), c.parameter(rows, kvHeads*headDim), c.parameter(rows, kvHeads*headDim), c.sample, 0, grouped)
			return []Node{scores, out}
		}},
		"output alone": {prompts: []int{9}, build: func(c *opGraph) []Node {
			out, _ := c.Attention(c.parameter(rows, width), c.parameter(rows, kvHeads*headDim), c.parameter(rows, kvHeads*headDim), c.sample, 0, grouped)
			return []Node{out}
		}},
		"sliding window": {prompts: []int{9}, build: func(c *opGraph) []Node {
			windowed := grouped
			windowed.Window = 5
			out, _ := c.Attention(c.parameter(rows, width), c.parameter(rows, kvHeads*headDim), c.parameter(rows, kvHeads*headDim), c.sample, 0, windowed)
			return []Node{out}
		}},
		"scores of two layers": {prompts: []int{9, 3}, build: func(c *opGraph) []Node {
			k, v := c.parameter(rows, kvHeads*headDim), c.parameter(rows, kvHeads*headDim)
			out, first := c.Attention(c.parameter(rows, width), k, v, c.sample, 0, grouped)
			return []Node{first, c.Scores(out, k, c.sample, 1, grouped)}
		}},
	},
	"Join": {
		"constants behind rows": {build: func(c *opGraph) []Node {
			more := c.random(2, width)
			return []Node{c.Join(c.parameter(rows, width), 2, func(dst *kernels.Tensor) { copy(dst.F64(), more.F64()) })}
		}},
	},
	"AttentionBehind": {
		"output and scores": {prompts: []int{9, 40}, stays: 2, build: func(c *opGraph) []Node {
			out, scores := c.AttentionBehind(c.parameter(rows+2, width), c.parameter(rows+2, kvHeads*headDim), c.parameter(rows+2, kvHeads*headDim), c.sample, 0, grouped, rows)
			return []Node{scores, out}
		}},
		"output alone, no row stays": {prompts: []int{9}, stays: -1, build: func(c *opGraph) []Node {
			out, _ := c.AttentionBehind(c.parameter(rows+2, width), c.parameter(rows+2, kvHeads*headDim), c.parameter(rows+2, kvHeads*headDim), c.sample, 0, grouped, rows)
			return []Node{out}
		}},
	},
	"Scores": {
		"grouped": {prompts: []int{1, 9, 40}, build: func(c *opGraph) []Node {
			return []Node{c.Scores(c.parameter(rows, width), c.parameter(rows, kvHeads*headDim), c.sample, 0, grouped)}
		}},
	},
	"MergeScores": {
		"of two layers on one prompt": {prompts: []int{1, 9}, build: func(c *opGraph) []Node {
			k, v := c.parameter(rows, kvHeads*headDim), c.parameter(rows, kvHeads*headDim)
			out, first := c.Attention(c.parameter(rows, width), k, v, c.sample, 0, grouped)
			return []Node{c.MergeScores(first, c.Scores(out, k, c.sample, 0, grouped), 2, 1)}
		}},
	},
	"Constant": {
		"added": {build: func(c *opGraph) []Node {
			return []Node{c.Add(c.Constant(c.random(rows, width)), c.GELU(c.parameter(rows, width)))}
		}},
	},
	"Dense": {
		"of a node": {build: func(c *opGraph) []Node {
			return []Node{c.Dense(c.GELU(c.parameter(rows, width)), c.parameter(5, width), c.parameter(5))}
		}},
		"of a parameter": {build: func(c *opGraph) []Node {
			return []Node{c.Dense(c.parameter(rows, width), c.parameter(5, width), c.parameter(5))}
		}},
		"MLP of a constant": {build: func(c *opGraph) []Node {
			inner := c.GELU(c.Dense(c.Constant(c.random(rows, width)), c.parameter(6, width), c.parameter(6)))
			return []Node{c.Dense(inner, c.parameter(2, 6), c.parameter(2))}
		}},
	},
	"SquaredError": {
		"of an MLP": {loss: func(c *opGraph) Node {
			inner := c.GELU(c.Dense(c.Constant(c.random(rows, width)), c.parameter(6, width), c.parameter(6)))
			return c.SquaredError(c.Dense(inner, c.parameter(2, 6), c.parameter(2)), c.random(rows, 2))
		}},
	},
	"Loss": {
		"of several layers": {build: func(c *opGraph) []Node { return []Node{c.parameter(rows, width), c.GELU(c.parameter(rows, 2))} }},
	},
}

// quadratic is a loss whose gradient depends on the scores: the mean of target · x + x²/2.
func quadratic(_ kernels.Backend, loss, dScores, scores, target *kernels.Tensor, _, layers int) {
	n := float64(layers * scores.Len())
	for i, x := range scores.F64() {
		w := target.F64()[i]
		loss.F64()[0] += (w*x + x*x/2) / n
		dScores.F64()[i] = (w + x) / n
	}
}

// TestEveryOperationHasCases: whoever adds an operation to Graph adds its gradient check.
func TestEveryOperationHasCases(t *testing.T) {
	typ := reflect.TypeFor[*Graph]()
	seen := 0
	for i := range typ.NumMethod() {
		m := typ.Method(i)
		if m.Type.NumOut() == 0 || m.Type.Out(0) != reflect.TypeFor[Node]() || m.Name == "Parameter" {
			continue
		}
		if seen++; len(opCases[m.Name]) == 0 {
			t.Errorf("Graph.%s has no gradient check", m.Name)
		}
	}
	if seen != len(opCases) {
		t.Errorf("%d operations of Graph, cases of %d", seen, len(opCases))
	}
}

// TestGradientsOfOperations compares the gradient of every operation with central
// differences in float64, element by element, for every parameter that it reads.
func TestGradientsOfOperations(t *testing.T) {
	for op, cases := range opCases {
		for name, c := range cases {
			t.Run(op+"/"+name, func(t *testing.T) { checkOperation(t, c) })
		}
	}
}

func checkOperation(t *testing.T, c opCase) {
	devices, err := kernels.OpenList("reference64,reference64")
	if err != nil {
		t.Fatal(err)
	}
	b := devices[0]
	var g *opGraph
	var read []Node
	compiled, err := Build(func(x *Graph) (Node, error) {
		g = &opGraph{Graph: x, devices: devices, t: t, rng: rand.New(rand.NewPCG(1, 2)), sample: new(Sample)}
		if c.loss != nil {
			return c.loss(g), nil
		}
		read = c.build(g)
		return g.Loss(read, g.sample, quadratic, Node{}, nil), nil
	}, devices...)
	if err != nil {
		t.Fatal(err)
	}
	defer compiled.Close()
	prompts := c.prompts
	if prompts == nil {
		prompts = []int{0}
	}
	for _, n := range prompts {
		g.fill(b, n, c.stays, read)
		run := func() float64 {
			v, err := g.Run()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		run()
		var grads [][]float64
		for i := range g.params {
			grad, err := g.Gradient(i)
			if err != nil {
				t.Fatal(err)
			}
			grads = append(grads, grad.Float64s())
		}
		for i, p := range g.params {
			for j, at := range p.F64() {
				const step = 1e-5
				p.F64()[j] = at + step
				up := run()
				p.F64()[j] = at - step
				down := run()
				p.F64()[j] = at
				want, got := (up-down)/(2*step), grads[i][j]
				if e := math.Abs(got-want) / (1e-4 + math.Abs(got) + math.Abs(want)); !(e <= 1e-5) {
					t.Fatalf("prompt %d: parameter %d[%d]: gradient %.9g, finite difference %.9g, relative error %.2g, want at most 1e-5", n, i, j, got, want, e)
				}
			}
		}
	}
}

// fill makes a sample with a prompt of n tokens, and targets of the shapes that the loss
// reads.
func (c *opGraph) fill(b kernels.Backend, n, stays int, read []Node) {
	*c.sample = Sample{}
	behind := 0
	if stays != 0 {
		behind = 2
		c.sample.Answer = &Behind{Tokens: make([]int32, behind), Staying: max(0, stays), Past: func(b kernels.Backend, memory *kernels.Arena, layer int, _ *kernels.Tensor) []kernels.KV {
			kept := make([][]int32, kvHeads) // heads keep numbers of their own
			for h := range kept {
				for j := h; j < n; j += h + 2 {
					kept[h] = append(kept[h], int32(j))
				}
			}
			return kernels.GatherPairs(b, c.sample.Past[layer], kept, true, memory)
		}}
	}
	for r := range rows + behind {
		c.sample.Positions = append(c.sample.Positions, int32(n+r))
	}
	c.sample.QueryRoPE = []*kernels.RoPETable{kernels.NewRoPETable(b, []float32{1, 0.1}, n+rows, 1.5)}
	c.sample.KeyRoPE = []*kernels.RoPETable{kernels.NewRoPETable(b, []float32{1, 0.1}, n+rows, 1)}
	if n > 0 {
		for range 2 {
			layer := make([]kernels.KV, kvHeads)
			for h := range layer {
				layer[h] = kernels.KV{K: c.random(n, headDim), V: c.random(n, headDim)}
			}
			c.sample.Past = append(c.sample.Past, layer)
		}
	}
	for _, x := range read {
		shape := x.n.Shape()
		if x.n.Op() != nil && strings.HasPrefix(x.n.Op().String(), "scores") { // its declared extent is not that of the prompt
			shape = []int{heads, n}
		}
		c.sample.Targets = append(c.sample.Targets, c.random(shape...))
	}
}

// TestFailures: errors of building, of operations and of shapes come back as errors.
func TestFailures(t *testing.T) {
	b, err := kernels.Open("reference64")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("panic in an operation", func(t *testing.T) {
		s := new(Sample)
		g, err := Build(func(g *Graph) (Node, error) {
			x := g.Parameter("x", kernels.NewTensor(kernels.F64, 2, 3))
			failing := func(kernels.Backend, *kernels.Tensor, *kernels.Tensor, *kernels.Tensor, *kernels.Tensor, int, int) {
				panic("broken loss")
			}
			return g.Loss([]Node{x}, s, failing, Node{}, nil), nil
		}, b)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		s.Targets = []*kernels.Tensor{kernels.NewTensor(kernels.F64, 2, 3)}
		if _, err := g.Run(); err == nil || !strings.Contains(err.Error(), "broken loss") {
			t.Fatalf("error %v, want that of the operation", err)
		}
	})
	t.Run("parameter that the loss does not read", func(t *testing.T) {
		_, err := Build(func(g *Graph) (Node, error) {
			x := g.Parameter("x", kernels.NewTensor(kernels.F64, 2, 3))
			g.Parameter("unused", kernels.NewTensor(kernels.F64, 2, 3))
			return g.Loss([]Node{x}, new(Sample), quadratic, Node{}, nil), nil
		}, b)
		if err == nil {
			t.Fatal("no error")
		}
	})
	t.Run("nodes of the same hash", func(t *testing.T) {
		first, second := sameHash(t, b)
		built := 0
		g, err := Build(func(g *Graph) (Node, error) {
			if built++; built == 1 {
				x := g.Parameter("x", kernels.NewTensor(kernels.F64, 2, 3))
				y := g.Parameter("y", kernels.NewTensor(kernels.F64, 2, 3))
				opSerial.Store(first - 1)
				first := g.GELU(x)
				opSerial.Store(second - 1)
				return g.Loss([]Node{first, g.GELU(y)}, new(Sample), quadratic, Node{}, nil), nil
			}
			return g.Loss([]Node{g.Parameter("x", kernels.NewTensor(kernels.F64, 2, 3))}, new(Sample), quadratic, Node{}, nil), nil
		}, b)
		if err != nil || built != 2 {
			t.Fatalf("built %d times, error %v, want a second time without an error", built, err)
		}
		g.Close()
	})
}

// sameHash is the serials of two operations, one on x and one on y of shape 2×3, that have the same hash.
func sameHash(t *testing.T, b kernels.Backend) (first, second uint64) {
	t.Helper()
	seen := make(map[uint32]uint64)
	for range 1000 { // in small graphs, whose nodes are added faster
		g := newGraph([]kernels.Backend{b})
		defer g.Close()
		x := g.Parameter("x", kernels.NewTensor(kernels.F64, 2, 3))
		y := g.Parameter("y", kernels.NewTensor(kernels.F64, 2, 3))
		for range 1000 {
			seen[g.GELU(x).n.Hashcode()] = opSerial.Load()
			if other, ok := seen[g.GELU(y).n.Hashcode()]; ok {
				return other, opSerial.Load()
			}
		}
	}
	t.Fatal("no two of a million operations have the same hash")
	return 0, 0
}
