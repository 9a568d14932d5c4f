package kernels

import "fmt"

// Several is a backend that works on all tensors of an adapter at once: of large models they
// are hundreds of small ones, and a call for each would take longer than its work.
type Several interface {
	// FillEach sets every element of all ts.
	FillEach(ts []*Tensor, value float64)
	// AxpyEach computes ys[i] += alpha · xs[i].
	AxpyEach(ys []*Tensor, alpha float64, xs []*Tensor)
	// SumSquaresEach is Σ t² over all ts, in float64 and in an order that their sizes decide.
	SumSquaresEach(ts []*Tensor) float64
	// AdamWEach updates parameters ps and moments ms, vs from gradients gs.
	AdamWEach(ps, gs, ms, vs []*Tensor, step AdamWStep)
}

// severalOf is b where it has these operations, and LowRanker's and Rotator's, and uses
// them.
func severalOf(b Backend) Several {
	s, ok := b.(Several)
	if u, asks := b.(interface{ uses(...family) bool }); !ok || asks && !u.uses(familyTraining) {
		return nil
	}
	return s
}

// FillEach fills ts on b, one after the other where it is no Several.
func FillEach(b Backend, ts []*Tensor, value float64) {
	if s := severalOf(b); s != nil {
		s.FillEach(ts, value)
		return
	}
	for _, t := range ts {
		b.Fill(t, value)
	}
}

// AxpyEach computes ys[i] += alpha · xs[i] on b, one after the other where it is no Several.
func AxpyEach(b Backend, ys []*Tensor, alpha float64, xs []*Tensor) {
	checkEach("AxpyEach", ys, xs)
	if s := severalOf(b); s != nil {
		s.AxpyEach(ys, alpha, xs)
		return
	}
	for i, y := range ys {
		b.Axpy(y, alpha, xs[i])
	}
}

// SumSquaresEach is Σ t² over ts on b, one after the other where it is no Several.
func SumSquaresEach(b Backend, ts []*Tensor) float64 {
	if s := severalOf(b); s != nil {
		return s.SumSquaresEach(ts)
	}
	sum := 0.0
	for _, t := range ts {
		sum += b.SumSquares(t)
	}
	return sum
}

// AdamWEach updates parameters on b, one after the other where it is no Several.
func AdamWEach(b Backend, ps, gs, ms, vs []*Tensor, step AdamWStep) {
	checkEach("AdamWEach", ps, gs, ms, vs)
	if s := severalOf(b); s != nil {
		s.AdamWEach(ps, gs, ms, vs, step)
		return
	}
	for i, p := range ps {
		b.AdamW(p, gs[i], ms[i], vs[i], step)
	}
}

// Rotator is a backend that rotates from one tensor to another.
type Rotator interface {
	// Rotate is RoPE of x [rows, heads, headDim] into y, which is not x.
	Rotate(y, x *Tensor, pos []int32, table *RoPETable, inverse bool)
}

// Rotate writes the rotated x [rows, heads, headDim] to y on b, with the bits of a copy that is
// rotated.
func Rotate(b Backend, y, x *Tensor, pos []int32, table *RoPETable, inverse bool) {
	if r, ok := b.(Rotator); ok && severalOf(b) != nil {
		r.Rotate(y, x, pos, table, inverse)
		return
	}
	b.Copy(y, x)
	b.RoPE(y, pos, table, inverse)
}

// LowRanker is a backend with operations for linear layers with a low-rank update (Hu et al.
// 2022, eq. 3), which products of a rank's few columns are slow for.
type LowRanker interface {
	// LowRank computes low [m, r] = x [m, in] · a [r, in]ᵀ and y [m, out] = x · w [out, in]ᵀ +
	// bias + scale · low · up [out, r]ᵀ. bias may be nil.
	LowRank(y, low, x, w, bias, a, up *Tensor, scale float64)
	// LowRankGrad computes from dy [m, out], at x and low, with dLow [m, r] = scale · dy · up:
	// dx [m, in] = dy · w + dLow · a, da [r, in] = dLowᵀ · x, dup [out, r] = scale · dyᵀ · low.
	LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up *Tensor, scale float64)
}

// LowRank is a linear layer with a low-rank update on b, by products where it is no LowRanker.
func LowRank(b Backend, y, low, x, w, bias, a, up *Tensor, scale float64) {
	checkLowRank("LowRank", y, low, x, w, a, up)
	if l, ok := b.(LowRanker); ok && severalOf(b) != nil && a.DType == F32 && up.DType == F32 {
		l.LowRank(y, low, x, w, bias, a, up, scale)
		return
	}
	b.Linear(y, x, w, bias, 1, 0)
	b.Linear(low, x, a, nil, 1, 0)
	b.Linear(y, low, up, nil, scale, 1)
}

// LowRankGrad computes the gradients of LowRank on b, by products where it is no LowRanker.
func LowRankGrad(b Backend, dx, dLow, da, dup, dy, x, low, w, a, up *Tensor, scale float64) {
	checkLowRank("LowRankGrad", dy, low, x, w, a, up)
	checkEach("LowRankGrad", []*Tensor{x, low, a, up}, []*Tensor{dx, dLow, da, dup})
	if l, ok := b.(LowRanker); ok && severalOf(b) != nil && a.DType == F32 && up.DType == F32 {
		l.LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up, scale)
		return
	}
	b.MatMul(dLow, dy, up, scale, 0)
	b.MatMul(dx, dy, w, 1, 0)
	b.MatMul(dx, dLow, a, 1, 1)
	b.MatMulTA(da, dLow, x, 1, 0)
	b.MatMulTA(dup, dy, low, scale, 0)
}

// checkLowRank panics unless the operands of LowRank fit each other.
func checkLowRank(op string, y, low, x, w, a, up *Tensor) {
	m, r := x.Dim0(), a.Dim0()
	if a.Width() != x.Width() || w.Width() != x.Width() || up.Dim0() != w.Dim0() || up.Width() != r || low.Len() != m*r || y.Len() != m*w.Dim0() {
		panic(fmt.Sprintf("kernels: %s of %v with weight %v, factors %v and %v by %v into %v", op, x.Shape, w.Shape, a.Shape, up.Shape, low.Shape, y.Shape))
	}
}

// checkEach panics unless the lists have as many tensors, of as many elements.
func checkEach(op string, xs []*Tensor, others ...[]*Tensor) {
	for _, ts := range others {
		if len(ts) != len(xs) {
			panic(fmt.Sprintf("kernels: %s of %d tensors with %d", op, len(xs), len(ts)))
		}
		for i, t := range ts {
			checkLengths(op, xs[i], t)
		}
	}
}
