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
func (b *cuda) AttentionSelected(out, lse *Tensor, a *Attend, entries [][]int32) {
	const op = "AttentionSelected"
	checkAttention(op, out, lse, a)
	checkSelected(op, a, entries)
	b.do(op, func() { b.prepareSelected(op, a, entries).attend(b.f32(op, out), b.f32(op, lse)) })
	a.keep()
	runtime.KeepAlive([]*Tensor{out, lse})
}

// prepareSelected is prepare for one row that attends to chosen entries. What its
// window leaves out is no entry at all.
func (b *cuda) prepareSelected(op string, a *Attend, entries [][]int32) *attention {
	t := b.describe(op, a, true)
	var all []int32
	t.entries = 0
	for g, chosen := range entries {
		first, _ := a.visible(g, 0)
		skip, _ := slices.BinarySearch(chosen, int32(first))
		all = append(all, chosen[skip:]...)
		t.past[g].entries = int32(len(chosen) - skip)
		t.entries = max(t.entries, len(chosen)-skip)
	}
	at := upload(b, op, all)
	for g := range t.past {
		t.past[g].index = at
		at += cu.DevicePtr(4 * t.past[g].entries)
	}
	t.pastAt = upload(b, op, t.past)
	return t
}

// checkSelected panics unless entries choose from a's past for its one row.
func checkSelected(op string, a *Attend, entries [][]int32) {
	if a.Rows() != 1 || a.K != nil || len(entries) != a.KVHeads() {
		panic(fmt.Sprintf("kernels: %s: %d rows (own pairs: %v) with entries of %d of %d KV heads, want one row of the past", op, a.Rows(), a.K != nil, len(entries), a.KVHeads()))
	}
	for g, chosen := range entries {
		first, n := a.visible(g, 0)
		if len(chosen) == 0 || int(chosen[len(chosen)-1]) < first {
			panic(fmt.Sprintf("kernels: %s: none of %d entries of KV head %d is seen", op, len(chosen), g))
		}
		last := int32(-1)
		for _, j := range chosen {
			if j <= last || int(j) >= n {
				panic(fmt.Sprintf("kernels: %s: entry %d after %d of KV head %d, want ascending below %d", op, j, last, g, n))
			}
			last = j
		}
	}
}
