package eviction

import (
	"math"
	"slices"

	"glimpse/internal/leastsquares"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

const (
	// massBound is the largest factor by which a bias changes an entry's weight, up or down (the authors' code: e³).
	massBound = 20.085537
	// massRidge and valueRidge hold factors near 1 and values near the present ones, where the queries do not tell: in parts of the squared
	// weights of an entry in the mean, and of all of them.
	massRidge, valueRidge = 1e-2, 1e-2
	// leastRidge is that of entries which no query sees.
	leastRidge = 1e-30
	// massSweeps and massTolerance end the search of the factors.
	massSweeps, massTolerance = 50, 1e-3
)

// headFit is what the kept entries of a KV head become: their values [kept, headDim], and their biases [kept] or nil.
type headFit struct {
	values, biases []float32
}

// fitHead fits the entries ids of a KV head to what all of them give to queries [m, headDim]. The factors w of the entries' weights match
// the attention mass of the whole head, Σ_{j∈ids} w_j exp(q·k_j) ≈ Σ_j exp(q·k_j), and are biases log w_j; behind them the values match its
// output (arXiv:2602.16284, the closed forms for β and C_v). Without biases w is 1. A query counts by the part of its mass that is kept: what
// asks for entries that are gone would bend those that others ask for. An error tells that numbers are not finite.
func fitHead(kv kernels.KV, queries []float32, ids []int32, scale, softCap float64, biases bool) (headFit, error) {
	dim, n, kept := kv.K.Width(), kv.Entries(), len(ids)
	m := len(queries) / dim
	values := kv.V.Float32s()
	shares := sharesOf(kv, queries, scale, softCap)
	target := make([]float32, m*dim)
	simd.GemmNN(m, dim, n, 1, shares, n, values, dim, 0, target, dim)
	columns := make([]float32, kept*m) // of the kept entries
	for i := range m {
		for j, id := range ids {
			columns[j*m+i] = shares[i*n+int(id)]
		}
	}
	weights := ones(kept)
	var fit headFit
	if biases {
		weighed, held := slices.Clone(columns), captured(columns, weights, m)
		for j := range kept {
			simd.Mul(weighed[j*m:][:m], weighed[j*m:][:m], held)
		}
		ridge := massRidge * simd.SumSquares(weighed) / float32(kept)
		leastsquares.Bounds{Low: 1 / massBound, High: massBound, Ridge: ridge, Sweeps: massSweeps, Tolerance: massTolerance}.Solve(weights, weighed, held)
		fit.biases = addedBiases(kv, ids, weights)
	}
	// The kept entries' part of the whole attention, [m, kept], never more than all of it, against as much of the output.
	x, held := shares[:m*kept], captured(columns, weights, m)
	for i := range m {
		row := x[i*kept:][:kept]
		for j, w := range weights {
			row[j] = w * columns[j*m+i]
		}
		simd.Scale(1/max(1, held[i]), row)
		simd.Scale(min(1, held[i]), target[i*dim:][:dim])
	}
	fit.values = make([]float32, kept*dim)
	for j, id := range ids {
		copy(fit.values[j*dim:][:dim], values[int(id)*dim:])
	}
	simd.GemmNN(m, dim, kept, -1, x, kept, fit.values, dim, 1, target, dim)
	ridge := max(valueRidge*float64(simd.SumSquares(x)), leastRidge)
	change, err := leastsquares.Ridge(x, target, m, kept, dim, ridge)
	if err != nil {
		return headFit{}, err
	}
	simd.Add(fit.values, fit.values, change)
	return fit, nil
}

// captured is, of each of m queries, the part of the whole mass that entries with weights have; columns [entries, m] are their shares.
func captured(columns, weights []float32, m int) []float32 {
	out := make([]float32, m)
	for j, w := range weights {
		simd.Axpy(w, columns[j*m:][:m], out)
	}
	return out
}

// sharesOf are the attention probabilities [m, entries] of queries that see all entries of a KV head and nothing else.
func sharesOf(kv kernels.KV, queries []float32, scale, softCap float64) []float32 {
	dim, n := kv.K.Width(), kv.Entries()
	m := len(queries) / dim
	shares, present := make([]float32, m*n), presentBiases(kv)
	simd.GemmNT(m, n, dim, float32(scale), queries, dim, kv.K.Float32s(), dim, 0, shares, n)
	for i := range m {
		row := shares[i*n:][:n]
		if softCap > 0 {
			for j, x := range row {
				row[j] = float32(softCap * math.Tanh(float64(x)/softCap))
			}
		}
		if b := len(present); b > 0 {
			simd.Add(row[:b], row[:b], present)
		}
		simd.Scale(1/simd.ExpWeights(row, row, simd.Max(row)), row)
	}
	return shares
}

// addedBiases are the biases of entries whose weights get factors, beside those that they have.
func addedBiases(kv kernels.KV, ids []int32, factors []float32) []float32 {
	out, present := make([]float32, len(ids)), presentBiases(kv)
	for j, w := range factors {
		if out[j] = float32(math.Log(float64(w))); int(ids[j]) < len(present) {
			out[j] += present[ids[j]]
		}
	}
	return out
}

// presentBiases are the biases that the first entries have; nil of none.
func presentBiases(kv kernels.KV) []float32 {
	if kv.Biased() == 0 {
		return nil
	}
	return kv.Bias.Float32s()
}

func ones(n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = 1
	}
	return out
}
