package autodiff

import (
	"fmt"
	"slices"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
)

// gradients adds the operation that computes gradients at the nodes of, which f returns, and reads them.
func (g *Graph) gradients(name string, of G.Nodes, f func(v []*value) []*value, in ...*G.Node) (G.Nodes, error) {
	n, err := g.applyOperation(op{name: name + "Grad", out: of[0].Shape(), forward: func(v []*value) *value {
		parts := f(v)
		if len(parts) == 1 {
			return parts[0]
		}
		all := *parts[0]
		all.parts = parts
		return &all
	}}, in...)
	if err != nil || len(of) == 1 {
		return G.Nodes{n}, err
	}
	out := make(G.Nodes, len(of))
	for i, x := range of {
		out[i], err = g.applyOperation(op{name: fmt.Sprintf("part%d", i), out: x.Shape(), forward: func(v []*value) *value { return v[0].parts[i] }}, n)
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Add is the residual sum of two nodes of one shape.
func (g *Graph) Add(a, b Node) Node {
	e := g.engine
	return g.addNode(op{name: "add", out: a.n.Shape(),
		forward: func(in []*value) *value {
			y := e.allocValue(in[0].t.Shape...)
			e.backend.Add(y.t, in[0].t, in[1].t)
			return y
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

// Norm normalises the rows of x by frozen weights. Where rows of x hold several times the width, every
// part is normalised on its own: the heads of queries and keys.
func (g *Graph) Norm(x Node, n kernels.Norm) Node {
	b, width := g.engine.backend, n.Weight.Len()
	rows := func(x *kernels.Tensor) *kernels.Tensor { return x.Reshape(x.Len()/width, width) }
	return g.unary("norm", x,
		func(y, x *kernels.Tensor) { b.Norm(rows(y), rows(x), nil, n) },
		func(dx, x, dy *kernels.Tensor) { b.NormGrad(rows(dx), rows(x), rows(dy), n) })
}

// GELU is x · Φ(x).
func (g *Graph) GELU(x Node) Node {
	b := g.engine.backend
	return g.unary("gelu", x, b.GELU, b.GELUGrad)
}

// Function is a function of one node that keeps its shape and may read numbers on the host, so that runs are not
// replayed as graphs of a device. gradient writes dx at x from dy, and the gradients of the parameters that f reads.
// Both take temporary memory from the arena and give it back.
func (g *Graph) Function(name string, x Node, f func(b kernels.Backend, arena *kernels.Arena, y, x *kernels.Tensor), gradient func(b kernels.Backend, arena *kernels.Arena, dx *kernels.Tensor, dParams []*kernels.Tensor, x, dy *kernels.Tensor), params ...Node) Node {
	g.readsNumbers = true
	e := g.engine
	return g.function(name, append([]Node{x}, params...),
		func(y *kernels.Tensor, x []*kernels.Tensor) { f(e.backend, e.arena, y, x[0]) },
		func(dx, x []*kernels.Tensor, dy *kernels.Tensor) {
			gradient(e.backend, e.arena, dx[0], dx[1:], x[0], dy)
		})
}

// function is a function of nodes that has the shape of the first, and its gradients dx at x from dy.
func (g *Graph) function(name string, nodes []Node, f func(y *kernels.Tensor, x []*kernels.Tensor), gradient func(dx, x []*kernels.Tensor, dy *kernels.Tensor)) Node {
	if nodes[0].n == nil {
		return Node{}
	}
	e := g.engine
	return g.addNode(op{name: name, out: nodes[0].n.Shape(),
		forward: func(in []*value) *value {
			y := e.allocValue(in[0].t.Shape...)
			f(y.t, tensors(in))
			return y
		},
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			return g.gradients(name, in, func(v []*value) (dx []*value) {
				for range in {
					dx = append(dx, e.allocValue(v[len(dx)].t.Shape...))
				}
				gradient(tensors(dx), tensors(v[:len(in)]), v[len(in)].t)
				return dx
			}, append(slices.Clone(in), grad)...)
		},
	}, nodes...)
}

// unary is function of one node.
func (g *Graph) unary(name string, x Node, f func(y, x *kernels.Tensor), gradient func(dx, x, dy *kernels.Tensor)) Node {
	return g.function(name, []Node{x},
		func(y *kernels.Tensor, x []*kernels.Tensor) { f(y, x[0]) },
		func(dx, x []*kernels.Tensor, dy *kernels.Tensor) { gradient(dx[0], x[0], dy) })
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

// binary is function of two nodes of one shape.
func (g *Graph) binary(name string, x, z Node, f func(y, x, z *kernels.Tensor), gradient func(dx, dz, x, z, dy *kernels.Tensor)) Node {
	return g.function(name, []Node{x, z},
		func(y *kernels.Tensor, x []*kernels.Tensor) { f(y, x[0], x[1]) },
		func(dx, x []*kernels.Tensor, dy *kernels.Tensor) { gradient(dx[0], dx[1], x[0], x[1], dy) })
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
	b := g.engine.backend
	rotate := func(y, x *kernels.Tensor, inverse bool) {
		rows := len(s.Positions)
		b.RoPE(y.Reshape(rows, heads, headDim), x.Reshape(rows, heads, headDim), s.Positions, table(), inverse)
	}
	return g.unary("rope", x, func(y, x *kernels.Tensor) { rotate(y, x, false) }, func(dx, _, dy *kernels.Tensor) { rotate(dx, dy, true) })
}
