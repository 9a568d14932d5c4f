package autodiff

import (
	"math"

	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Heads are the extents of an attention operation, its sliding window, 0 for none, the
// scale and the soft cap of its logits, and its sinks, nil for none (kernels.Attend).
type Heads struct {
	Query, KV, Dim, Window int
	Scale, SoftCap         float64
	Sinks                  *kernels.Tensor
}

// observed is what the forward pass of attention keeps for the backward pass.
type observed struct {
	attend   *kernels.Attend
	out, lse *kernels.Tensor
	scores   *value // [heads, entries], logarithms
}

// attendTo is the attention of rows at positions on a past and on themselves.
func (g *Graph) attendTo(past []kernels.KV, positions []int32, h Heads, kept *kernels.Kept, q, k, v *kernels.Tensor) *kernels.Attend {
	rows := q.Dim0()
	a := &kernels.Attend{
		Q: q.Reshape(rows, h.Query, h.Dim), K: k.Reshape(rows, h.KV, h.Dim),
		Past: past, Scale: h.Scale, SoftCap: h.SoftCap, Sinks: h.Sinks,
		Window: h.Window, Positions: positions, Kept: kept,
	}
	if v != nil {
		a.V = v.Reshape(rows, h.KV, h.Dim)
	}
	g.attends = append(g.attends, a)
	return a
}

// attend runs attention of the rows on the sample's prompt and themselves.
func (g *Graph) attend(e *engine, s *Sample, layer int, h Heads, kept *kernels.Kept, q, k, v, out *kernels.Tensor) *observed {
	b, rows := e.backend, q.Dim0()
	a := g.attendTo(s.Past[layer], s.Positions[:rows], h, kept, q, k, v)
	o := &observed{attend: a, out: out, lse: e.arena.Alloc(b.Compute(), h.Query, rows)}
	o.scores = e.allocValue(h.Query, a.Past[0].Entries())
	b.ObserveAttention(out, o.lse, o.scores.t, a)
	return o
}

// Attention lets rows attend to the prompt of the sample's layer and causally to
// each other: q [rows, heads·dim], k and v [rows, kvHeads·dim], rotated. It
// returns the output [rows, heads·dim] and the scores: the logarithm of the mean
// over rows of the attention probabilities on the prompt, [heads, prompt].
//
// Both results have one fused backward operation. The score node reads what the
// output node saved and, while gorgonia differentiates, only leaves its gradient
// behind: the output node, differentiated later because the scores depend on it,
// takes that gradient as a further input.
func (g *Graph) Attention(q, k, v Node, s *Sample, layer int, h Heads) (out, scores Node) {
	e, b := g.engine, g.engine.backend
	if q.n == nil || k.n == nil || v.n == nil {
		return Node{}, Node{}
	}
	var dScores *G.Node
	kept := new(kernels.Kept)
	shape := q.n.Shape()
	out = g.addNode(op{name: "attention", out: shape,
		forward: func(in []*value) *value {
			y := e.allocValue(shape...)
			y.saved = g.attend(e, s, layer, h, kept, in[0].t, in[1].t, in[2].t, y.t)
			return y
		},
		backward: func(in G.Nodes, outNode, grad *G.Node) (G.Nodes, error) {
			ins := []*G.Node{outNode, grad}
			if dScores != nil {
				ins = append(ins, dScores)
			}
			return g.gradients("attention", in, func(x []*value) []*value {
				o := x[0].saved.(*observed)
				dq, dk, dv := e.allocValue(in[0].Shape()...), e.allocValue(in[1].Shape()...), e.allocValue(in[2].Shape()...)
				var dOut, dScore *kernels.Tensor
				if !x[1].null {
					dOut = x[1].t
				}
				if len(x) > 2 {
					dScore = x[2].t
				}
				b.AttentionGrad(dq.t, dk.t, dv.t, o.attend, o.out, o.lse, o.scores.t, dOut, dScore)
				return []*value{dq, dk, dv}
			}, ins...)
		},
	}, q, k, v)
	scores = g.addNode(op{name: "scores", out: tensor.Shape{h.Query, 1}, // the extent of the prompt is not declared
		forward: func(in []*value) *value { return in[0].saved.(*observed).scores },
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			dScores = grad
			return g.gradients("no", in, func([]*value) []*value { return []*value{e.null(shape)} }, grad)
		},
	}, out)
	return out, scores
}

// Scores is Attention without its output, for the last layer, whose values reach
// no score.
func (g *Graph) Scores(q, k Node, s *Sample, layer int, h Heads) Node {
	e, b, kept := g.engine, g.engine.backend, new(kernels.Kept)
	return g.addNode(op{name: "scoresOnly", out: tensor.Shape{h.Query, 1},
		forward: func(in []*value) *value {
			o := g.attend(e, s, layer, h, kept, in[0].t, in[1].t, nil, nil)
			o.scores.saved = o
			return o.scores
		},
		backward: func(in G.Nodes, outNode, grad *G.Node) (G.Nodes, error) {
			return g.gradients("scoresOnly", in, func(x []*value) []*value {
				o := x[0].saved.(*observed)
				dq, dk := e.allocValue(in[0].Shape()...), e.allocValue(in[1].Shape()...)
				b.AttentionGrad(dq.t, dk.t, nil, o.attend, nil, o.lse, o.scores.t, nil, x[1].t)
				return []*value{dq, dk}
			}, outNode, grad)
		},
	}, q, k)
}

// MergeScores joins the scores of two layers on the same entries, which both are the logarithms of probabilities: the logarithm
// of their mean with the given weights.
func (g *Graph) MergeScores(a, other Node, wA, wOther float64) Node {
	b := g.engine.backend
	return g.Function2("scores of two layers", a, other,
		func(y, a, other *kernels.Tensor) {
			b.Copy(y, a)
			b.MergeScores(y, other, wA, wOther)
		},
		func(dA, dOther, a, other, dy *kernels.Tensor) {
			x, z, grad := a.Float64s(), other.Float64s(), dy.Float64s()
			for i := range x { // of the gradient each has its share of the sum
				shareOf := 1 / (1 + wOther/wA*math.Exp(z[i]-x[i]))
				if math.IsInf(x[i], -1) {
					shareOf = 0
				}
				x[i], z[i] = grad[i]*shareOf, grad[i]*(1-shareOf)
			}
			kernels.Convert(dA, kernels.FromF64(x, dA.Shape...))
			kernels.Convert(dOther, kernels.FromF64(z, dOther.Shape...))
		})
}

// LossFunc adds one layer's loss to the F64 scalar loss and writes its gradient
// with respect to the scores, dScores; scores, dScores and target are [heads, entries]
// of the compute type, scores and target logarithmic. layers is the number of layers
// that the loss averages over.
type LossFunc func(b kernels.Backend, loss, dScores, scores, target *kernels.Tensor, layer, layers int)

// AnswerFunc adds what is lost of the answer to the F64 scalar loss and writes its gradient with respect to the last states x [rows, hidden].
// Temporary memory is the arena's.
type AnswerFunc func(b kernels.Backend, memory *kernels.Arena, loss, dx, x *kernels.Tensor)

// Loss is the scalar loss over the score nodes of the layers that have one against the
// sample's targets, each on its device; the sum is in the order of the layers. With last, the states after all layers, answer is added. Its gradient is
// computed together with it, so it must be the node that Compile gets and no function of it.
func (g *Graph) Loss(all []Node, s *Sample, f LossFunc, last Node, answer AnswerFunc) Node {
	var scores []Node
	var on []*engine
	var layers []int
	for l, n := range all {
		if n.n != nil {
			scores, on, layers = append(scores, n), append(on, n.on), append(layers, l)
		}
	}
	targets := len(scores)
	if last.n != nil {
		scores, on = append(scores, last), append(on, last.on)
	}
	return g.addNode(op{name: "loss", out: tensor.ScalarShape(),
		forward: func(in []*value) *value {
			var loss *kernels.Tensor
			var e *engine
			grads := make([]*value, len(in))
			for l, v := range in {
				if on[l] != e {
					before := loss
					e = on[l]
					if loss = e.arena.Alloc(kernels.F64); before != nil {
						e.backend.Copy(loss, before)
					} else {
						e.backend.Fill(loss, 0)
					}
				}
				if grads[l] = e.allocValue(v.t.Shape...); l == targets {
					answer(e.backend, e.arena, loss, grads[l].t, v.t)
					break
				}
				f(e.backend, loss, grads[l].t, v.t, s.Targets[layers[l]], layers[l], targets)
			}
			y := e.wrap(loss)
			e.loss, y.saved = y, grads
			return y
		},
		backward: func(in G.Nodes, outNode, _ *G.Node) (G.Nodes, error) {
			return g.gradients("loss", in, func(v []*value) []*value { return v[0].saved.([]*value) }, outNode)
		},
	}, scores...)
}
