//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("experts", func() (names []string) {
	for _, d := range expertTypes {
		names = append(names, "expert_gates_"+d, "expert_sums_"+d)
	}
	return append(names, "route_experts")
}()...)

// As in experts.cu.
const expertWarps = 8

// expertAt is struct Expert of experts.cu.
type expertAt struct {
	gate, up, down             cu.DevicePtr
	gateBias, upBias, downBias cu.DevicePtr
	width                      int64
}

// TakesExperts writes the table of addresses at the first call.
func (b *cuda) TakesExperts(rows int, e *kernels.FewExperts) (ok bool) {
	const op = "TakesExperts"
	if !TakesExperts(rows, e) {
		return false
	}
	written := false
	b.do(op, func() { written = e.Table != nil })
	if written {
		return true
	}
	if size := unsafe.Sizeof(expertAt{}); size != 4*ExpertInts {
		panic(fmt.Sprintf("kernels: struct Expert has %d bytes, want %d", size, 4*ExpertInts))
	}
	host := kernels.NewTensor(kernels.I32, len(e.Each), ExpertInts)
	table := unsafe.Slice((*expertAt)(unsafe.Pointer(&host.I32()[0])), len(e.Each))
	ok = true
	b.do(op, func() {
		for i, l := range e.Each {
			at := expertAt{
				gate: b.address(op, l.Gate.Weight), up: b.address(op, l.Up.Weight), down: b.address(op, l.Down.Weight),
				gateBias: b.f32(op, l.Gate.Bias), upBias: b.f32(op, l.Up.Bias), downBias: b.f32(op, l.Down.Bias), width: int64(l.Up.Weight.Dim0()),
			}
			ok, table[i] = ok && aligned16(at.gate|at.up|at.down), at
		}
	})
	if ok {
		made := b.Alloc(kernels.I32, host.Shape...)
		kernels.Convert(made, host)
		b.do(op, func() { e.Table = made })
	}
	return ok
}

func (b *cuda) FewExperts(y, x, logits, gates *kernels.Tensor, e *kernels.FewExperts, rows int, scale float64, temp kernels.Allocator) {
	const op = "FewExperts"
	kernels.CheckFewExperts(y, x, logits, gates, e, rows)
	if !b.TakesExperts(rows, e) {
		b.Decomposed.FewExperts(y, x, logits, gates, e, rows, scale, temp)
		return
	}
	act, routed := ExpertsTemporary(rows, e, temp)
	slots, width, k, n := act.Shape[1], act.Shape[2], x.Width(), y.Width()
	b.do(op, func() {
		choice := b.f32(op, routed)
		weights, table, acts := choice+cu.DevicePtr(4*rows*slots), b.at(op, e.Table, kernels.I32), b.f32(op, act)
		flag := map[bool]int{true: 1}
		b.launch("route_experts", [3]int{rows, 1, 1}, 32, 0, choice, weights, b.f32(op, logits), b.f32(op, e.Correction), b.f32(op, gates),
			e.Experts(), e.TopK, slots, e.Groups, e.TopGroups, flag[e.Logistic], flag[e.Normalise], e.Factor())
		of := e.Each[0]
		gateName, gateLike := blockKernel(of.Up.Weight.DType.String())
		sumName, sumLike := blockKernel(of.Down.Weight.DType.String())
		b.launch("expert_gates_"+gateName, [3]int{(width + expertWarps - 1) / expertWarps, slots, rows}, 32*expertWarps, 0, acts, b.f32(op, x), table, choice, slots, k, width, int(e.Act), gateLike)
		b.launch("expert_sums_"+sumName, [3]int{(n + expertWarps - 1) / expertWarps, y.Dim0(), 1}, 32*expertWarps, 0,
			b.f32(op, y), acts, table, choice, weights, rows, slots, n, width, float32(scale), sumLike)
	})
	runtime.KeepAlive([]*kernels.Tensor{y, x, logits, gates, act, routed, e.Table})
	runtime.KeepAlive(e)
}
