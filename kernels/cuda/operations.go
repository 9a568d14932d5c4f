//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"
	"glimpse/kernels/formats"

	"gorgonia.org/cu"
)

var _ = kernelsOf("elements",
	"fill_f32", "fill_f64", "fill_b16", "gather_f32", "gather_f64", "gather_bf16", "gather_f16", "gather_b16",
	"copy_head_f32", "copy_head_bf16", "to_bf16", "split_bf16", "join_parts", "from_bf16", "from_f16", "add_bias", "scale",
	"add", "axpy", "rope", "silu_mul", "silu_mul_bf16", "silu_mul_grad", "gelu_tanh_mul", "gelu_tanh_mul_bf16", "gelu_tanh_mul_grad",
	"clamped_swiglu_mul", "clamped_swiglu_mul_bf16", "clamped_swiglu_mul_grad", "soft_cap", "gelu", "gelu_bf16", "gelu_grad", "merge_scores",
	"adamw",
)

var _ = kernelsOf("rows",
	"rms_norm", "rms_norm_bf16", "rms_norm_grad", "add_rms_norm", "add_rms_norm_bf16", "layer_norm", "layer_norm_bf16",
	"layer_norm_grad", "add_layer_norm", "add_layer_norm_bf16", "sum_squares", "sum_parts", "score_kl", "score_mse",
)

// Placed implements Memory.
func (b *cuda) Placed(d kernels.DType) kernels.DType { return Placed(d) }

// Place copies to the device.
func (b *cuda) Place(host *kernels.Tensor) *kernels.Tensor {
	if Placed(host.DType) != host.DType {
		host = kernels.Widened(host)
	}
	return kernels.PlaceInOrder(b, host)
}

func (b *cuda) Linear(y, x, w, bias *kernels.Tensor, alpha, beta float64) {
	const op = "Linear"
	kernels.CheckLinear(y, x, w, bias)
	m, k, n := x.Dim0(), x.Width(), w.Dim0()
	b.do(op, func() {
		if l := (kernels.LinearRows{Y: y, Weight: w, Bias: bias}); alpha != 0 && b.takesDecodeLinears(op, x, l) {
			b.decodeLinears(op, x, []kernels.LinearRows{l}, false, alpha, beta)
			return
		}
		b.product(op, gemm{m: m, n: n, k: k, weightRows: n, transposed: true}, y, x, w, alpha, beta)
		if bias != nil {
			b.each("add_bias", m*n, b.f32(op, y), b.f32(op, bias), size(m*n), size(n))
		}
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x, w, bias})
}

func (b *cuda) MatMul(c, a, w *kernels.Tensor, alpha, beta float64) {
	const op = "MatMul"
	m, k, n := a.Dim0(), a.Width(), w.Width()
	kernels.CheckProduct(op, c, m, n, k, w.Dim0())
	b.do(op, func() { b.product(op, gemm{m: m, n: n, k: k, weightRows: k}, c, a, w, alpha, beta) })
	runtime.KeepAlive([]*kernels.Tensor{c, a, w})
}

func (b *cuda) MatMulTA(c, a, w *kernels.Tensor, alpha, beta float64) {
	const op = "MatMulTA"
	k, m, n := a.Dim0(), a.Width(), w.Width()
	kernels.CheckProduct(op, c, m, n, k, w.Dim0())
	b.do(op, func() {
		b.multiply(op, cudadriver.Product{Type: cudadriver.F32, M: n, N: m, K: k, LdA: n, LdB: m, LdC: n, TransposeB: true},
			b.f32(op, c), b.f32(op, w), b.f32(op, a), alpha, beta)
	})
	runtime.KeepAlive([]*kernels.Tensor{c, a, w})
}

// gemm is a product of rows x [m, k] and a weight: [n, k] where it is transposed,
// else [k, n].
type gemm struct {
	m, n, k    int
	weightRows int
	transposed bool
}

// columnMajor is the product as cuBLASLt sees row-major memory: yᵀ = wᵀ xᵀ.
func (g gemm) columnMajor(dtype int) cudadriver.Product {
	p := cudadriver.Product{Type: dtype, M: g.n, N: g.m, K: g.k, LdA: g.n, LdB: g.k, LdC: g.n}
	if g.transposed {
		p.TransposeA, p.LdA = true, g.k
	}
	return p
}

// product computes y = alpha · x · w + beta · y for weights of any type.
func (b *cuda) product(op string, g gemm, y, x, w *kernels.Tensor, alpha, beta float64) {
	if g.m == 0 || g.n == 0 {
		return
	}
	if w.DType == kernels.F32 && SplitsK(g.m, g.n, g.k) && alpha != 0 {
		b.splitKProduct(op, g, y, x, w, alpha, beta)
		return
	}
	if x.DType == kernels.BF16 {
		b.bf16Product(op, g, y, x, w, alpha, beta)
		return
	}
	Y, X := b.f32(op, y), b.f32(op, x)
	switch w.DType.Numbers() {
	case kernels.F32:
		b.multiply(op, g.columnMajor(cudadriver.F32), Y, b.f32(op, w), X, alpha, beta)
	case kernels.BF16, kernels.F16:
		n := g.m * g.k
		switch {
		case rounds(g.m, g.n, g.k):
			b.widenedProduct(op, g, Y, b.toBF16(op, X, n), cudadriver.BF16, w, alpha, beta)
			return
		case w.DType == kernels.F16:
			b.widenedProduct(op, g, Y, X, cudadriver.F32, w, alpha, beta)
			return
		}
		parts, sums := b.temporary(op, 6*int64(n)), b.temporary(op, 12*int64(g.m)*int64(g.n))
		b.each("split_bf16", n, parts, X, size(n))
		m := g.m
		g.m *= 3
		b.widenedProduct(op, g, sums, parts, cudadriver.BF16, w, 1, 0)
		b.each("join_parts", m*g.n, Y, sums, float32(alpha), float32(beta), size(m*g.n))
	default:
		panic(fmt.Sprintf("kernels: %s with weights of %s", op, w.DType))
	}
}

// toBF16 is a copy of n numbers of float32.
func (b *cuda) toBF16(op string, x cu.DevicePtr, n int) cu.DevicePtr {
	rounded := b.temporary(op, 2*int64(n))
	b.maps("to_bf16", n, rounded, x, size(n))
	return rounded
}

// multiply runs one product c = alpha · op(a) · op(b) + beta · c.
func (b *cuda) multiply(op string, p cudadriver.Product, c, x, y cu.DevicePtr, alpha, beta float64) {
	b.multiplyBy(op, p, c, x, y, cudadriver.Factors{Alpha: float32(alpha), Beta: float32(beta)})
}

// multiplyBy is multiply with factors that may lie in device memory.
func (b *cuda) multiplyBy(op string, p cudadriver.Product, c, x, y cu.DevicePtr, by cudadriver.Factors) {
	if p.M == 0 || p.N == 0 {
		return
	}
	if p.K == 0 || by.Alpha == 0 {
		b.scaleMatrix(p, c, by.Beta)
		return
	}
	p.AlignA, p.AlignB, p.AlignC = alignment(x), alignment(y), alignment(c)
	b.mustNotPrepare(op)
	plan, err := b.blas.Plan(b.context, p)
	if errors.Is(err, cudadriver.ErrNoAlgorithm) && p.Type != cudadriver.F32 {
		if !b.productsWarned {
			b.productsWarned = true
			warn(fmt.Sprintf("%s: products in half precision that cuBLASLt does not support are float32 products of widened matrices: %v", b.device, err))
		}
		kernel := map[int]string{cudadriver.BF16: "from_bf16", cudadriver.F16: "from_f16"}[p.Type]
		p.Type = cudadriver.F32
		x = b.widened(op, kernel, x, p.TransposeA, p.M, p.K, p.LdA)
		y = b.widened(op, kernel, y, p.TransposeB, p.K, p.N, p.LdB)
		b.multiplyBy(op, p, c, x, y, by)
		return
	}
	b.try(op, err)
	workspace := b.workspaceFor(op, int64(plan.Workspace()))
	b.try(op, plan.Run(by, x, y, c, workspace, b.queue()))
	b.note("cublasLtMatmul")
}

// widened is a copy in float32, by a kernel, of a matrix [rows, columns] in half precision in column-major order, or of its
// transpose.
func (b *cuda) widened(op, kernel string, x cu.DevicePtr, transpose bool, rows, columns, stride int) cu.DevicePtr {
	if transpose {
		rows, columns = columns, rows
	}
	n := (columns-1)*stride + rows
	wide := b.temporary(op, 4*int64(n))
	b.each(kernel, n, wide, x, size(n))
	return wide
}

// scaleMatrix is a product that adds nothing. Only whole matrices come here.
func (b *cuda) scaleMatrix(p cudadriver.Product, c cu.DevicePtr, beta float32) {
	for column := range p.N {
		b.each("scale", p.M, c+cu.DevicePtr(4*column*p.LdC), beta, size(p.M))
	}
}

// alignment is the largest power of two up to 256 that divides an address.
func alignment(p cu.DevicePtr) int { return int(min(256, p&-p)) }

func (b *cuda) Fill(y *kernels.Tensor, value float64) {
	const op = "Fill"
	n := y.Len()
	b.do(op, func() {
		switch y.DType {
		case kernels.F32:
			b.each("fill_f32", n, b.address(op, y), float32(value), size(n))
		case kernels.F64:
			b.each("fill_f64", n, b.address(op, y), value, size(n))
		case kernels.BF16:
			b.each("fill_b16", n, b.address(op, y), int(formats.F32ToBF16(float32(value))), size(n))
		default:
			panic("kernels: Fill of a " + y.DType.String() + " tensor")
		}
	})
	runtime.KeepAlive(y)
}

// Copy goes through the host where x is not on this device, and another device is then done with it.
func (b *cuda) Copy(y, x *kernels.Tensor) {
	const op = "Copy"
	kernels.CheckCopy(y, x)
	if block, _ := x.Block(); block == nil || block.(*cudaBlock).b.cudaDevice != b.cudaDevice {
		kernels.Convert(y, x)
		return
	}
	b.do(op, func() { b.copyBytes(op, b.address(op, y), b.address(op, x), x.Bytes()) })
	runtime.KeepAlive([]*kernels.Tensor{y, x})
}

func (b *cuda) copyBytes(op string, dst, src cu.DevicePtr, n int) {
	if n > 0 && b.segment != nil {
		b.segment.ops = append(b.segment.ops, operation{name: "cuMemcpyDtoD", slots: []uint64{uint64(dst), uint64(src), uint64(n)}})
	} else if n > 0 {
		b.try(op, cu.MemcpyDtoDAsync(dst, src, int64(n), b.queue()))
		b.note("cuMemcpyDtoD")
	}
}

func (b *cuda) Gather(y, table *kernels.Tensor, ids []int32) {
	const op = "Gather"
	w := table.Width()
	kernels.CheckGather(y, table, ids)
	b.do(op, func() {
		n := len(ids) * w
		Y, T := b.address(op, y), b.address(op, table)
		dst := Y
		inPlace := n > 0 && Y < T+cu.DevicePtr(table.Bytes()) && T < Y+cu.DevicePtr(y.Bytes())
		if inPlace { // threads would overwrite rows that others have yet to read
			dst = b.temporary(op, int64(y.Bytes()))
		}
		if at := upload(b, op, ids); y.DType == kernels.BF16 && table.DType == kernels.BF16 {
			b.each("gather_b16", n, dst, T, at, size(n), size(w))
		} else {
			b.f32(op, y) // or it is refused
			b.gather(op, dst, table, at, n)
		}
		if inPlace {
			b.copyBytes(op, Y, dst, y.Bytes())
		}
	})
	runtime.KeepAlive([]*kernels.Tensor{y, table})
}

func (b *cuda) CopyHead(y, x *kernels.Tensor, h int) {
	const op = "CopyHead"
	kernels.CheckCopyHead(y, x, h)
	b.do(op, func() {
		name := map[kernels.DType]string{kernels.F32: "copy_head_f32", kernels.BF16: "copy_head_bf16"}[y.DType]
		if name == "" {
			panic(fmt.Sprintf("kernels: %s into %s", op, y.DType))
		}
		b.each(name, y.Len(), b.address(op, y), b.f32(op, x), size(y.Len()), x.Shape[1], x.Shape[2], h)
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x})
}

// elementwise runs a kernel on F32 tensors of equal length.
func (b *cuda) elementwise(op, kernel string, ts ...*kernels.Tensor) {
	n := ts[0].Len()
	kernels.CheckLengths(op, ts[0], ts[1:]...)
	b.do(op, func() {
		args := make([]any, 0, len(ts)+1)
		for _, t := range ts {
			args = append(args, b.f32(op, t))
		}
		b.maps(kernel, n, append(args, size(n))...)
	})
	runtime.KeepAlive(ts)
}

func (b *cuda) Add(y, x, z *kernels.Tensor) { b.elementwise("Add", "add", y, x, z) }

func (b *cuda) Axpy(y *kernels.Tensor, alpha float64, x *kernels.Tensor) {
	const op = "Axpy"
	kernels.CheckLengths("Axpy", y, x)
	b.do(op, func() { b.maps("axpy", y.Len(), b.f32(op, y), float32(alpha), b.f32(op, x), size(y.Len())) })
	runtime.KeepAlive([]*kernels.Tensor{y, x})
}

func (b *cuda) SoftCap(y, x *kernels.Tensor, limit float64) {
	const op = "SoftCap"
	kernels.CheckLengths(op, y, x)
	b.do(op, func() { b.maps("soft_cap", y.Len(), b.f32(op, y), b.f32(op, x), float32(limit), size(y.Len())) })
	runtime.KeepAlive([]*kernels.Tensor{y, x})
}

// rowThreads are the threads that work on one row.
func rowThreads(width int) int { return min(256, (width+31)/32*32) }

// Norm has a block per row, but for few wide ones; y may be in BF16.
func (b *cuda) Norm(y, x, add *kernels.Tensor, n kernels.Norm) {
	const op = "Norm"
	kernels.CheckNorm(op, x, n, y, add)
	if n.Bias == nil && b.decodeNorm(op, y, x, add, n) {
		return
	}
	name, ts := "rms_norm", []*kernels.Tensor{y, x, n.Weight}
	if n.Bias != nil {
		name, ts = "layer_norm", append(ts, n.Bias)
	}
	if add != nil {
		name, ts = "add_"+name, slices.Insert(ts, 2, add)
	}
	b.onRows(op, name, n, ts...)
}

func (b *cuda) NormGrad(dx, x, dy *kernels.Tensor, n kernels.Norm) {
	const op = "NormGrad"
	kernels.CheckNorm(op, x, n, dx, dy)
	name := "rms_norm_grad"
	if n.Bias != nil {
		name = "layer_norm_grad"
	}
	b.onRows(op, name, n, dx, x, n.Weight, dy)
}

// onRows runs a kernel of a norm with a block per row; the first tensor may be in BF16.
func (b *cuda) onRows(op, kernel string, n kernels.Norm, ts ...*kernels.Tensor) {
	b.do(op, func() {
		args, width := make([]any, 0, len(ts)+2), n.Weight.Len()
		kernel, Y := b.rounding(op, kernel, ts[0])
		args = append(args, Y)
		for _, t := range ts[1:] {
			args = append(args, b.f32(op, t))
		}
		b.launch(kernel, [3]int{ts[0].Len() / width, 1, 1}, rowThreads(width), 0, append(args, width, float32(n.Eps))...)
	})
	runtime.KeepAlive(ts)
}

func (b *cuda) RoPE(y, x *kernels.Tensor, pos []int32, table *kernels.RoPETable, inverse bool) {
	const op = "RoPE"
	kernels.CheckRoPE(y, x, pos, table)
	sign := float32(1)
	if inverse {
		sign = -1
	}
	if y != x && 2*table.Cos.Width() < x.Shape[2] { // the others are copied
		b.Copy(y, x)
		x = y
	}
	b.do(op, func() {
		if at := upload(b, op, pos); y == x {
			b.rope(op, y, at, table, sign)
		} else {
			n := x.Len() / 2
			b.each("rotate", n, b.f32(op, y), b.f32(op, x), at, b.f32(op, table.Cos), b.f32(op, table.Sin), size(n), x.Shape[1], x.Shape[2]/2, sign)
		}
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x, table.Cos, table.Sin})
}

func (b *cuda) rope(op string, x *kernels.Tensor, pos cu.DevicePtr, table *kernels.RoPETable, sign float32) {
	half := table.Cos.Width()
	heads := x.Shape[1]
	b.launch("rope", [3]int{x.Shape[0], blocks(heads*half, 4*elementThreads), 1}, elementThreads, 0,
		b.f32(op, x), pos, b.f32(op, table.Cos), b.f32(op, table.Sin), heads, half, x.Shape[2], sign)
}

func (b *cuda) SiLUMul(y, gate, up *kernels.Tensor) { b.activation("SiLUMul", "silu_mul", y, gate, up) }

func (b *cuda) SiLUMulGrad(dgate, dup, gate, up, dy *kernels.Tensor) {
	b.elementwise("SiLUMulGrad", "silu_mul_grad", dgate, dup, gate, up, dy)
}

// gateKernels are what computes a gate; its gradient's name ends in _grad.
var gateKernels = map[kernels.Gate]string{kernels.SiLU: "silu_mul", kernels.GELUTanh: "gelu_tanh_mul", kernels.ClampedSwiGLU: "clamped_swiglu_mul"}

func (b *cuda) GateMul(act kernels.Gate, y, gate, up *kernels.Tensor) {
	b.activation("GateMul", gateKernels[act], y, gate, up)
}

func (b *cuda) GateMulGrad(act kernels.Gate, dgate, dup, gate, up, dy *kernels.Tensor) {
	b.elementwise("GateMulGrad", gateKernels[act]+"_grad", dgate, dup, gate, up, dy)
}

func (b *cuda) GELU(y, x *kernels.Tensor)          { b.activation("GELU", "gelu", y, x) }
func (b *cuda) GELUGrad(dx, x, dy *kernels.Tensor) { b.elementwise("GELUGrad", "gelu_grad", dx, x, dy) }

func (b *cuda) MergeScores(acc, other *kernels.Tensor, wAcc, wOther float64) {
	const op = "MergeScores"
	kernels.CheckLengths(op, acc, other)
	la, lo := math.Log(wAcc/(wAcc+wOther)), math.Log(wOther/(wAcc+wOther))
	b.do(op, func() {
		b.each("merge_scores", acc.Len(), b.f32(op, acc), b.f32(op, other), float32(la), float32(lo), size(acc.Len()))
	})
	runtime.KeepAlive([]*kernels.Tensor{acc, other})
}

func (b *cuda) ScoreKL(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	const op = "ScoreKL"
	kernels.CheckLoss(op, dLogScore, logScore, logTarget)
	heads, n := logTarget.Dim0(), logTarget.Width()
	b.do(op, func() {
		parts := b.temporary(op, 8*int64(heads))
		threads := rowThreads(n)
		if n >= 4096 { // a head is a block
			threads = 1024
		}
		b.launch("score_kl", [3]int{heads, 1, 1}, threads, 0, parts, b.f32(op, dLogScore), b.f32(op, logScore), b.f32(op, logTarget), n, weight)
		b.launch("sum_parts", [3]int{1, 1, 1}, 1, 0, b.at(op, loss, kernels.F64), parts, heads, weight, 1)
	})
	runtime.KeepAlive([]*kernels.Tensor{loss, dLogScore, logScore, logTarget})
}

// sumChunk is the number of elements whose sum is one part: a constant, so that the
// bits of a sum depend on its length alone.
const sumChunk = 1 << 14

func (b *cuda) ScoreMSE(loss, dLogScore, logScore, logTarget *kernels.Tensor, weight float64) {
	const op = "ScoreMSE"
	kernels.CheckLoss(op, dLogScore, logScore, logTarget)
	n := logTarget.Len()
	b.do(op, func() {
		blocks := (n + sumChunk - 1) / sumChunk
		parts := b.temporary(op, 8*int64(blocks))
		b.launch("score_mse", [3]int{blocks, 1, 1}, 256, 0, parts, b.f32(op, dLogScore), b.f32(op, logScore), b.f32(op, logTarget), size(n), size(sumChunk), weight)
		b.launch("sum_parts", [3]int{1, 1, 1}, 1, 0, b.at(op, loss, kernels.F64), parts, blocks, weight, 1)
	})
	runtime.KeepAlive([]*kernels.Tensor{loss, dLogScore, logScore, logTarget})
}

func (b *cuda) AdamW(p, g, m, v *kernels.Tensor, s kernels.AdamWStep) {
	const op = "AdamW"
	kernels.CheckLengths(op, p, g, m, v)
	b.do(op, func() {
		b.each("adamw", p.Len(), b.f32(op, p), b.f32(op, g), b.f32(op, m), b.f32(op, v), size(p.Len()), s.Beta1, s.Beta2, s.Correct1, s.Correct2,
			s.Epsilon, s.LearningRate, s.LearningRate*s.WeightDecay, s.GradScale)
	})
	runtime.KeepAlive([]*kernels.Tensor{p, g, m, v})
}

func (b *cuda) SumSquares(t *kernels.Tensor) (sum float64) {
	const op = "SumSquares"
	n := t.Len()
	if n == 0 {
		return 0
	}
	b.do(op, func() {
		blocks := (n + sumChunk - 1) / sumChunk
		parts, total := b.temporary(op, 8*int64(blocks)), b.temporary(op, 8)
		b.launch("sum_squares", [3]int{blocks, 1, 1}, 256, 0, parts, b.f32(op, t), size(n), size(sumChunk))
		b.launch("sum_parts", [3]int{1, 1, 1}, 1, 0, total, parts, blocks, 1.0, 0)
		b.mustNotRecord(op, "waits for the device")
		b.download(op, unsafe.Pointer(&sum), total, 8)
	})
	runtime.KeepAlive(t)
	return sum
}
