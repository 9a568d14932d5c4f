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

// CopyHead copies head h of rows x [rows, heads, dim] to y [rows, dim].
func CopyHead[T kernels.Float](y, x []T, heads, dim, h int) {
	for r := range len(y) / dim {
		copy(y[r*dim:][:dim], x[(r*heads+h)*dim:][:dim])
	}
}

// Gelu and geluGrad are shared by the host backends: only the error function
// itself takes time. Erfc keeps the digits of large negative arguments.
func Gelu[T kernels.Float](y, x []T) {
	for i, v := range x {
		y[i] = T(0.5 * float64(v) * math.Erfc(-float64(v)/math.Sqrt2))
	}
}

// GeluGrad is the gradient of Gelu at x.
func GeluGrad[T kernels.Float](dx, x, dy []T) {
	for i, v := range x {
		z := float64(v)
		density := math.Exp(-z*z/2) / math.Sqrt(2*math.Pi)
		dx[i] = T(float64(dy[i]) * (0.5*math.Erfc(-z/math.Sqrt2) + z*density))
	}
}

// AdamW is shared by the host backends: the update is bound by memory and its
// bits decide whether a resumed run equals an undisturbed one.
func AdamW[T kernels.Float](p, g, m, v []T, s kernels.AdamWStep) {
	for i := range p {
		gi := float64(g[i]) * s.GradScale
		mi := s.Beta1*float64(m[i]) + (1-s.Beta1)*gi
		vi := s.Beta2*float64(v[i]) + (1-s.Beta2)*gi*gi
		m[i], v[i] = T(mi), T(vi)
		update := mi/s.Correct1/(math.Sqrt(vi/s.Correct2)+s.Epsilon) + s.WeightDecay*float64(p[i])
		p[i] = T(float64(p[i]) - s.LearningRate*update)
	}
}

// SumSquares is Σ x², in float64 and in index order.
func SumSquares[T kernels.Float](x []T) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
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

// MergeScores is kernels.Attention.MergeScores.
func MergeScores[T kernels.Float](acc, other []T, wAcc, wOther float64) {
	la, lo := math.Log(wAcc/(wAcc+wOther)), math.Log(wOther/(wAcc+wOther))
	for i := range acc {
		x, y := float64(acc[i])+la, float64(other[i])+lo
		if x < y {
			x, y = y, x
		}
		if !math.IsInf(x, -1) {
			x += math.Log1p(math.Exp(y - x))
		}
		acc[i] = T(x)
	}
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
