// Package host has what the backends on host memory share.
package host

import (
	"math"

	"glimpse/internal/parallel"
	"glimpse/kernels"
)

// Of is the memory of a tensor of type T.
func Of[T kernels.Float](t *kernels.Tensor) []T {
	var z T
	switch any(z).(type) {
	case float32:
		return any(t.F32()).([]T)
	default:
		return any(t.F64()).([]T)
	}
}

// Base is what the backends on host memory have in common, computed in T.
type Base[T kernels.Float] struct{ kernels.Decomposed }

// Compute is the type of T.
func (Base[T]) Compute() kernels.DType {
	if _, ok := any(T(0)).(float32); ok {
		return kernels.F32
	}
	return kernels.F64
}

// GELU: only the error function itself takes time. Erfc keeps the digits of large negative arguments.
func (Base[T]) GELU(y, x *kernels.Tensor) {
	kernels.CheckLengths("GELU", y, x)
	Y, X := Of[T](y), Of[T](x)
	Split(len(Y), 64, func(from, to int) {
		for i, v := range X[from:to] {
			Y[from+i] = T(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
		}
	})
}

func (Base[T]) GELUGrad(dx, x, dy *kernels.Tensor) {
	kernels.CheckLengths("GELUGrad", dx, x, dy)
	DX, X, DY := Of[T](dx), Of[T](x), Of[T](dy)
	Split(len(DX), 128, func(from, to int) {
		for i := from; i < to; i++ {
			z := float64(X[i])
			density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
			DX[i] = T(float64(DY[i]) * (0.5*math.Erfc(-z/math.Sqrt2) + z*density))
		}
	})
}

// AdamW: the update is bound by memory and its bits decide whether a resumed run equals an
// undisturbed one.
func (Base[T]) AdamW(p, g, m, v *kernels.Tensor, s kernels.AdamWStep) {
	kernels.CheckLengths("AdamW", p, g, m, v)
	P, G, M, V := Of[T](p), Of[T](g), Of[T](m), Of[T](v)
	Split(len(P), 16, func(from, to int) {
		for i := from; i < to; i++ {
			gi := float64(G[i]) * s.GradScale
			mi := s.Beta1*float64(M[i]) + (1-s.Beta1)*gi
			vi := s.Beta2*float64(V[i]) + (1-s.Beta2)*gi*gi
			M[i], V[i] = T(mi), T(vi)
			update := mi/s.Correct1/(math.Sqrt(vi/s.Correct2)+s.Epsilon) + s.WeightDecay*float64(P[i])
			P[i] = T(float64(P[i]) - s.LearningRate*update)
		}
	})
}

// SumSquares is in float64 and in index order.
func (Base[T]) SumSquares(t *kernels.Tensor) (sum float64) {
	for _, v := range Of[T](t) {
		sum += float64(v) * float64(v)
	}
	return sum
}

func (Base[T]) MergeScores(acc, other *kernels.Tensor, wAcc, wOther float64) {
	kernels.CheckLengths("MergeScores", acc, other)
	A, O := Of[T](acc), Of[T](other)
	la, lo := math.Log(wAcc/(wAcc+wOther)), math.Log(wOther/(wAcc+wOther))
	Split(len(A), 32, func(from, to int) {
		for i := from; i < to; i++ {
			x, y := float64(A[i])+la, float64(O[i])+lo
			if x < y {
				x, y = y, x
			}
			if !math.IsInf(x, -1) {
				x += math.Log1p(math.Exp(y - x))
			}
			A[i] = T(x)
		}
	})
}

// LogSumExp is log Σ exp(x), −Inf of nothing but −Inf.
func LogSumExp[T kernels.Float](x []T) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = math.Max(m, float64(v))
	}
	if math.IsInf(m, -1) {
		return m
	}
	s := 0.0
	for _, v := range x {
		s += math.Exp(float64(v) - m)
	}
	return m + math.Log(s)
}

// Split runs f over [0, n) in blocks; work is the cost of one element. The cut
// depends on n and work only.
func Split(n, work int, f func(from, to int)) {
	if n == 0 {
		return
	}
	size := max(1, parallel.MinWork/max(1, work))
	blocks := (n + size - 1) / size
	if blocks == 1 {
		f(0, n)
		return
	}
	parallel.For(blocks, func(i int) { f(i*size, min(n, (i+1)*size)) })
}
