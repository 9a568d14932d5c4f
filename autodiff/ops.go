package autodiff

import (
	"fmt"
	"slices"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// pick reads one result of an operation that has several.
func (g *Graph) pick(bundle *G.Node, i int, shape tensor.Shape) (*G.Node, error) {
	return g.apply(op{name: fmt.Sprintf("part%d", i), out: shape, forward: func(in []*value) (*value, error) {
		return in[0].parts[i], nil
	}}, bundle)
}

// picks reads all results.
func (g *Graph) picks(bundle *G.Node, shapes ...tensor.Shape) (G.Nodes, error) {
	out := make(G.Nodes, len(shapes))
	for i, s := range shapes {
		n, err := g.pick(bundle, i, s)
		if err != nil {
			return nil, err
		}
		out[i] = n
	}
	return out, nil
}

func bundle(parts ...*value) *value {
	b := *parts[0]
	b.parts = parts
	return &b
}

// Add is the residual sum of two nodes of one shape.
func (g *Graph) Add(a, b Node) Node {
	e := g.engine
	return g.add(op{name: "add", out: a.n.Shape(), diff: []bool{true, true},
		forward: func(in []*value) (*value, error) {
			y := e.alloc(in[0].t.Shape...)
			e.backend.Add(y.t, in[0].t, in[1].t)
			return y, nil
		},
		backward: func(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) { return G.Nodes{grad, grad}, nil },
	}, a, b)
}

// Scale is x times a constant.
func (g *Graph) Scale(x Node, by float64) Node {
	if by == 1 {
		return x
	}
	b := g.engine.backend
	scale := func(y, x *kernels.Tensor) {
		b.Fill(y, 0)
		b.Axpy(y, by, x)
	}
	return g.unary("scale", x, scale, func(dx, _, dy *kernels.Tensor) { scale(dx, dy) })
}

// RMSNorm normalises the rows of x by the frozen weight w [width]. Where rows of
// x hold several times the width, every part is normalised on its own: the heads
// of queries and keys.
func (g *Graph) RMSNorm(x Node, w *kernels.Tensor, eps float64) Node {
	b := g.engine.backend
	return g.unary("rmsnorm", x,
		func(y, x *kernels.Tensor) { b.RMSNorm(parts(y, w), parts(x, w), w, eps) },
		func(dx, x, dy *kernels.Tensor) { b.RMSNormGrad(parts(dx, w), parts(x, w), w, parts(dy, w), eps) })
}

// parts views x as rows of the width of w.
func parts(x, w *kernels.Tensor) *kernels.Tensor {
	return x.Reshape(x.Len()/w.Len(), w.Len())
}

// LayerNorm normalises the rows of x by the frozen weight and bias.
func (g *Graph) LayerNorm(x Node, w, bias *kernels.Tensor, eps float64) Node {
	b := g.engine.backend
	return g.unary("layernorm", x,
		func(y, x *kernels.Tensor) { b.LayerNorm(y, x, w, bias, eps) },
		func(dx, x, dy *kernels.Tensor) { b.LayerNormGrad(dx, x, w, dy, eps) })
}

// GELU is x · Φ(x).
func (g *Graph) GELU(x Node) Node {
	b := g.engine.backend
	return g.unary("gelu", x, b.GELU, b.GELUGrad)
}

// Function is a function of one node that keeps its shape and may read numbers on the host, so that runs are not
// replayed as graphs of a device. gradient writes dx at x from dy, and those of the parameters that f reads.
// Both take temporary memory from the arena and give it back.
func (g *Graph) Function(name string, x Node, f func(b kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor), gradient func(b kernels.Backend, arena *kernels.Arena, dx *kernels.Tensor, dParams []*kernels.Tensor, x, dy *kernels.Tensor), params ...Node) Node {
	if x.n == nil {
		return Node{}
	}
	g.readsNumbers = true
	e := g.engine
	return g.add(op{name: name, out: x.n.Shape(), diff: slices.Repeat([]bool{true}, 1+len(params)),
		forward: func(in []*value) (*value, error) {
			y := e.alloc(in[0].t.Shape...)
			f(e.backend, e.arena, y.t, in[0].t)
			return y, nil
		},
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			n, err := g.apply(op{name: name + "Grad", out: in[0].Shape(), forward: func(v []*value) (*value, error) {
				all, tensors := make([]*value, len(v)-1), make([]*kernels.Tensor, len(v)-1)
				for i := range all {
					all[i] = e.alloc(v[i].t.Shape...)
					tensors[i] = all[i].t
				}
				gradient(e.backend, e.arena, tensors[0], tensors[1:], v[0].t, v[len(v)-1].t)
				return bundle(all...), nil
			}}, append(slices.Clone(in), grad)...)
			if err != nil {
				return nil, err
			}
			shapes := make([]tensor.Shape, len(in))
			for i, x := range in {
				shapes[i] = x.Shape()
			}
			return g.picks(n, shapes...)
		},
	}, append([]Node{x}, params...)...)
}

// unary is a function of one node that keeps its shape, and its gradient dx at x
// from dy.
func (g *Graph) unary(name string, x Node, f func(y, x *kernels.Tensor), gradient func(dx, x, dy *kernels.Tensor)) Node {
	if x.n == nil {
		return Node{}
	}
	e := g.engine
	return g.add(op{name: name, out: x.n.Shape(), diff: []bool{true},
		forward: func(in []*value) (*value, error) {
			y := e.alloc(in[0].t.Shape...)
			f(y.t, in[0].t)
			return y, nil
		},
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			n, err := g.apply(op{name: name + "Grad", out: in[0].Shape(), forward: func(v []*value) (*value, error) {
				dx := e.alloc(v[0].t.Shape...)
				gradient(dx.t, v[0].t, v[1].t)
				return dx, nil
			}}, in[0], grad)
			return G.Nodes{n}, err
		},
	}, x)
}

// GateMul is what a gate lets through.
func (g *Graph) GateMul(act kernels.Gate, gate, up Node) Node {
	e := g.engine
	if act == kernels.SiLU {
		return g.binary(fmt.Sprint("gate", act), gate, up, e.backend.SiLUMul, e.backend.SiLUMulGrad)
	}
	return g.binary(fmt.Sprint("gate", act), gate, up,
		func(y, gate, up *kernels.Tensor) { e.backend.GateMul(act, y, gate, up) },
		func(dgate, dup, gate, up, dy *kernels.Tensor) { e.backend.GateMulGrad(act, dgate, dup, gate, up, dy) })
}

// Function2 is Function of two nodes of one shape; gradient writes dx and dz.
func (g *Graph) Function2(name string, x, z Node, f func(y, x, z *kernels.Tensor), gradient func(dx, dz, x, z, dy *kernels.Tensor)) Node {
	g.readsNumbers = true
	return g.binary(name, x, z, f, gradient)
}

// binary is a function of two nodes that have its shape, and their gradients dx and dz from dy.
func (g *Graph) binary(name string, x, z Node, f func(y, x, z *kernels.Tensor), gradient func(dx, dz, x, z, dy *kernels.Tensor)) Node {
	e := g.engine
	return g.add(op{name: name, out: x.n.Shape(), diff: []bool{true, true},
		forward: func(in []*value) (*value, error) {
			y := e.alloc(in[0].t.Shape...)
			f(y.t, in[0].t, in[1].t)
			return y, nil
		},
		backward: func(in G.Nodes, _, dy *G.Node) (G.Nodes, error) {
			b, err := g.apply(op{name: name + "Grad", out: in[0].Shape(), forward: func(v []*value) (*value, error) {
				dx, dz := e.alloc(v[0].t.Shape...), e.alloc(v[0].t.Shape...)
				gradient(dx.t, dz.t, v[0].t, v[1].t, v[2].t)
				return bundle(dx, dz), nil
			}}, in[0], in[1], dy)
			if err != nil {
				return nil, err
			}
			return g.picks(b, in[0].Shape(), in[1].Shape())
		},
	}, x, z)
}

// QueryRoPE rotates queries [rows, heads·headDim] of a layer to the sample's positions.
func (g *Graph) QueryRoPE(x Node, s *Sample, layer, heads, headDim int) Node {
	return g.rope(x, s, func() *kernels.RoPETable { return s.QueryRoPE[layer] }, heads, headDim)
}

// KeyRoPE is QueryRoPE of keys.
func (g *Graph) KeyRoPE(x Node, s *Sample, layer, heads, headDim int) Node {
	return g.rope(x, s, func() *kernels.RoPETable { return s.KeyRoPE[layer] }, heads, headDim)
}

// rope rotates by the table of a run.
func (g *Graph) rope(x Node, s *Sample, table func() *kernels.RoPETable, heads, headDim int) Node {
	e := g.engine
	rotate := func(inverse bool) func([]*value) (*value, error) {
		return func(in []*value) (*value, error) {
			y := e.alloc(in[0].t.Shape...)
			e.backend.Rotate(y.t.Reshape(len(s.Positions), heads, headDim), in[0].t.Reshape(len(s.Positions), heads, headDim), s.Positions, table(), inverse)
			return y, nil
		}
	}
	return g.add(op{name: "rope", out: x.n.Shape(), diff: []bool{true}, forward: rotate(false),
		backward: func(_ G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			n, err := g.apply(op{name: "ropeGrad", out: grad.Shape(), forward: rotate(true)}, grad)
			return G.Nodes{n}, err
		},
	}, x)
}
