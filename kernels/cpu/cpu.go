// Package cpu is the backend "cpu": float32 on all cores, built on the vector kernels of
// internal/simd.
package cpu

import (
	"math"
	"sync"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/kernels/internal/host"
)

func init() {
	kernels.Backends.Add("cpu", func() (kernels.Backend, error) {
		if err := simd.EnvError(); err != nil {
			return nil, err
		}
		return open(false), nil
	})
}

func open(exact bool) *cpu {
	b := &cpu{exact: exact}
	b.Decomposed = kernels.Decompose(b)
	return b
}

// cpu computes in float32 on all cores. Where the processor is faster by it (simd.Rounding), products of
// more than 16 rows with large weights round the rows first: to bfloat16, as everybody runs models that are stored so,
// or for quantised weights to the bytes that fewer rows always become. An exact one rounds neither these nor quantised weights, which become
// float32 as they are read.
type cpu struct {
	host.Base[float32]
	exact bool
}

func (b *cpu) Name() string { return "cpu" }

func (b *cpu) Model() string {
	if b.exact {
		return simd.Arithmetic(simd.Float32)
	}
	return simd.Arithmetic(simd.Rounded)
}

func (b *cpu) Exact() (kernels.Backend, error) { return open(true), nil }

func (b *cpu) SameRows(rows int) int { return simd.SameRows(rows) }

// buffer is scratch memory of one task.
type buffer struct{ data []float32 }

// takeFloats returns the next n elements, undefined.
func (s *buffer) takeFloats(n int) []float32 {
	const align = 16
	if n > len(s.data) {
		s.data = make([]float32, n)
	}
	out := s.data[:n:n]
	s.data = s.data[min(len(s.data), (n+align-1)/align*align):]
	return out
}

// scratch is memory that tasks were run with.
var scratch = sync.Pool{New: func() any { return new([]float32) }}

// with runs f with scratch memory for n elements in up to 32 pieces.
func with(n int, f func(s *buffer)) {
	n += 32 * 16
	p := scratch.Get().(*[]float32)
	if len(*p) < n {
		*p = make([]float32, n)
	}
	f(&buffer{*p})
	scratch.Put(p)
}

// roundedWeights is the number of elements from which on a weight is large.
// Models of smaller ones, which are fast anyway, compute in float32 throughout.
const roundedWeights = 1 << 18

func (b *cpu) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	kernels.CheckLinear(y, x, w, bias)
	m, k, n := x.Dim0(), x.Width(), w.Dim0()
	Y := y.F32()
	gemmNT(m, n, k, float32(alpha), x.F32(), k, w, 0, k, b.roundingOf(w), float32(beta), Y, n)
	if bias != nil {
		for i := range m {
			simd.Add(Y[i*n:][:n], Y[i*n:][:n], bias.F32())
		}
	}
}

func (b *cpu) MatMul(c, a, w *kernels.Tensor, alpha, beta float64) {
	m, k, n := a.Dim0(), a.Width(), w.Width()
	kernels.CheckProduct("MatMul", c, m, n, k, w.Dim0())
	gemmNN(m, n, k, float32(alpha), a.F32(), k, w, 0, n, b.roundingOf(w), float32(beta), c.F32(), n)
}

// roundingOf is what products with weights may make of their numbers.
func (b *cpu) roundingOf(w *kernels.Tensor) simd.Rounding {
	switch {
	case b.exact:
		return simd.Float32
	case w.Len() >= roundedWeights:
		return simd.Rounded
	}
	return simd.Exact
}

// gemmNT is simd.GemmNT of the numbers in b from an element on, in any type: of blocks, rows that
// follow each other. how says what may be made of a for bfloat16 and blocks.
func gemmNT(m, n, k int, alpha float32, a []float32, lda int, b *kernels.Tensor, at, ldb int, how simd.Rounding, beta float32, c []float32, ldc int) {
	switch b.DType {
	case kernels.F32:
		simd.GemmNT(m, n, k, alpha, a, lda, b.F32()[at:], ldb, beta, c, ldc)
	case kernels.BF16:
		simd.GemmNTBF16(how, m, n, k, alpha, a, lda, b.U16()[at:], ldb, beta, c, ldc)
	case kernels.F16:
		simd.GemmNTF16(m, n, k, alpha, a, lda, b.U16()[at:], ldb, beta, c, ldc)
	case kernels.KIVIKeys, kernels.KIVIValues:
		groupsNT(m, n, k, alpha, a, lda, b, at/k, beta, c, ldc)
	default:
		blocks, f := b.Blocks()
		if ldb != k {
			panic("kernels: product with rows of blocks that are apart")
		}
		if order := b.Order(); order != nil {
			orderedNT(m, n, k, alpha, a, lda, f, blocks, order, how, beta, c, ldc)
			return
		}
		simd.GemmNTBlocks(m, n, k, alpha, a, lda, &f.Blocks, blocks[b.DType.Bytes(at):], how, beta, c, ldc)
	}
}

// gemmNN is simd.GemmNN of the numbers in b from an element on, in any type: of blocks, rows that
// follow each other. how says what may be made of a for bfloat16 and blocks.
func gemmNN(m, n, k int, alpha float32, a []float32, lda int, b *kernels.Tensor, at, ldb int, how simd.Rounding, beta float32, c []float32, ldc int) {
	switch b.DType {
	case kernels.F32:
		simd.GemmNN(m, n, k, alpha, a, lda, b.F32()[at:], ldb, beta, c, ldc)
	case kernels.BF16:
		simd.GemmNNBF16(how, m, n, k, alpha, a, lda, b.U16()[at:], ldb, beta, c, ldc)
	case kernels.F16:
		simd.GemmNNF16(m, n, k, alpha, a, lda, b.U16()[at:], ldb, beta, c, ldc)
	case kernels.KIVIKeys, kernels.KIVIValues:
		groupsNN(m, n, k, alpha, a, lda, b, at/n, beta, c, ldc)
	default:
		blocks, f := b.Blocks()
		if ldb != n {
			panic("kernels: product with rows of blocks that are apart")
		}
		if order := b.Order(); order != nil {
			orderedNN(m, n, k, alpha, a, lda, f, blocks, order, how, beta, c, ldc)
			return
		}
		simd.GemmNNBlocks(m, n, k, alpha, a, lda, &f.Blocks, blocks[b.DType.Bytes(at):], how, beta, c, ldc)
	}
}

// groupsNT is gemmNT of rows in groups, from one on: a tile of them is widened at a time, keys as they lie, by channels.
func groupsNT(m, n, k int, alpha float32, a []float32, lda int, b *kernels.Tensor, from int, beta float32, c []float32, ldc int) {
	for j := 0; j < n; j += tileEntries {
		rows := min(tileEntries, n-j)
		with(rows*k, func(s *buffer) {
			tile := s.takeFloats(rows * k)
			if b.DType == kernels.KIVIKeys {
				b.ReadColumns(tile, rows, from+j, rows)
				simd.GemmNN(m, rows, k, alpha, a, lda, tile, rows, beta, c[j:], ldc)
			} else {
				kernels.Read(tile, b, (from+j)*k)
				simd.GemmNT(m, rows, k, alpha, a, lda, tile, k, beta, c[j:], ldc)
			}
		})
	}
}

// groupsNN is gemmNN of rows in groups.
func groupsNN(m, n, k int, alpha float32, a []float32, lda int, b *kernels.Tensor, from int, beta float32, c []float32, ldc int) {
	for l := 0; l < k; l += tileEntries {
		rows := min(tileEntries, k-l)
		with(rows*n, func(s *buffer) {
			tile := s.takeFloats(rows * n)
			kernels.Read(tile, b, (from+l)*n)
			simd.GemmNN(m, n, rows, alpha, a[l:], lda, tile, n, beta, c, ldc)
		})
		beta = 1
	}
}

func (b *cpu) MatMulTA(c, a, w *kernels.Tensor, alpha, beta float64) {
	k, m, n := a.Dim0(), a.Width(), w.Width()
	kernels.CheckProduct("MatMulTA", c, m, n, k, w.Dim0())
	simd.GemmTN(m, n, k, float32(alpha), a.F32(), m, w.F32(), n, float32(beta), c.F32(), n)
}

func (b *cpu) Fill(y *kernels.Tensor, value float64) {
	switch y.DType {
	case kernels.F32:
		fillBlock(y.F32(), float32(value))
	case kernels.F64:
		fillBlock(y.F64(), value)
	case kernels.BF16:
		fillBlock(y.U16(), formats.F32ToBF16(float32(value)))
	default:
		panic("kernels: Fill of a " + y.DType.String() + " tensor")
	}
}

func (b *cpu) Gather(y, table *kernels.Tensor, ids []int32) {
	_, blocks := table.DType.Format()
	blocks = blocks && table.Order() == nil
	if y.DType != kernels.F32 || !blocks && table.DType != kernels.F32 && table.DType != kernels.BF16 && table.DType != kernels.F16 {
		b.Base.Gather(y, table, ids)
		return
	}
	w := table.Width()
	kernels.CheckGather(y, table, ids)
	Y := y.F32()
	for i, id := range ids {
		dst, at := Y[i*w:][:w], int(id)*w
		switch table.DType {
		case kernels.F32:
			copy(dst, table.F32()[at:][:w])
		case kernels.BF16:
			simd.WidenBF16(dst, table.U16()[at:][:w])
		case kernels.F16:
			simd.WidenF16(dst, table.U16()[at:][:w])
		default:
			rows, f := table.Blocks()
			f.Decode(dst, rows[table.DType.Bytes(at):][:table.DType.Bytes(w)])
		}
	}
}

func (b *cpu) Add(y, x, z *kernels.Tensor) {
	kernels.CheckLengths("Add", y, x, z)
	Y, X, Z := y.F32(), x.F32(), z.F32()
	host.Split(len(Y), 1, func(i, j int) { simd.Add(Y[i:j], X[i:j], Z[i:j]) })
}

func (b *cpu) Axpy(y *kernels.Tensor, alpha float64, x *kernels.Tensor) {
	kernels.CheckLengths("Axpy", y, x)
	Y, X := y.F32(), x.F32()
	host.Split(len(Y), 1, func(i, j int) { simd.Axpy(float32(alpha), X[i:j], Y[i:j]) })
}

func (b *cpu) AddRows(y, x *kernels.Tensor, rows []int32, weights []float64) {
	kernels.CheckAddRows(y, x, rows, weights)
	Y, X, w := y.F32(), x.F32(), y.Width()
	host.Split(len(rows), w, func(from, to int) {
		for i := from; i < to; i++ {
			simd.Axpy(float32(weights[i]), X[i*w:][:w], Y[int(rows[i])*w:][:w])
		}
	})
}

func (b *cpu) Norm(y, x, add *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("Norm", x, n, y, add)
	if add != nil {
		b.Add(x, x, add)
	}
	width := n.Weight.Len()
	Y, X, W := y.F32(), x.F32(), n.Weight.F32()
	if n.Bias == nil {
		host.Split(len(X)/width, 2*width, func(from, to int) {
			for r := from; r < to; r++ {
				in, out := X[r*width:][:width], Y[r*width:][:width]
				inv := 1 / math.Sqrt(float64(simd.SumSquares(in))/float64(width)+n.Eps)
				simd.Mul(out, in, W)
				simd.Scale(float32(inv), out)
			}
		})
		return
	}
	B := n.Bias.F32()
	host.Split(len(X)/width, 4*width, func(from, to int) {
		for r := from; r < to; r++ {
			out := Y[r*width:][:width]
			inv := centre(out, X[r*width:][:width], n.Eps)
			simd.Scale(inv, out)
			simd.Mul(out, out, W)
			simd.Add(out, out, B)
		}
	})
}

// centre writes x minus its mean and returns the reciprocal of its standard
// deviation.
func centre(y, x []float32, eps float64) (inv float32) {
	copy(y, x)
	simd.AddScalar(-simd.Sum(x)/float32(len(x)), y)
	return float32(1 / math.Sqrt(float64(simd.SumSquares(y))/float64(len(x))+eps))
}

func (b *cpu) NormGrad(dx, x, dy *kernels.Tensor, n kernels.Norm) {
	kernels.CheckNorm("NormGrad", x, n, dx, dy)
	width := n.Weight.Len()
	DX, X, W, DY := dx.F32(), x.F32(), n.Weight.F32(), dy.F32()
	if n.Bias == nil {
		host.Split(len(X)/width, 6*width, func(from, to int) {
			for r := from; r < to; r++ {
				in, out, g := X[r*width:][:width], DX[r*width:][:width], DY[r*width:][:width]
				inv := 1 / math.Sqrt(float64(simd.SumSquares(in))/float64(width)+n.Eps)
				simd.Mul(out, g, W)
				dot := float64(simd.Dot(out, in)) * inv * inv / float64(width)
				simd.Scale(float32(inv), out)
				simd.Axpy(float32(-inv*dot), in, out)
			}
		})
		return
	}
	host.Split(len(X)/width, 8*width, func(from, to int) {
		with(width, func(s *buffer) {
			normal := s.takeFloats(width)
			for r := from; r < to; r++ {
				out := DX[r*width:][:width]
				inv := centre(normal, X[r*width:][:width], n.Eps)
				simd.Scale(inv, normal)
				simd.Mul(out, DY[r*width:][:width], W)
				dot := simd.Dot(out, normal) / float32(width)
				simd.AddScalar(-simd.Sum(out)/float32(width), out)
				simd.Axpy(-dot, normal, out)
				simd.Scale(inv, out)
			}
		})
	})
}

func (b *cpu) RoPE(y, x *kernels.Tensor, pos []int32, table *kernels.RoPETable, inverse bool) {
	kernels.CheckRoPE(y, x, pos, table)
	if y != x {
		b.Copy(y, x)
	}
	rows, heads, dim := x.Shape[0], x.Shape[1], x.Shape[2]
	X, C, S, half := y.F32(), table.Cos.F32(), table.Sin.F32(), table.Cos.Width()
	sign := float32(1)
	if inverse {
		sign = -1
	}
	host.Split(rows, 2*heads*dim, func(from, to int) {
		for r := from; r < to; r++ {
			cos, sin := C[int(pos[r])*half:][:half], S[int(pos[r])*half:][:half]
			for h := range heads {
				low := X[(r*heads+h)*dim:][:half]
				high := X[(r*heads+h)*dim+half:][:half]
				for i, a := range low {
					z, c, s := high[i], cos[i], sign*sin[i]
					low[i], high[i] = c*a-s*z, s*a+c*z
				}
			}
		}
	})
}

func (b *cpu) SiLUMul(y, gate, up *kernels.Tensor) {
	kernels.CheckLengths("SiLUMul", y, gate, up)
	Y, G, U := y.F32(), gate.F32(), up.F32()
	host.Split(len(Y), 8, func(i, j int) { simd.SiLUMul(Y[i:j], G[i:j], U[i:j]) })
}

func (b *cpu) SiLUMulGrad(dgate, dup, gate, up, dy *kernels.Tensor) {
	kernels.CheckLengths("SiLUMulGrad", dy, dgate, dup, gate, up)
	DG, DU, G, U, DY := dgate.F32(), dup.F32(), gate.F32(), up.F32(), dy.F32()
	host.Split(len(DY), 16, func(i, j int) {
		// sigmoid(g) = 1 / (1 + exp(-g)), with exp(-g) staged in DU.
		for k := i; k < j; k++ {
			DU[k] = -G[k]
		}
		simd.Exp(DU[i:j], DU[i:j])
		for k := i; k < j; k++ {
			s := 1 / (1 + DU[k])
			DG[k] = DY[k] * U[k] * s * (1 + G[k]*(1-s))
			DU[k] = DY[k] * G[k] * s
		}
	})
}
