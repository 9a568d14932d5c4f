//go:build gpu && linux && amd64

package kernels

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/cu"
)

var _ SelectedAttention = (*cuda)(nil)

// AttentionSelected implements SelectedAttention.
func (b *cuda) AttentionSelected(out, lse *Tensor, a *Attend, s *Selection) {
	const op = "AttentionSelected"
	checkAttention(op, out, lse, a)
	checkSelected(op, a, s)
	b.do(op, func() { b.prepareSelected(op, a, s).attend(b.f32(op, out), b.f32(op, lse)) })
	a.keep()
	runtime.KeepAlive([]*Tensor{out, lse})
	runtime.KeepAlive(s)
}

// prepareSelected is prepare for one row that attends to chosen entries. What its
// window leaves out is no entry at all.
func (b *cuda) prepareSelected(op string, a *Attend, s *Selection) *attention {
	t := b.describe(op, a, true)
	t.entries = 0
	ids, width := b.indices(op, s)
	for g := range t.past {
		skip := 0
		if !s.OnDevice() {
			first, _ := a.visible(g, 0)
			skip, _ = slices.BinarySearch(s.indices[g], int32(first))
		}
		t.past[g].index = ids + cu.DevicePtr(4*(g*width+skip))
		t.past[g].entries = int32(s.Len(g) - skip)
		t.entries = max(t.entries, s.Len(g)-skip)
	}
	t.pastAt = upload(b, op, t.past)
	return t
}

// checkSelected panics unless s chooses from a's past for its one row. The indices of a
// selection on a device are right by their making.
func checkSelected(op string, a *Attend, s *Selection) {
	if a.Rows() != 1 || a.K != nil || s.Heads() != a.KVHeads() {
		panic(fmt.Sprintf("kernels: %s: %d rows (own pairs: %v) with entries of %d of %d KV heads, want one row of the past", op, a.Rows(), a.K != nil, s.Heads(), a.KVHeads()))
	}
	for g, n := range s.lens {
		first, entries := a.visible(g, 0)
		if n == 0 || s.spans[g] <= first || s.spans[g] > entries {
			panic(fmt.Sprintf("kernels: %s: %d entries below %d of KV head %d, want some from %d to %d", op, n, s.spans[g], g, first, entries))
		}
		if s.OnDevice() {
			continue
		}
		last := int32(-1)
		for _, j := range s.indices[g] {
			if j <= last {
				panic(fmt.Sprintf("kernels: %s: entry %d after %d of KV head %d, want ascending", op, j, last, g))
			}
			last = j
		}
	}
}
