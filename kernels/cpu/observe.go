package cpu

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"

	"glimpse/internal/parallel"
)

// fusedLogits is the number of logits of one KV head up to which they are kept
// (1 MB), so that scores need no second product of queries and keys.
const fusedLogits = 1 << 18

func (b *cpu) ObserveAttention(out, lse, logScore *kernels.Tensor, a *kernels.Attend) {
	entries := a.MostEntries()
	if a.Kept != nil {
		a.Kept.Valid = false
	}
	if a.Rows()*a.Group()*entries > fusedLogits {
		b.Attention(out, lse, a)
		b.ObservedScores(logScore, lse, a)
		return
	}
	kernels.CheckAttention("ObserveAttention", out, lse, a)
	kernels.CheckObservedScores("ObserveAttention", logScore, lse, a)
	queries := a.Rows() * a.Group()
	if a.Kept != nil {
		keepLogits(a.Kept, a)
	}
	parallel.Tasks(a.KVHeads(), 4*queries*(entries+a.Rows())*a.HeadDim(), func(g int) {
		with(queries*(2*a.HeadDim()+2*entries+a.Rows()+1)+2*entries, func(s *buffer) {
			observeHead(out, lse, logScore, a, g, s)
		})
	})
}

// observeHead does ObserveAttention for the query heads that read KV head g.
func observeHead(out, lse, logScore *kernels.Tensor, a *kernels.Attend, g int, s *buffer) {
	group, dim, rows, kvHeads := a.Group(), a.HeadDim(), a.Rows(), a.KVHeads()
	queries, n := rows*group, a.Past[g].Entries()
	q, p, own := s.takeFloats(queries*dim), s.takeFloats(queries*n), s.takeFloats(queries*rows)
	logits := keptLogits(a.Kept, a, g)
	if logits == nil {
		logits = s.takeFloats(queries * n)
	}
	inverse, biases := s.takeFloats(queries), biasesOf(a.Past[g], 0) // inverse: of the softmax sums
	stack(q, a.Q.F32(), a, g, 0, rows, float32(a.Scale))
	gemmNT(queries, n, dim, 1, q, dim, a.Past[g].K, 0, dim, simd.Exact, 0, logits, n)
	if a.K != nil {
		simd.GemmNT(queries, rows, dim, 1, q, dim, a.K.F32()[g*dim:], kvHeads*dim, 0, own, rows)
	}
	for i := range queries {
		r, h := i/group, g*group+i%group
		from, to := a.Visible(g, r)
		fromOwn, toOwn := a.VisibleOwn(r)
		x, pi, o := logits[i*n:][:n], p[i*n:][:n], own[i*rows:][:rows]
		softCap(x[from:to], a.SoftCap)
		addBiases(x[from:to], biases, from)
		softCap(o[fromOwn:toOwn], a.SoftCap)
		sink := float32(math.Inf(-1))
		if a.Sinks != nil {
			sink = a.Sinks.F32()[h]
		}
		top := max(simd.Max(x[from:to]), simd.Max(o[fromOwn:toOwn]), sink)
		sum := simd.ExpWeights(pi[from:to], x[from:to], top) + simd.ExpWeights(o[fromOwn:toOwn], o[fromOwn:toOwn], top)
		if a.Sinks != nil {
			sum += float32(math.Exp(float64(sink - top)))
		}
		clear(pi[:from])
		clear(pi[to:])
		clear(o[:fromOwn])
		clear(o[toOwn:])
		z := top + float32(math.Log(float64(sum)))
		lse.F32()[h*rows+r], inverse[i] = z, 1/sum
		simd.AddScalar(-z, x[from:to])
	}
	if out != nil {
		acc := q // the queries have been used
		gemmNN(queries, dim, n, 1, p, n, a.Past[g].V, 0, dim, simd.Exact, 0, acc, dim)
		if a.K != nil {
			simd.GemmNN(queries, dim, rows, 1, own, rows, a.V.F32()[g*dim:], kvHeads*dim, 1, acc, dim)
		}
		for i, v := range inverse {
			simd.Scale(v, acc[i*dim:][:dim])
		}
		unstack(out.F32(), acc, a, g, 0, rows)
	}
	// Log-sum-exp down the columns of every query head.
	top, sum := s.takeFloats(n), s.takeFloats(n)
	logRows := float32(math.Log(float64(rows)))
	for head := range group {
		fillBlock(top, float32(math.Inf(-1)))
		clear(sum)
		for r := range rows {
			from, to := a.Visible(g, r)
			simd.MaxInto(top[from:to], logits[(r*group+head)*n:][from:to])
		}
		for r := range rows {
			from, to := a.Visible(g, r)
			simd.AddExpSub(sum[from:to], logits[(r*group+head)*n:][from:to], top[from:to])
		}
		dst := logScore.F32()[(g*group+head)*logScore.Width():][:n]
		simd.Log(dst, sum)
		simd.Add(dst, dst, top)
		simd.AddScalar(-logRows, dst)
	}
}

// KeptBytes implements kernels.Memory.
func (b *cpu) KeptBytes(rows, heads, kvHeads, entries int) int64 {
	if rows*(heads/kvHeads)*entries > fusedLogits {
		return 0
	}
	return 4 * int64(rows) * int64(heads) * int64(entries)
}

// keepLogits makes room for the logits of all heads.
func keepLogits(k *kernels.Kept, a *kernels.Attend) {
	n := 0
	for _, kv := range a.Past {
		n += a.Rows() * a.Group() * kv.Entries()
	}
	if n > len(k.Logits) {
		k.Logits = make([]float32, n)
	}
	k.Valid = true
}

// keptLogits is the part of KV head g, or nil where nothing is kept.
func keptLogits(k *kernels.Kept, a *kernels.Attend, g int) []float32 {
	if k == nil || !k.Valid {
		return nil
	}
	queries, from := a.Rows()*a.Group(), 0
	for _, kv := range a.Past[:g] {
		from += queries * kv.Entries()
	}
	return k.Logits[from : from+queries*a.Past[g].Entries()]
}
