package autodiff

import (
	"fmt"
	"slices"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Constant adds a tensor that is not trained, in memory of the present device. The graph reads it where it lies, so that its
// numbers may be others at every run.
func (g *Graph) Constant(t *kernels.Tensor) Node {
	return g.leaf(fmt.Sprintf("constant%d", opSerial.Add(1)), t)
}

// constant tells that nothing is trained in a node.
func (g *Graph) constant(n *G.Node) bool { return n.Op() == nil && !slices.Contains(g.params, n) }

// Dense is x [rows, in] · wᵀ + bias for trained w [out, in] and bias [out]. Linear is of frozen ones.
func (g *Graph) Dense(x, w, bias Node) Node {
	if x.n == nil || w.n == nil || bias.n == nil {
		return Node{}
	}
	e, b := g.engine, g.engine.backend
	rows, in, out := x.n.Shape()[0], w.n.Shape()[1], w.n.Shape()[0]
	return g.addNode(op{name: "dense", out: tensor.Shape{rows, out},
		forward: func(v []*value) *value {
			y := e.allocValue(rows, out)
			b.Linear(y.t, v[0].t, v[1].t, v[2].t, 1, 0)
			return y
		},
		backward: func(ins G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			constant := g.constant(ins[0])
			return g.gradients("dense", ins, func(v []*value) []*value {
				x, w, dy := v[0].t, v[1].t, v[3].t
				dw, dBias := e.allocValue(out, in), e.allocValue(out)
				b.MatMulTA(dw.t, dy, x, 1, 0)
				ones := e.arena.Alloc(b.Compute(), rows, 1)
				b.Fill(ones, 1)
				b.MatMulTA(dBias.t.Reshape(1, out), ones, dy, 1, 0)
				if constant {
					return []*value{e.null(ins[0].Shape()), dw, dBias}
				}
				dx := e.allocValue(rows, in)
				b.MatMul(dx.t, dy, w, 1, 0)
				return []*value{dx, dw, dBias}
			}, append(slices.Clone(ins), grad)...)
		},
	}, x, w, bias)
}

// SquaredError is the mean over elements of (x − target)², an F64 scalar; target has x's shape, and its numbers may be others at
// every run. The host reads the sum, so that runs are not replayed as graphs of a device.
func (g *Graph) SquaredError(x Node, target *kernels.Tensor) Node {
	g.readsNumbers = true
	e, b := g.engine, g.engine.backend
	return g.addNode(op{name: "squaredError", out: tensor.ScalarShape(),
		forward: func(in []*value) *value {
			d := e.allocValue(target.Shape...)
			b.Copy(d.t, in[0].t)
			b.Axpy(d.t, -1, target)
			loss := e.arena.Alloc(kernels.F64)
			b.Fill(loss, b.SumSquares(d.t)/float64(target.Len()))
			y := e.wrap(loss)
			e.loss, y.saved = y, d
			return y
		},
		backward: func(in G.Nodes, outNode, _ *G.Node) (G.Nodes, error) {
			return g.gradients("squaredError", in, func(v []*value) []*value {
				dx := e.allocValue(target.Shape...)
				b.Fill(dx.t, 0)
				b.Axpy(dx.t, 2/float64(target.Len()), v[0].saved.(*value).t)
				return []*value{dx}
			}, outNode)
		},
	}, x)
}
