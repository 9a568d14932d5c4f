// Package reference has the backends "reference" (float32) and "reference64" (float64): plain
// loops written for reading, which judge every faster kernel.
package reference

import (
	"math"

	"glimpse/kernels"
	"glimpse/kernels/internal/host"
)

func init() {
	kernels.Backends.Add("reference", func() (kernels.Backend, error) { return newReference[float32]("reference"), nil })
	kernels.Backends.Add("reference64", func() (kernels.Backend, error) { return newReference[float64]("reference64"), nil })
}

func newReference[T kernels.Float](name string) *reference[T] {
	b := &reference[T]{name: name}
	b.Decomposed = kernels.Decompose(b)
	return b
}

// reference computes with explicit loops in T. It is written to be compared
// with the formulas, not to be fast.
type reference[T kernels.Float] struct {
	host.Base[T]
	name string
}

func (b *reference[T]) Name() string { return b.name }

// Exact is b, which rounds nothing.
func (b *reference[T]) Exact() (kernels.Backend, error) { return b, nil }

func (b *reference[T]) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	kernels.CheckLinear(y, x, w, bias)
	m, in, out := x.Dim0(), x.Width(), w.Dim0()
	Y, X := host.Of[T](y), host.Of[T](x)
	row := make([]T, in)
	for o := range out {
		kernels.Read(row, w, o*in) // once for all rows of x
		for i := range m {
			var s T
			for k, v := range X[i*in:][:in] {
				s += v * row[k]
			}
			s *= T(alpha)
			if bias != nil {
				s += T(bias.At(o))
			}
			if beta != 0 {
				s += T(beta) * Y[i*out+o]
			}
			Y[i*out+o] = s
		}
	}
}

// all are the elements of a tensor of any storage type.
func all[T kernels.Float](t *kernels.Tensor) []T {
	out := make([]T, t.Len())
	kernels.Read(out, t, 0)
	return out
}

func (b *reference[T]) MatMul(c, x, w *kernels.Tensor, alpha, beta float64) {
	m, k := x.Dim0(), x.Width()
	scaledProduct("MatMul", c, x, w, m, k, k, 1, T(alpha), T(beta))
}

func (b *reference[T]) MatMulTA(c, x, w *kernels.Tensor, alpha, beta float64) {
	k, m := x.Dim0(), x.Width()
	scaledProduct("MatMulTA", c, x, w, m, k, 1, m, T(alpha), T(beta))
}

// scaledProduct is c [m, n] = alpha · x · w [k, n] + beta · c, where the numbers of a row and of a
// column of x are so far apart.
func scaledProduct[T kernels.Float](op string, c, x, w *kernels.Tensor, m, k, rows, columns int, alpha, beta T) {
	n := w.Width()
	kernels.CheckProduct(op, c, m, n, k, w.Dim0())
	C, X, W := host.Of[T](c), host.Of[T](x), all[T](w)
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				s += X[i*rows+l*columns] * W[l*n+j]
			}
			s *= alpha
			if beta != 0 {
				s += beta * C[i*n+j]
			}
			C[i*n+j] = s
		}
	}
}

func (b *reference[T]) Fill(y *kernels.Tensor, value float64) {
	for i := range y.Len() {
		y.Set(i, value)
	}
}

func (b *reference[T]) Add(y, x, z *kernels.Tensor) {
	kernels.CheckLengths("Add", y, x, z)
	Y, X, Z := host.Of[T](y), host.Of[T](x), host.Of[T](z)
	for i := range Y {
		Y[i] = X[i] + Z[i]
	}
}

func (b *reference[T]) Axpy(y *kernels.Tensor, alpha float64, x *kernels.Tensor) {
	kernels.CheckLengths("Axpy", y, x)
	Y, X := host.Of[T](y), host.Of[T](x)
	for i := range Y {
		Y[i] += T(alpha) * X[i]
	}
}

func (b *reference[T]) Norm(y, x, add *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("Norm", x, n, y, add)
	if add != nil {
		b.Add(x, x, add)
	}
	width := n.Weight.Len()
	Y, X, W, B := host.Of[T](y), host.Of[T](x), all[T](n.Weight), []T(nil)
	if n.Bias != nil {
		B = all[T](n.Bias)
	}
	for r := 0; r < len(X); r += width {
		if B == nil {
			inv := invRMS(X[r:r+width], n.Eps)
			for d := range width {
				Y[r+d] = X[r+d] * inv * W[d]
			}
			continue
		}
		mean, inv := moments(X[r:r+width], n.Eps)
		for d := range width {
			Y[r+d] = (X[r+d]-mean)*inv*W[d] + B[d]
		}
	}
}

func invRMS[T kernels.Float](x []T, eps float64) T {
	var s T
	for _, v := range x {
		s += v * v
	}
	return T(1 / math.Sqrt(float64(s)/float64(len(x))+eps))
}

// moments are the mean of x and the reciprocal of its standard deviation.
func moments[T kernels.Float](x []T, eps float64) (mean, inv T) {
	for _, v := range x {
		mean += v
	}
	mean /= T(len(x))
	var s T
	for _, v := range x {
		s += (v - mean) * (v - mean)
	}
	return mean, T(1 / math.Sqrt(float64(s)/float64(len(x))+eps))
}

func (b *reference[T]) NormGrad(dx, x, dy *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("NormGrad", x, n, dx, dy)
	width := n.Weight.Len()
	DX, X, DY, W := host.Of[T](dx), host.Of[T](x), host.Of[T](dy), all[T](n.Weight)
	for r := 0; r < len(X); r += width {
		if n.Bias == nil {
			inv := invRMS(X[r:r+width], n.Eps)
			var dot T
			for d := range width {
				dot += DY[r+d] * W[d] * X[r+d]
			}
			dot *= inv * inv / T(width)
			for d := range width {
				DX[r+d] = inv * (DY[r+d]*W[d] - X[r+d]*dot)
			}
			continue
		}
		mean, inv := moments(X[r:r+width], n.Eps)
		var sum, dot T
		for d := range width {
			g := DY[r+d] * W[d]
			sum += g
			dot += g * (X[r+d] - mean) * inv
		}
		sum, dot = sum/T(width), dot/T(width)
		for d := range width {
			DX[r+d] = inv * (DY[r+d]*W[d] - sum - (X[r+d]-mean)*inv*dot)
		}
	}
}

func (b *reference[T]) RoPE(y, x *kernels.Tensor, pos []int32, table *kernels.RoPETable, inverse bool) {
	rows, heads, dim := x.Shape[0], x.Shape[1], x.Shape[2]
	kernels.CheckRoPE(y, x, pos, table)
	if y != x {
		b.Copy(y, x)
	}
	X, C, S := host.Of[T](y), host.Of[T](table.Cos), host.Of[T](table.Sin)
	half := table.Cos.Width()
	for r := range rows {
		for h := range heads {
			v := X[(r*heads+h)*dim:][:dim]
			for i := range half {
				c, s := C[int(pos[r])*half+i], S[int(pos[r])*half+i]
				if inverse {
					s = -s
				}
				a, z := v[i], v[i+half]
				v[i], v[i+half] = c*a-s*z, s*a+c*z
			}
		}
	}
}

func sigmoid[T kernels.Float](x T) T { return T(1 / (1 + math.Exp(-float64(x)))) }

func (b *reference[T]) SiLUMul(y, gate, up *kernels.Tensor) {
	kernels.CheckLengths("SiLUMul", y, gate, up)
	Y, G, U := host.Of[T](y), host.Of[T](gate), host.Of[T](up)
	for i := range Y {
		Y[i] = G[i] * sigmoid(G[i]) * U[i]
	}
}

func (b *reference[T]) SiLUMulGrad(dgate, dup, gate, up, dy *kernels.Tensor) {
	kernels.CheckLengths("SiLUMulGrad", dy, dgate, dup, gate, up)
	DG, DU, G, U, DY := host.Of[T](dgate), host.Of[T](dup), host.Of[T](gate), host.Of[T](up), host.Of[T](dy)
	for i := range DY {
		s := sigmoid(G[i])
		DG[i] = DY[i] * U[i] * s * (1 + G[i]*(1-s))
		DU[i] = DY[i] * G[i] * s
	}
}
