package kernels

import "math"

func init() {
	Backends.Add("reference", func() (Backend, error) { return newReference[float32]("reference", F32), nil })
	Backends.Add("reference64", func() (Backend, error) { return newReference[float64]("reference64", F64), nil })
}

func newReference[T float](name string, compute DType) *reference[T] {
	b := &reference[T]{name: name, compute: compute}
	b.Decomposed = Decompose(b)
	return b
}

// reference computes with explicit loops in T. It is written to be compared
// with the formulas, not to be fast.
type reference[T float] struct {
	Decomposed
	name    string
	compute DType
}

func (b *reference[T]) Name() string   { return b.name }
func (b *reference[T]) Compute() DType { return b.compute }

func (b *reference[T]) Linear(y, x, w, bias *Tensor, alpha, beta float64) {
	checkLinear(y, x, w, bias)
	m, in, out := x.Dim0(), x.Width(), w.Dim0()
	Y, X := of[T](y), of[T](x)
	row := make([]T, in)
	for o := range out {
		readRow(row, w, o) // once for all rows of x
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

// readRow converts row i of a matrix as wide as dst.
func readRow[T float](dst []T, t *Tensor, i int) {
	from, to := i*len(dst), (i+1)*len(dst)
	switch t.DType {
	case F32:
		for k, v := range t.F32()[from:to] {
			dst[k] = T(v)
		}
	case F64:
		for k, v := range t.F64()[from:to] {
			dst[k] = T(v)
		}
	case BF16:
		for k, v := range t.U16()[from:to] {
			dst[k] = T(BF16ToF32(v))
		}
	case F16:
		for k, v := range t.U16()[from:to] {
			dst[k] = T(F16ToF32(v))
		}
	default:
		panic("kernels: Linear by a " + t.DType.String() + " tensor")
	}
}

func (b *reference[T]) MatMul(c, x, w *Tensor, alpha, beta float64) {
	m, k, n := x.Dim0(), x.Width(), w.Width()
	checkProduct("MatMul", c, m, n, k, w.Dim0())
	C, X := of[T](c), of[T](x)
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				s += X[i*k+l] * T(w.At(l*n+j))
			}
			s *= T(alpha)
			if beta != 0 {
				s += T(beta) * C[i*n+j]
			}
			C[i*n+j] = s
		}
	}
}

func (b *reference[T]) MatMulTA(c, x, w *Tensor, alpha, beta float64) {
	k, m, n := x.Dim0(), x.Width(), w.Width()
	checkProduct("MatMulTA", c, m, n, k, w.Dim0())
	C, X, W := of[T](c), of[T](x), of[T](w)
	for i := range m {
		for j := range n {
			var s T
			for l := range k {
				s += X[l*m+i] * W[l*n+j]
			}
			s *= T(alpha)
			if beta != 0 {
				s += T(beta) * C[i*n+j]
			}
			C[i*n+j] = s
		}
	}
}

func (b *reference[T]) Fill(y *Tensor, value float64) {
	for i := range y.Len() {
		y.Set(i, value)
	}
}

func (b *reference[T]) Copy(y, x *Tensor) {
	checkLengths("Copy", y, x)
	if copyHalf(y, x) {
		return
	}
	copy(of[T](y), of[T](x))
}

func (b *reference[T]) Gather(y, table *Tensor, ids []int32) {
	w := table.Width()
	checkGather(y, table, ids)
	if gatherHalf(y, table, ids) {
		return
	}
	Y := of[T](y)
	for i, id := range ids {
		for j := range w {
			Y[i*w+j] = T(table.At(int(id)*w + j))
		}
	}
}

func (b *reference[T]) CopyHead(y, x *Tensor, h int) {
	checkCopyHead(y, x, h)
	if copyHeadHalf(y, x, h) {
		return
	}
	copyHead(of[T](y), of[T](x), x.Shape[1], x.Shape[2], h)
}

func (b *reference[T]) Add(y, x, z *Tensor) {
	checkLengths("Add", y, x, z)
	Y, X, Z := of[T](y), of[T](x), of[T](z)
	for i := range Y {
		Y[i] = X[i] + Z[i]
	}
}

func (b *reference[T]) Axpy(y *Tensor, alpha float64, x *Tensor) {
	checkLengths("Axpy", y, x)
	Y, X := of[T](y), of[T](x)
	for i := range Y {
		Y[i] += T(alpha) * X[i]
	}
}

func (b *reference[T]) RMSNorm(y, x, w *Tensor, eps float64) {
	checkNorm("RMSNorm", x, w, y)
	width := w.Len()
	Y, X := of[T](y), of[T](x)
	for r := 0; r < len(X); r += width {
		inv := invRMS(X[r:r+width], eps)
		for d := range width {
			Y[r+d] = X[r+d] * inv * T(w.At(d))
		}
	}
}

func invRMS[T float](x []T, eps float64) T {
	var s T
	for _, v := range x {
		s += v * v
	}
	return T(1 / math.Sqrt(float64(s)/float64(len(x))+eps))
}

func (b *reference[T]) RMSNormGrad(dx, x, w, dy *Tensor, eps float64) {
	checkNorm("RMSNormGrad", x, w, dx, dy)
	width := w.Len()
	DX, X, DY := of[T](dx), of[T](x), of[T](dy)
	for r := 0; r < len(X); r += width {
		inv := invRMS(X[r:r+width], eps)
		var dot T
		for d := range width {
			dot += DY[r+d] * T(w.At(d)) * X[r+d]
		}
		dot *= inv * inv / T(width)
		for d := range width {
			DX[r+d] = inv * (DY[r+d]*T(w.At(d)) - X[r+d]*dot)
		}
	}
}

func (b *reference[T]) LayerNorm(y, x, w, bias *Tensor, eps float64) {
	checkNorm("LayerNorm", x, w, y)
	checkLengths("LayerNorm", w, bias)
	width := w.Len()
	Y, X := of[T](y), of[T](x)
	for r := 0; r < len(X); r += width {
		mean, inv := moments(X[r:r+width], eps)
		for d := range width {
			Y[r+d] = (X[r+d]-mean)*inv*T(w.At(d)) + T(bias.At(d))
		}
	}
}

// moments are the mean of x and the reciprocal of its standard deviation.
func moments[T float](x []T, eps float64) (mean, inv T) {
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

func (b *reference[T]) LayerNormGrad(dx, x, w, dy *Tensor, eps float64) {
	checkNorm("LayerNormGrad", x, w, dx, dy)
	width := w.Len()
	DX, X, DY := of[T](dx), of[T](x), of[T](dy)
	for r := 0; r < len(X); r += width {
		mean, inv := moments(X[r:r+width], eps)
		var sum, dot T
		for d := range width {
			g := DY[r+d] * T(w.At(d))
			sum += g
			dot += g * (X[r+d] - mean) * inv
		}
		sum, dot = sum/T(width), dot/T(width)
		for d := range width {
			DX[r+d] = inv * (DY[r+d]*T(w.At(d)) - sum - (X[r+d]-mean)*inv*dot)
		}
	}
}

func (b *reference[T]) RoPE(x *Tensor, pos []int32, table *RoPETable, inverse bool) {
	rows, heads, dim := x.Shape[0], x.Shape[1], x.Shape[2]
	checkRoPE(x, pos, table)
	X, C, S := of[T](x), of[T](table.Cos), of[T](table.Sin)
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

func sigmoid[T float](x T) T { return T(1 / (1 + math.Exp(-float64(x)))) }

func (b *reference[T]) SiLUMul(y, gate, up *Tensor) {
	checkLengths("SiLUMul", y, gate, up)
	Y, G, U := of[T](y), of[T](gate), of[T](up)
	for i := range Y {
		Y[i] = G[i] * sigmoid(G[i]) * U[i]
	}
}

func (b *reference[T]) SiLUMulGrad(dgate, dup, gate, up, dy *Tensor) {
	checkLengths("SiLUMulGrad", dy, dgate, dup, gate, up)
	DG, DU, G, U, DY := of[T](dgate), of[T](dup), of[T](gate), of[T](up), of[T](dy)
	for i := range DY {
		s := sigmoid(G[i])
		DG[i] = DY[i] * U[i] * s * (1 + G[i]*(1-s))
		DU[i] = DY[i] * G[i] * s
	}
}

func (b *reference[T]) GELU(y, x *Tensor) {
	checkLengths("GELU", y, x)
	gelu(of[T](y), of[T](x))
}

func (b *reference[T]) GELUGrad(dx, x, dy *Tensor) {
	checkLengths("GELUGrad", dx, x, dy)
	geluGrad(of[T](dx), of[T](x), of[T](dy))
}

func (b *reference[T]) AdamW(p, g, m, v *Tensor, s AdamWStep) {
	checkLengths("AdamW", p, g, m, v)
	P, G, M, V := of[T](p), of[T](g), of[T](m), of[T](v)
	adamW(P, G, M, V, s)
}

func (b *reference[T]) SumSquares(t *Tensor) float64 { return sumSquares(of[T](t)) }
