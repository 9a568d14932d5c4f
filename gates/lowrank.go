package gates

import (
	"math"

	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// normEps is the ε of the norms of low-rank gates, as their authors' code has it.
const normEps = 1e-6

// lowRank scores an entry by the probability that queries made of its row pay to its own key rather than to learned sinks
// (Fast KVzip, arXiv:2601.17668): the mean over the query heads of a group of 1 / (1 + Σ_s exp(q·k_s/√d − q·k/√d − b)).
type lowRank struct {
	query, queryBias, key *kernels.Tensor // [kvHeads·group·d, in], [kvHeads·group·d], [kvHeads·d, in]
	queryNorm, keyNorm    []float32       // [d]
	sinks                 []float32       // [kvHeads, sinks, d]
	bias                  []float32       // [kvHeads, group]
	heads, group, dim     int
}

func newLowRank(f *filled, in, out, group int) *lowRank {
	d := f.tensors["q_norm.weight"].Cols
	g := &lowRank{heads: f.tensors["b"].Rows, group: group, dim: d}
	f.matrix("b", out, group)
	g.query, g.queryBias, g.key = f.tensor("q_proj.weight", g.heads*group*d, in), f.tensor("q_proj.bias", 1, g.heads*group*d), f.tensor("k_proj.weight", g.heads*d, in)
	g.queryNorm, g.keyNorm = f.numbers("q_norm.weight", 1, d), f.numbers("k_norm.weight", 1, d)
	g.sinks, g.bias = f.numbers("k_base", anySize, d), f.numbers("b", g.heads, group)
	if rows := f.tensors["k_base"].Rows; rows%g.heads != 0 {
		f.matrix("k_base", rows-rows%g.heads, d)
	}
	return g
}

func (g *lowRank) weights() int { return g.query.Len() + g.key.Len() }

// score projects where the rows are and compares on the host: d is 16, and the scores are few.
func (g *lowRank) score(p pass, scores, h *kernels.Tensor) {
	h = p.widened(h)
	rows := h.Dim0()
	q, k := p.memory.Alloc(p.on.Compute(), rows, g.query.Dim0()), p.memory.Alloc(p.on.Compute(), rows, g.key.Dim0())
	p.on.Linear(q, h, g.query, g.queryBias, 1, 0)
	p.on.Linear(k, h, g.key, nil, 1, 0)
	if p.counts {
		return
	}
	queries, keys, out := q.Float32s(), k.Float32s(), make([]float64, g.heads*rows)
	parallel.For(rows, func(r int) {
		for head := range g.heads {
			out[head*rows+r] = g.logScore(queries[(r*g.heads+head)*g.group*g.dim:], keys[(r*g.heads+head)*g.dim:][:g.dim], head)
		}
	})
	kernels.Convert(scores, kernels.FromF64(out, g.heads, rows))
}

// logScore is the logarithm of the score of an entry in a KV head, of its queries [group, d] and its key, which it normalises.
func (g *lowRank) logScore(queries, key []float32, head int) float64 {
	normalise(key, g.keyNorm)
	scale, sum := 1/math.Sqrt(float64(g.dim)), 0.0
	sinks := g.sinks[head*len(g.sinks)/g.heads : (head+1)*len(g.sinks)/g.heads]
	for i := range g.group {
		q := queries[i*g.dim:][:g.dim]
		normalise(q, g.queryNorm)
		own := scale*float64(simd.Dot(key, q)) + float64(g.bias[head*g.group+i])
		others := 0.0
		for s := 0; s < len(sinks); s += g.dim {
			others += math.Exp(scale*float64(simd.Dot(sinks[s:][:g.dim], q)) - own)
		}
		sum += 1 / (1 + others)
	}
	return math.Log(max(sum/float64(g.group), math.SmallestNonzeroFloat32))
}

// normalise is RMSNorm in place.
func normalise(x, weight []float32) {
	factor := 1 / math.Sqrt(float64(simd.SumSquares(x))/float64(len(x))+normEps)
	for i := range x {
		x[i] = float32(float64(x[i])*factor) * weight[i]
	}
}
