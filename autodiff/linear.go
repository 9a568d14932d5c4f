package autodiff

import (
	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// LoRA is the trainable low-rank update of a linear layer: A [r, in], B [out, r],
// Scale α/r.
type LoRA struct {
	A, B  Node
	Scale float64
	Rows  int // first rows of x that it acts on; 0: all of them
}

// Linear is x [rows, in] · wᵀ + bias for a frozen weight w [out, in] in its
// stored type, plus Scale · (x Aᵀ) Bᵀ where lora is given (Hu et al. 2022, arXiv:2106.09685, eq. 3).
func (g *Graph) Linear(x Node, w, bias *kernels.Tensor, lora *LoRA) Node {
	if x.n == nil {
		return Node{}
	}
	e, b := g.engine, g.engine.backend
	rows, in, out := x.n.Shape()[0], w.Width(), w.Dim0()
	shape := tensor.Shape{rows, out}
	if lora == nil {
		return g.addNode(op{name: "linear", out: shape,
			forward: func(v []*value) *value {
				y := e.allocValue(rows, out)
				b.Linear(y.t, v[0].t, w, bias, 1, 0)
				return y
			},
			backward: func(ins G.Nodes, _, grad *G.Node) (G.Nodes, error) {
				return g.gradients("linear", ins, func(v []*value) []*value {
					dx := e.allocValue(rows, in)
					b.MatMul(dx.t, v[0].t, w, 1, 0)
					return []*value{dx}
				}, grad)
			},
		}, x)
	}
	rank, scale, first := lora.A.n.Shape()[0], lora.Scale, lora.Rows
	if first == 0 {
		first = rows
	}
	return g.addNode(op{name: "lora", out: shape,
		forward: func(v []*value) *value {
			y, low := e.allocValue(rows, out), e.arena.Alloc(b.Compute(), first, rank)
			b.LowRank(y.t.Rows(0, first), low, v[0].t.Rows(0, first), w, bias, v[1].t, v[2].t, scale)
			if first < rows {
				b.Linear(y.t.Rows(first, rows), v[0].t.Rows(first, rows), w, bias, 1, 0)
			}
			y.saved = low
			return y
		},
		backward: func(ins G.Nodes, outNode, grad *G.Node) (G.Nodes, error) {
			return g.gradients("lora", ins, func(v []*value) []*value {
				x, A, B, low, dy := v[0].t, v[1].t, v[2].t, v[3].saved.(*kernels.Tensor), v[4].t
				dx, dA, dB := e.allocValue(rows, in), e.allocValue(rank, in), e.allocValue(out, rank)
				dLow := e.arena.Alloc(b.Compute(), first, rank)
				b.LowRankGrad(dx.t.Rows(0, first), dLow, dA.t, dB.t, dy.Rows(0, first), x.Rows(0, first), low, w, A, B, scale)
				if first < rows {
					b.MatMul(dx.t.Rows(first, rows), dy.Rows(first, rows), w, 1, 0)
				}
				return []*value{dx, dA, dB}
			}, ins[0], ins[1], ins[2], outNode, grad)
		},
	}, x, lora.A, lora.B)
}
