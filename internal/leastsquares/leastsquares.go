// Package leastsquares solves small dense problems of least squares: with bounds, and with a ridge.
package leastsquares

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"

	"glimpse/internal/simd"
)

// Bounds is a problem of least squares whose unknowns have bounds.
type Bounds struct {
	Low, High float32
	Ridge     float32 // weight of ‖w − start‖²: above 0 the solution is the only one
	Sweeps    int     // at most, over all unknowns
	Tolerance float32 // sweeps end where no unknown moves by more
}

// Solve minimises ‖A w − b‖² + Ridge·‖w − start‖² over Low ≤ w ≤ High by coordinate descent in the order of the unknowns (Franc, Hlaváč
// and Navara 2005). w [n] is start on entry and the solution on return, at [n, m] is A transposed, b [m]. A sweep takes 4·n·m operations.
func (p Bounds) Solve(w, at, b []float32) {
	m := len(b)
	if len(at) != len(w)*m {
		panic(fmt.Sprintf("leastsquares: Bounds.Solve: %d numbers of A for %d unknowns and %d rows", len(at), len(w), m))
	}
	start, residual, squares := append([]float32(nil), w...), make([]float32, m), make([]float32, len(w))
	for i, x := range b {
		residual[i] = -x
	}
	for j := range w {
		column := at[j*m:][:m]
		w[j] = min(max(w[j], p.Low), p.High)
		simd.Axpy(w[j], column, residual)
		squares[j] = simd.SumSquares(column) + p.Ridge
	}
	for range p.Sweeps {
		most := float32(0)
		for j := range w {
			if squares[j] == 0 {
				continue
			}
			column := at[j*m:][:m]
			slope := simd.Dot(column, residual) + p.Ridge*(w[j]-start[j])
			to := min(max(w[j]-slope/squares[j], p.Low), p.High)
			if move := to - w[j]; move != 0 {
				simd.Axpy(move, column, residual)
				w[j], most = to, max(most, float32(math.Abs(float64(move))))
			}
		}
		if most <= p.Tolerance {
			return
		}
	}
}

// Ridge is the D [n, d] that minimises ‖X D − R‖² + ridge·‖D‖² for x [m, n] and r [m, d], in the smaller of the two normal equations,
// (XᵀX + ridge)D = XᵀR and D = Xᵀ(XXᵀ + ridge)⁻¹R. ridge is above 0. An error says that numbers are not finite or the equations are singular.
func Ridge(x, r []float32, m, n, d int, ridge float64) ([]float32, error) {
	if len(x) != m*n || len(r) != m*d {
		panic(fmt.Sprintf("leastsquares: Ridge: %d and %d numbers for %d rows, %d unknowns and %d columns", len(x), len(r), m, n, d))
	}
	size, right := min(m, n), r
	gram := make([]float32, size*size)
	if m <= n {
		simd.GemmNT(m, m, n, 1, x, n, x, n, 0, gram, m)
	} else {
		simd.GemmTN(n, n, m, 1, x, n, x, n, 0, gram, n)
		right = make([]float32, n*d)
		simd.GemmTN(n, d, m, 1, x, n, r, d, 0, right, d)
	}
	a, b := mat.NewSymDense(size, wide(gram)), mat.NewDense(size, d, wide(right))
	for i := range size {
		a.SetSym(i, i, a.At(i, i)+ridge)
	}
	var factors mat.Cholesky
	if !factors.Factorize(a) {
		return nil, fmt.Errorf("least squares: equations of %d rows and %d unknowns with a ridge of %g are not positive definite", m, n, ridge)
	}
	if err := factors.SolveTo(b, b); err != nil {
		return nil, fmt.Errorf("least squares: %w", err)
	}
	solved := narrow(b.RawMatrix().Data)
	if m > n {
		return solved, nil
	}
	out := make([]float32, n*d)
	simd.GemmTN(n, d, m, 1, x, n, solved, d, 0, out, d)
	return out, nil
}

func wide(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func narrow(x []float64) []float32 {
	out := make([]float32, len(x))
	for i, v := range x {
		out[i] = float32(v)
	}
	return out
}
