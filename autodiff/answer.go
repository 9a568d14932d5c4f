package autodiff

import (
	"glimpse/kernels"

	G "gorgonia.org/gorgonia"
	"gorgonia.org/tensor"
)

// Join is the learned rows with the rows behind them that write makes at every run: constants.
func (g *Graph) Join(rows Node, more int, write func(dst *kernels.Tensor)) Node {
	g.readsNumbers = true
	e, b := g.engine, g.engine.backend
	n, width := rows.n.Shape()[0], rows.n.Shape()[1]
	return g.addNode(op{name: "join", out: tensor.Shape{n + more, width},
		forward: func(in []*value) *value {
			y := e.allocValue(n+more, width)
			b.Copy(y.t.Rows(0, n), in[0].t)
			write(y.t.Rows(n, n+more))
			return y
		},
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			return g.gradients("join", in, func(v []*value) []*value {
				dx := e.allocValue(n, width)
				b.Copy(dx.t, v[0].t.Rows(0, n))
				return []*value{dx}
			}, grad)
		},
	}, rows)
}

// behind is what the forward pass of AttentionBehind keeps: the rows' attention to the prompt, and the answer's to what is kept of it.
type behind struct {
	*observed
	answer   *kernels.Attend
	out, lse *kernels.Tensor
}

// AttentionBehind is Attention of the first rows, and of those behind them on what the sample's Answer keeps of the prompt by the scores,
// on the last of the first rows, and causally on each other (RestoreKV, arXiv:2608.01247).
func (g *Graph) AttentionBehind(q, k, v Node, s *Sample, layer int, h Heads, rows int) (out, scores Node) {
	if q.n == nil || k.n == nil || v.n == nil {
		return Node{}, Node{}
	}
	e, b := g.engine, g.engine.backend
	var dScores *G.Node
	kept, keptBehind := new(kernels.Kept), new(kernels.Kept)
	shape := q.n.Shape()
	all := shape[0]
	out = g.addNode(op{name: "attentionBehind", out: shape,
		forward: func(in []*value) *value {
			y := e.allocValue(shape...)
			q, k, v := in[0].t, in[1].t, in[2].t
			o := &behind{observed: g.attend(e, s, layer, h, kept, q.Rows(0, rows), k.Rows(0, rows), v.Rows(0, rows), y.t.Rows(0, rows))}
			from := rows - s.Answer.Staying // whose queries are not wanted, but stand before the answer's as their keys do
			o.answer = g.attendTo(s.Answer.Past(b, e.arena, layer, o.scores.t), s.Positions[from:], h, keptBehind, q.Rows(from, all), k.Rows(from, all), v.Rows(from, all))
			o.out, o.lse = e.arena.Alloc(b.Compute(), all-from, shape[1]), e.arena.Alloc(b.Compute(), h.Query, all-from)
			b.Attention(o.out, o.lse, o.answer)
			b.Copy(y.t.Rows(rows, all), o.out.Rows(rows-from, all-from))
			y.saved = o
			return y
		},
		backward: func(in G.Nodes, outNode, grad *G.Node) (G.Nodes, error) {
			ins := []*G.Node{outNode, grad}
			if dScores != nil {
				ins = append(ins, dScores)
			}
			return g.gradients("attentionBehind", in, func(x []*value) []*value {
				o, from := x[0].saved.(*behind), rows-s.Answer.Staying
				var d, more [3]*value // of queries, keys and values
				for i := range d {
					d[i] = e.allocValue(in[i].Shape()...)
					more[i] = e.allocValue(all-from, in[i].Shape()[1])
				}
				dBehind := e.arena.Alloc(b.Compute(), all-from, shape[1])
				b.Fill(dBehind, 0)
				var dRows, dScore *kernels.Tensor
				if !x[1].null {
					dRows = x[1].t.Rows(0, rows)
					b.Copy(dBehind.Rows(rows-from, all-from), x[1].t.Rows(rows, all))
				}
				if len(x) > 2 {
					dScore = x[2].t
				}
				b.AttentionGrad(d[0].t.Rows(0, rows), d[1].t.Rows(0, rows), d[2].t.Rows(0, rows), o.attend, o.observed.out, o.observed.lse, o.scores.t, dRows, dScore)
				b.AttentionGrad(more[0].t, more[1].t, more[2].t, o.answer, o.out, o.lse, nil, dBehind, nil)
				for i := range d {
					staying := d[i].t.Rows(from, rows)
					b.Add(staying, staying, more[i].t.Rows(0, rows-from))
					b.Copy(d[i].t.Rows(rows, all), more[i].t.Rows(rows-from, all-from))
				}
				return d[:]
			}, ins...)
		},
	}, q, k, v)
	scores = g.addNode(op{name: "scores", out: tensor.Shape{h.Query, 1},
		forward: func(in []*value) *value { return in[0].saved.(*behind).scores },
		backward: func(in G.Nodes, _, grad *G.Node) (G.Nodes, error) {
			dScores = grad
			return g.gradients("no", in, func([]*value) []*value { return []*value{e.null(shape)} }, grad)
		},
	}, out)
	return out, scores
}
