//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

// AttentionSelected reads the entries where they lie.
func (b *cuda) AttentionSelected(out, lse *kernels.Tensor, a *kernels.Attend, s *kernels.Selection, _ kernels.Allocator) {
	const op = "AttentionSelected"
	kernels.CheckAttention(op, out, lse, a)
	kernels.CheckSelected(op, a, s)
	b.do(op, func() { b.prepareSelected(op, a, s).attend(b.f32(op, out), b.f32(op, lse)) })
	keepAttend(a)
	runtime.KeepAlive([]*kernels.Tensor{out, lse})
	runtime.KeepAlive(s)
}

// prepareSelected is prepare for one row that attends to chosen entries. What its
// window leaves out is no entry at all.
func (b *cuda) prepareSelected(op string, a *kernels.Attend, s *kernels.Selection) *attention {
	t := b.describe(op, a, true)
	t.entries = 0
	ids, width := b.indices(op, s)
	for g := range t.past {
		skip := 0
		if !s.OnDevice() {
			first, _ := a.Visible(g, 0)
			skip, _ = slices.BinarySearch(s.Indices()[g], int32(first))
		}
		t.past[g].index = ids + cu.DevicePtr(4*(g*width+skip))
		t.past[g].entries = int32(s.Len(g) - skip)
		t.entries = max(t.entries, s.Len(g)-skip)
	}
	t.pastAt = upload(b, op, t.past)
	return t
}
