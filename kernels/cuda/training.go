//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"slices"
	"unsafe"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

var _ = kernelsOf("training",
	"low_rank_down", "low_rank_up", "low_rank_grads", "rotate", "fill_pieces", "axpy_pieces", "square_pieces",
	"adamw_pieces",
)

// piece is struct Piece of cuda/training.cu: at most sumChunk elements of tensors of one
// shape.
type piece struct {
	tensors [4]cu.DevicePtr
	n       size
}

// pieces cuts lists of tensors, in their order, so that the cut depends on their sizes alone.
func (b *cuda) pieces(op string, lists ...[]*kernels.Tensor) []piece {
	var out []piece
	for i, t := range lists[0] {
		var whole piece
		for j, list := range lists {
			whole.tensors[j] = b.f32(op, list[i])
		}
		for from := 0; from < t.Len(); from += sumChunk {
			p := piece{n: size(min(sumChunk, t.Len()-from))}
			for j := range lists {
				p.tensors[j] = whole.tensors[j] + cu.DevicePtr(4*from)
			}
			out = append(out, p)
		}
	}
	return out
}

// onPieces queues a kernel with a block for each piece.
func (b *cuda) onPieces(op, kernel string, pieces []piece, args ...any) {
	b.launch(kernel, [3]int{len(pieces), 1, 1}, elementThreads, 0, append([]any{upload(b, op, pieces)}, args...)...)
}

func (b *cuda) MultiFill(ts []*kernels.Tensor, value float64) {
	const op = "MultiFill"
	b.do(op, func() { b.onPieces(op, "fill_pieces", b.pieces(op, ts), float32(value)) })
	runtime.KeepAlive(slices.Clone(ts))
}

func (b *cuda) MultiAxpy(ys []*kernels.Tensor, alpha float64, xs []*kernels.Tensor) {
	const op = "MultiAxpy"
	kernels.CheckEach(op, ys, xs)
	b.do(op, func() { b.onPieces(op, "axpy_pieces", b.pieces(op, ys, xs), float32(alpha)) })
	runtime.KeepAlive(slices.Concat(ys, xs))
}

func (b *cuda) MultiSumSquares(sum float64, ts []*kernels.Tensor) float64 {
	const op = "MultiSumSquares"
	b.do(op, func() {
		pieces := b.pieces(op, ts)
		if len(pieces) == 0 {
			return
		}
		parts := b.temporary(op, 8*int64(len(pieces)))
		b.launch("square_pieces", [3]int{len(pieces), 1, 1}, elementThreads, 0, parts, upload(b, op, pieces))
		b.mustNotRecord(op, "waits for the device")
		squares := make([]float64, len(pieces))
		b.download(op, unsafe.Pointer(&squares[0]), parts, 8*int64(len(squares)))
		for _, x := range squares {
			sum += x
		}
	})
	runtime.KeepAlive(slices.Clone(ts))
	return sum
}

func (b *cuda) MultiAdamW(ps, gs, ms, vs []*kernels.Tensor, s kernels.AdamWStep) {
	const op = "MultiAdamW"
	kernels.CheckEach(op, ps, gs, ms, vs)
	b.do(op, func() {
		b.onPieces(op, "adamw_pieces", b.pieces(op, ps, gs, ms, vs), s.Beta1, s.Beta2, s.Correct1, s.Correct2, s.Epsilon, s.LearningRate,
			s.LearningRate*s.WeightDecay, s.GradScale)
	})
	runtime.KeepAlive(slices.Concat(ps, gs, ms, vs))
}

// As in training.cu.
const (
	lowRanks   = 8 // of a block
	lowThreads = 512
)

// lowRankDown queues low [rows, rank] = factor · x [rows, width] · mᵀ, whose element (j, d)
// lies at j·row + d·column of m, and writes x in bf16 parts where these are not 0.
func (b *cuda) lowRankDown(low, parts, x, m cu.DevicePtr, rows, width, rank, row, column int, factor float64) {
	threads := min(lowThreads, (width+31)/32*32)
	b.launch("low_rank_down", [3]int{rows, (rank + lowRanks - 1) / lowRanks, 1}, threads, 0, low, parts, x, m, width, rank,
		size(row), size(column), size(rows*width), float32(factor))
}

// partProducts is memory for rows in bf16 parts and their products with w, where these are how
// product computes g; else 0.
func (b *cuda) partProducts(op string, g gemm, w *kernels.Tensor) (parts, products cu.DevicePtr) {
	if w.DType.Numbers() != kernels.BF16 || rounds(g.m, g.n, g.k) {
		return 0, 0
	}
	return b.temporary(op, 6*int64(g.m)*int64(g.k)), b.temporary(op, 12*int64(g.m)*int64(g.n))
}

// multiplyParts queues the products of three parts of rows.
func (b *cuda) multiplyParts(op string, g gemm, products, parts cu.DevicePtr, w *kernels.Tensor) {
	g.m *= 3
	b.widenedProduct(op, g, products, parts, cudadriver.BF16, w, 1, 0)
}

// takesLowRank tells whether the kernels of cuda/training.cu take the factors.
func (b *cuda) takesLowRank(a, up *kernels.Tensor) bool {
	return a.DType == kernels.F32 && up.DType == kernels.F32
}

func (b *cuda) LowRank(y, low, x, w, bias, a, up *kernels.Tensor, scale float64) {
	const op = "LowRank"
	kernels.CheckLowRank(op, y, low, x, w, a, up)
	if !b.takesLowRank(a, up) {
		b.Decomposed.LowRank(y, low, x, w, bias, a, up, scale)
		return
	}
	kernels.CheckLinear(y, x, w, bias)
	m, in, out, r := x.Dim0(), x.Width(), w.Dim0(), a.Dim0()
	b.do(op, func() {
		g := gemm{m: m, n: out, k: in, weightRows: out, transposed: true}
		parts, products := b.partProducts(op, g, w)
		Y, Low := b.f32(op, y), b.f32(op, low)
		b.lowRankDown(Low, parts, b.f32(op, x), b.f32(op, a), m, in, r, in, 1, 1)
		if parts != 0 {
			b.multiplyParts(op, g, products, parts, w)
		} else {
			b.product(op, g, y, x, w, 1, 0)
		}
		b.each("low_rank_up", m*out, Y, products, Low, b.f32(op, up), size(m*out), out, r, float32(scale))
		if bias != nil {
			b.each("add_bias", m*out, Y, b.f32(op, bias), size(m*out), size(out))
		}
	})
	runtime.KeepAlive([]*kernels.Tensor{y, low, x, w, bias, a, up})
}

func (b *cuda) LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up *kernels.Tensor, scale float64) {
	const op = "LowRankGrad"
	kernels.CheckLowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up)
	if !b.takesLowRank(a, up) {
		b.Decomposed.LowRankGrad(dx, dLow, da, dup, dy, x, low, w, a, up, scale)
		return
	}
	m, in, out, r := x.Dim0(), x.Width(), w.Dim0(), a.Dim0()
	b.do(op, func() {
		g := gemm{m: m, n: in, k: out, weightRows: out}
		parts, products := b.partProducts(op, g, w)
		DX, DLow, DY := b.f32(op, dx), b.f32(op, dLow), b.f32(op, dy)
		b.lowRankDown(DLow, parts, DY, b.f32(op, up), m, out, r, 1, r, scale)
		if parts != 0 {
			b.multiplyParts(op, g, products, parts, w)
		} else {
			b.product(op, g, dx, dy, w, 1, 0)
		}
		b.each("low_rank_grads", m*in+r*in+out*r, DX, b.f32(op, da), b.f32(op, dup), products, DLow, DY, b.f32(op, x), b.f32(op, low), b.f32(op, a),
			m, in, out, r, float32(scale))
	})
	runtime.KeepAlive([]*kernels.Tensor{dx, dLow, da, dup, dy, x, low, w, a, up})
}
