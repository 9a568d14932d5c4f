//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("moments",
	"score_moments", "start_moments", "add_moments", "carry_moments", "pick_moments", "raise_scores",
)

// checkMoments panics unless moments are of the heads, with room for known entries.
func checkMoments(op string, moments *kernels.Tensor, known []int) {
	if len(moments.Shape) != 3 || moments.Shape[0] != 3 || moments.Shape[1] != len(known) || len(known) == 0 || slices.Min(known) < 0 || slices.Max(known) > moments.Shape[2] {
		panic(fmt.Sprintf("kernels: %s: moments %v of %v entries", op, moments.Shape, known))
	}
}

// checkSpread panics unless means and spreads are scores of the entries.
func checkSpread(op string, means, spreads *kernels.Tensor, entries []int) {
	kernels.CheckEntries(op, means, entries)
	if !slices.Equal(means.Shape, spreads.Shape) {
		panic(fmt.Sprintf("kernels: %s: means %v and spreads %v", op, means.Shape, spreads.Shape))
	}
}

// checkRows panics unless a pass over the entries can have the rows.
func checkRows(op string, r kernels.PassRows, entries []int) {
	if r.Count < 1 || r.Next < 0 || r.Window < 0 || r.Window > 0 && len(r.Positions) != len(entries) {
		panic(fmt.Sprintf("kernels: %s: %d rows from %d on with a window of %d and positions of %d heads, want %d", op, r.Count, r.Next, r.Window, len(r.Positions), len(entries)))
	}
	for h, n := range entries {
		if r.Window > 0 && len(r.Positions[h]) != n || r.Window == 0 && n > 0 && n < r.Count {
			panic(fmt.Sprintf("kernels: %s: %d rows, %d entries of head %d", op, r.Count, n, h))
		}
	}
}

// positionsOf uploads the positions of a pass as [kvHeads, width], 0 without a window.
func positionsOf(b *cuda, op string, r kernels.PassRows, width int) cu.DevicePtr {
	if r.Window == 0 {
		return 0
	}
	flat := make([]int32, width*len(r.Positions))
	for h, pos := range r.Positions {
		copy(flat[h*width:], pos)
	}
	return upload(b, op, flat)
}

func (b *cuda) ScoreMoments(means, spreads *kernels.Tensor, entries []int, mean, square *kernels.Tensor, rows kernels.PassRows) {
	const op = "ScoreMoments"
	checkSpread(op, means, spreads, entries)
	kernels.CheckGrouped(op, mean, entries)
	checkRows(op, rows, entries)
	if !slices.Equal(mean.Shape, square.Shape) {
		panic(fmt.Sprintf("kernels: %s: means %v and squares %v", op, mean.Shape, square.Shape))
	}
	b.do(op, func() {
		b.launch("score_moments", columns(slices.Max(entries), len(entries)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.f32(op, mean), b.f32(op, square),
			positionsOf(b, op, rows, means.Width()), upload(b, op, int32s(entries)), means.Width(), mean.Width(), mean.Dim0()/len(entries), rows.Count, rows.Next, rows.Window)
	})
	runtime.KeepAlive([]*kernels.Tensor{means, spreads, mean, square})
}

func (b *cuda) StartMoments(moments, means, spreads *kernels.Tensor, s *kernels.Selection, seen [][]int32) {
	const op = "StartMoments"
	checkMoments(op, moments, s.Lens)
	checkSpread(op, means, spreads, s.Spans)
	if len(seen) != s.Heads() {
		panic(fmt.Sprintf("kernels: %s: rows of %d heads, want %d", op, len(seen), s.Heads()))
	}
	b.do(op, func() {
		ids, width := b.indices(op, s)
		flat := make([]int32, width*len(seen))
		for h, rows := range seen {
			if len(rows) != s.Lens[h] {
				panic(fmt.Sprintf("kernels: %s: rows of %d entries of head %d, want %d", op, len(rows), h, s.Lens[h]))
			}
			copy(flat[h*width:], rows)
		}
		b.launch("start_moments", columns(slices.Max(s.Lens), s.Heads()), elementThreads, 0, b.at(op, moments, kernels.F64), b.f32(op, means), b.f32(op, spreads), ids,
			upload(b, op, flat), upload(b, op, int32s(s.Lens)), moments.Shape[2], means.Width(), width)
	})
	runtime.KeepAlive([]*kernels.Tensor{moments, means, spreads})
	runtime.KeepAlive(s)
}

func (b *cuda) AddMoments(means, spreads, moments *kernels.Tensor, entries, known []int, logScore *kernels.Tensor) {
	const op = "AddMoments"
	checkSpread(op, means, spreads, entries)
	checkMoments(op, moments, entries)
	kernels.CheckSums(op, means, entries, known)
	kernels.CheckGrouped(op, logScore, entries)
	b.do(op, func() {
		n := uploadLists(b, op, entries, known)
		b.launch("add_moments", columns(slices.Max(entries), len(entries)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.at(op, moments, kernels.F64), b.f32(op, logScore),
			n[0], n[1], moments.Shape[2], means.Width(), logScore.Width(), logScore.Dim0()/len(entries))
	})
	runtime.KeepAlive([]*kernels.Tensor{means, spreads, moments, logScore})
}

func (b *cuda) CarryMoments(means, spreads *kernels.Tensor, entries []int, moments *kernels.Tensor, known []int, rows kernels.PassRows) {
	const op = "CarryMoments"
	checkSpread(op, means, spreads, entries)
	kernels.CheckSums(op, means, entries, known)
	checkMoments(op, moments, known)
	checkRows(op, rows, entries)
	b.do(op, func() {
		n := uploadLists(b, op, entries, known)
		b.launch("carry_moments", columns(slices.Max(known), len(known)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.at(op, moments, kernels.F64),
			positionsOf(b, op, rows, means.Width()), n[0], n[1], means.Width(), moments.Shape[2], rows.Count, rows.Next, rows.Window)
	})
	runtime.KeepAlive([]*kernels.Tensor{means, spreads, moments})
}

func (b *cuda) SelectSpread(means, spreads *kernels.Tensor, entries []int, budget, protected, sink, recent int) *kernels.Selection {
	const op = "SelectSpread"
	checkSpread(op, means, spreads, entries)
	if sink < 0 || recent < 0 || protected < sink+recent || budget < protected {
		panic(fmt.Sprintf("kernels: %s: budget %d, %d protected with %d sinks and %d recent entries", op, budget, protected, sink, recent))
	}
	s := &kernels.Selection{Lens: make([]int, len(entries)), Spans: slices.Clone(entries)}
	first, second, raised := make([]choice, len(entries)), make([]choice, len(entries)), make([]int, len(entries))
	for h, n := range entries {
		s.Lens[h] = min(n, budget)
		first[h] = choice{int32(n), int32(min(n, protected)), int32(sink), int32(recent)}
		second[h] = choice{entries: int32(n), budget: int32(s.Lens[h])}
		raised[h] = min(n, protected)
	}
	s.Device = b.Alloc(kernels.I32, len(entries), slices.Max(s.Lens))
	heads, width := len(entries), means.Width()
	most, threads := max(1, slices.Max(raised)), threadsFor(slices.Max(entries))
	b.do(op, func() {
		ids, ranked := b.temporary(op, 4*int64(heads*most)), b.temporary(op, 4*int64(heads*width))
		n, choices := uploadLists(b, op, entries, raised), upload(b, op, slices.Concat(first, second))
		b.selectTop(op, ids, b.f32(op, spreads), first, choices, width, most)
		b.launch("raise_scores", [3]int{heads, 1, 1}, threads, 0, ranked, b.f32(op, means), ids, n[0], n[1], width, most)
		b.selectTop(op, b.at(op, s.Device, kernels.I32), ranked, second, choices+cu.DevicePtr(16*heads), width, s.Device.Width())
	})
	runtime.KeepAlive([]*kernels.Tensor{means, spreads, s.Device})
	return s
}
