//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("few_rows",
	"few_rows_f32_1", "few_rows_f32_8", "few_rows_f16_1", "few_rows_f16_8", "few_rows_bf16_1", "few_rows_bf16_4", "few_rows_bf16_8",
)

var _ = kernelsOf("few_norms",
	"few_rms_norm",
)

var _ = kernelsOf("heads",
	"rotate_heads_f32", "rotate_heads_bf16",
)

// A decode linear is a product of up to maxDecodeRows rows, one GEMV each, that is bound by
// the bandwidth of its weight: the kernels few_rows_*. Constants are as in few_rows.cu and
// few_norms.cu.
const (
	decodeNormLoads = 4

	decodeLinearWarps   = 8
	decodeLinearColumns = 4 // of a warp
	decodeLinearChunk   = 1024
)

// decodeLinearSplit is the logarithm of the number of warps that share the columns of a
// weight [n, k] of elements of so many bytes: narrow weights, too, need enough loads in
// flight, but no warp is started that would find no element of k left; each takes
// 512 bytes at a time. It depends on the weight alone, so that a layer has the same bits
// whatever layers are computed in the same launch.
func decodeLinearSplit(n, k, size int) int {
	split := 2
	switch {
	case n >= 8192:
		split = 0
	case n >= 2048:
		split = 1
	}
	for split > 0 && k*size <= 512<<(split-1) {
		split--
	}
	return split
}

// decodeLinearRows are the numbers of rows that the kernels for a type are made for.
var decodeLinearRows = map[kernels.DType][]int{kernels.BF16: {1, 4, 8}, kernels.F32: {1, 8}, kernels.F16: {1, 8}}

// aligned16 tells that loads of 16 bytes begin where they must.
func aligned16(at cu.DevicePtr) bool { return at%16 == 0 }

// takesDecodeLinears tells that the kernels take x and the weights: types, shapes and
// addresses.
func (b *cuda) takesDecodeLinears(op string, x *kernels.Tensor, linears ...kernels.LinearRows) bool {
	if !TakesDecodeLinears(x, linears) || !aligned16(b.f32(op, x)) {
		return false
	}
	for _, l := range linears {
		if !aligned16(b.address(op, l.Weight)) {
			return false
		}
	}
	return true
}

// decodeLinears launches the kernel of rows x and up to maxLinears weights. With gated, the
// first layer's output is SiLUMul of both.
func (b *cuda) decodeLinears(op string, x *kernels.Tensor, linears []kernels.LinearRows, gated bool, alpha, beta float64) {
	m, k := x.Dim0(), x.Width()
	if m == 0 {
		return
	}
	dtype, rows := linears[0].Weight.DType, 0
	if _, blocks := dtype.Format(); blocks {
		b.fewBlocks(op, x, linears, gated, alpha, beta)
		return
	}
	for _, n := range decodeLinearRows[dtype] {
		if rows = n; n >= m {
			break
		}
	}
	own, blocks := decodeLinearColumns, 0
	if gated {
		own /= 2
	}
	args := make([]any, 0, 5*maxLinears+6)
	for i, l := range linears {
		n := l.Weight.Dim0()
		split := decodeLinearSplit(n, k, dtype.Size())
		if columns := own * (decodeLinearWarps >> split); i == 0 || !gated {
			blocks += (n + columns - 1) / columns
		}
		args = append(args, b.address(op, l.Weight), b.f32(op, l.Bias), b.f32(op, l.Y), n, split)
	}
	for range maxLinears - len(linears) {
		args = append(args, cu.DevicePtr(0), cu.DevicePtr(0), cu.DevicePtr(0), 0, 0)
	}
	isGated := 0
	if gated {
		isGated = 1
	}
	args = append(args, b.f32(op, x), m, k, float32(alpha), float32(beta), isGated)
	name := fmt.Sprintf("few_rows_%s_%d", map[kernels.DType]string{kernels.F32: "f32", kernels.BF16: "bf16", kernels.F16: "f16"}[dtype], rows)
	b.launch(name, [3]int{blocks, 1, 1}, 32*decodeLinearWarps, 4*rows*decodeLinearChunk*min(2, (k+decodeLinearChunk-1)/decodeLinearChunk), args...)
}

// decodeNorm is Norm without a bias of few wide rows; false where there are
// other rows. A head's norm is never one of these: StepHeads computes it as rms_norm does.
func (b *cuda) decodeNorm(op string, y, x, add *kernels.Tensor, n kernels.Norm) (done bool) {
	const least = 512
	width := n.Weight.Len()
	rows := x.Len() / max(1, width)
	if y.DType != kernels.F32 || rows == 0 || rows > maxDecodeRows || width <= least || width > 4*decodeNormLoads*1024 || width%4 != 0 {
		return false
	}
	b.do(op, func() {
		at := []cu.DevicePtr{b.f32(op, y), b.f32(op, x), b.f32(op, add), b.f32(op, n.Weight)}
		for _, p := range at {
			if !aligned16(p) {
				return
			}
		}
		threads := min(1024, (width/4+31)/32*32)
		b.launch("few_rms_norm", [3]int{rows, 1, 1}, threads, 0, at[0], at[1], at[2], at[3], width, float32(n.Eps))
		done = true
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x, add, n.Weight})
	return done
}

// group computes linear layers of the same rows at once; false where that is not done.
func (b *cuda) group(op string, x *kernels.Tensor, layers []kernels.LinearRows, gated bool) (done bool) {
	b.do(op, func() {
		if done = b.takesDecodeLinears(op, x, layers...); done {
			b.decodeLinears(op, x, layers, gated, 1, 0)
		}
	})
	runtime.KeepAlive(x)
	runtime.KeepAlive(layers)
	return done
}

func (b *cuda) LinearGroup(x *kernels.Tensor, layers ...kernels.LinearRows) {
	const op = "LinearGroup"
	kernels.CheckLinearGroup(op, x, layers...)
	for n := 0; len(layers) > 0; layers = layers[n:] { // neighbours of one type, as files of mixed formats have them
		for n = 1; n < len(layers) && layers[n].Weight.DType == layers[0].Weight.DType; n++ {
		}
		if !b.group(op, x, layers[:n], false) {
			b.Decomposed.LinearGroup(x, layers[:n]...)
		}
	}
}

func (b *cuda) GatedLinear(y, x *kernels.Tensor, gate, up kernels.LinearRows, temp kernels.Allocator) {
	kernels.CheckGatedLinear(y, x, gate, up)
	gate.Y, up.Y = y, y
	if y.DType != kernels.F32 || !b.group("GatedLinear", x, []kernels.LinearRows{gate, up}, true) {
		b.Decomposed.GatedLinear(y, x, gate, up, temp)
	}
}

func (b *cuda) RotateHeads(q, k *kernels.Tensor, norms kernels.HeadNorms, pos []int32, table *kernels.RoPETable) {
	const op = "RotateHeads"
	kernels.CheckHeads(op, q, k, norms, pos, table)
	b.do(op, func() { b.rotateHeads(op, q, k, nil, norms, upload(b, op, pos), table, pairsAt{dtype: kernels.F32}) })
	keepHeads(q, k, nil, norms, table)
}

// pairsAt says where a step's pairs go: the heads of a layer of so many sequences, at the
// end of the entries that at holds, struct Past of cuda/attention.h; the next sequence's lie
// stride heads after.
type pairsAt struct {
	at                cu.DevicePtr
	stride, sequences int
	dtype             kernels.DType
}

func (b *cuda) rotateHeads(op string, q, k, v *kernels.Tensor, norms kernels.HeadNorms, pos cu.DevicePtr, table *kernels.RoPETable, to pairsAt) {
	dim, heads, kvHeads := q.Shape[2], q.Shape[1], k.Shape[1]
	name := map[kernels.DType]string{kernels.F32: "rotate_heads_f32", kernels.BF16: "rotate_heads_bf16"}[to.dtype]
	if name == "" {
		panic(fmt.Sprintf("kernels: %s: pairs of %s", op, to.dtype))
	}
	b.launch(name, [3]int{heads + kvHeads, q.Shape[0], 1}, rowThreads(dim), 0,
		b.f32(op, q), b.f32(op, k), b.f32(op, v), b.f32(op, norms.Query), b.f32(op, norms.Key), float32(norms.Eps), pos,
		b.f32(op, table.Cos), b.f32(op, table.Sin), heads, kvHeads, dim, to.at, to.stride, to.sequences)
}

func keepHeads(q, k, v *kernels.Tensor, norms kernels.HeadNorms, table *kernels.RoPETable) {
	runtime.KeepAlive([]*kernels.Tensor{q, k, v, norms.Query, norms.Key, table.Cos, table.Sin})
}

func (b *cuda) StepHeads(q, k, v *kernels.Tensor, norms kernels.HeadNorms, table *kernels.RoPETable, steps kernels.Steps, sequences, layer int, pairs kernels.DType) {
	s := steps.(*cudaSteps)
	const op = "StepHeads"
	kernels.CheckHeads(op, q, k, norms, make([]int32, s.rows), table)
	if k.Len() != v.Len() || k.Shape[1] != s.kvHeads || sequences < 1 || sequences > s.rows || layer < 0 || layer >= s.layers {
		panic(fmt.Sprintf("kernels: %s: layer %d of %d sequences: keys %v, values %v for %d KV heads of %d layers of %d sequences",
			op, layer, sequences, k.Shape, v.Shape, s.kvHeads, s.layers, s.rows))
	}
	b.do(op, func() {
		b.rotateHeads(op, q, k, v, norms, b.at(op, s.pos, kernels.I32), table, pairsAt{
			at:     b.at(op, s.past, kernels.I32) + cu.DevicePtr(layer*s.kvHeads*4*pastInts),
			stride: s.layers * s.kvHeads, sequences: sequences, dtype: pairs,
		})
	})
	keepHeads(q, k, v, norms, table)
	runtime.KeepAlive([]*kernels.Tensor{s.pos, s.past})
}

// togetherBytes bounds what the parts of sequences that attend at once leave to be merged.
const togetherBytes = 16 << 20

func (b *cuda) StepAttention(out, q, k, v *kernels.Tensor, steps kernels.Steps, to kernels.StepLayer) {
	n := len(to.Longest)
	if n == 0 {
		b.stepAppend(out, q, k, v, steps, to)
		return
	}
	if n > 1 && to.Appended && to.Scores == nil && b.attendTogether(out.Rows(0, n), q.Rows(0, n), steps, to) {
		return
	}
	for i := range n {
		one := to
		one.Sequence, one.Longest = to.Sequence+i, to.Longest[i:i+1]
		b.stepAttention(out.Rows(i, i+1), q.Rows(i, i+1), k.Rows(i, i+1), v.Rows(i, i+1), steps, one)
	}
}

// attendTogether is StepAttention of sequences at once, whose pairs are Appended. It returns false where the
// kernels do not take that, or where what the parts leave to be merged is more than the launches are worth.
func (b *cuda) attendTogether(out, q *kernels.Tensor, steps kernels.Steps, to kernels.StepLayer) (done bool) {
	s := steps.(*cudaSteps)
	const op = "StepAttention"
	if len(q.Shape) != 3 || out.Len() != q.Len() || q.Shape[0] < 1 || to.Sequence < 0 || to.Sequence+q.Shape[0] > s.rows || q.Shape[1]%s.kvHeads != 0 || to.Sinks != nil && to.Sinks.Len() != q.Shape[1] || to.Layer < 0 || to.Layer >= s.layers {
		panic(fmt.Sprintf("kernels: %s: layer %d: queries %v, output %v for %d KV heads of %d layers of %d sequences",
			op, to.Layer, q.Shape, out.Shape, s.kvHeads, s.layers, s.rows))
	}
	t := &attention{
		b: b, op: op, rows: 1, heads: q.Shape[1], kvHeads: s.kvHeads, dim: q.Shape[2], entries: slices.Max(to.Longest), scale: float32(to.Scale), cap: float32(to.SoftCap),
		sequences: q.Shape[0], stride: s.layers * s.kvHeads,
	}
	t.setPairs(to.Pairs)
	b.do(op, func() {
		at := cu.DevicePtr((to.Sequence*s.layers + to.Layer) * s.kvHeads)
		t.pastAt, t.q = b.at(op, s.past, kernels.I32)+at*4*pastInts, b.f32(op, q)
		t.sinks = b.f32(op, to.Sinks)
		if to.Windowed {
			t.fromPast = b.at(op, s.first, kernels.I32) + at*4
		}
		if done = t.stepFits(b.f32(op, out)) && 4*t.stepParts()*t.sequences*t.heads*t.dim <= togetherBytes; done {
			t.attendStep(b.f32(op, out), 0, 0, 0)
		}
	})
	runtime.KeepAlive([]*kernels.Tensor{out, q, s.past, s.first, to.Sinks})
	return done
}
