//go:build gpu && linux && amd64

package kernels

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/cu"
)

// checkMoments panics unless moments are of the heads, with room for known entries.
func checkMoments(op string, moments *Tensor, known []int) {
	if len(moments.Shape) != 3 || moments.Shape[0] != 3 || moments.Shape[1] != len(known) || len(known) == 0 || slices.Min(known) < 0 || slices.Max(known) > moments.Shape[2] {
		panic(fmt.Sprintf("kernels: %s: moments %v of %v entries", op, moments.Shape, known))
	}
}

// checkSpread panics unless means and spreads are scores of the entries.
func checkSpread(op string, means, spreads *Tensor, entries []int) {
	checkEntries(op, means, entries)
	if !slices.Equal(means.Shape, spreads.Shape) {
		panic(fmt.Sprintf("kernels: %s: means %v and spreads %v", op, means.Shape, spreads.Shape))
	}
}

// check panics unless the rows can be those of a pass over the entries.
func checkRows(op string, r PassRows, entries []int) {
	if r.Count < 1 || r.Next < 0 || r.Window < 0 || r.Window > 0 && len(r.Positions) != len(entries) {
		panic(fmt.Sprintf("kernels: %s: %d rows from %d on with a window of %d and positions of %d heads, want %d", op, r.Count, r.Next, r.Window, len(r.Positions), len(entries)))
	}
	for h, n := range entries {
		if r.Window > 0 && len(r.Positions[h]) != n || r.Window == 0 && n > 0 && n < r.Count {
			panic(fmt.Sprintf("kernels: %s: %d rows, %d entries of head %d", op, r.Count, n, h))
		}
	}
}

// positions uploads those of a pass as [kvHeads, width], 0 without a window.
func positionsOf(b *cuda, op string, r PassRows, width int) cu.DevicePtr {
	if r.Window == 0 {
		return 0
	}
	flat := make([]int32, width*len(r.Positions))
	for h, pos := range r.Positions {
		copy(flat[h*width:], pos)
	}
	return upload(b, op, flat)
}

func (b *cuda) ScoreMoments(means, spreads *Tensor, entries []int, mean, square *Tensor, rows PassRows) {
	const op = "ScoreMoments"
	checkSpread(op, means, spreads, entries)
	checkGrouped(op, mean, entries)
	checkRows(op, rows, entries)
	if !slices.Equal(mean.Shape, square.Shape) {
		panic(fmt.Sprintf("kernels: %s: means %v and squares %v", op, mean.Shape, square.Shape))
	}
	b.do(op, func() {
		b.launch("score_moments", columns(slices.Max(entries), len(entries)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.f32(op, mean), b.f32(op, square),
			positionsOf(b, op, rows, means.Width()), upload(b, op, int32s(entries)), means.Width(), mean.Width(), mean.Dim0()/len(entries), rows.Count, rows.Next, rows.Window)
	})
	runtime.KeepAlive([]*Tensor{means, spreads, mean, square})
}

func (b *cuda) StartMoments(moments, means, spreads *Tensor, s *Selection, seen [][]int32) {
	const op = "StartMoments"
	checkMoments(op, moments, s.lens)
	checkSpread(op, means, spreads, s.spans)
	if len(seen) != s.Heads() {
		panic(fmt.Sprintf("kernels: %s: rows of %d heads, want %d", op, len(seen), s.Heads()))
	}
	b.do(op, func() {
		ids, width := b.indices(op, s)
		flat := make([]int32, width*len(seen))
		for h, rows := range seen {
			if len(rows) != s.lens[h] {
				panic(fmt.Sprintf("kernels: %s: rows of %d entries of head %d, want %d", op, len(rows), h, s.lens[h]))
			}
			copy(flat[h*width:], rows)
		}
		b.launch("start_moments", columns(slices.Max(s.lens), s.Heads()), elementThreads, 0, b.at(op, moments, F64), b.f32(op, means), b.f32(op, spreads), ids,
			upload(b, op, flat), upload(b, op, int32s(s.lens)), moments.Shape[2], means.Width(), width)
	})
	runtime.KeepAlive([]*Tensor{moments, means, spreads})
	runtime.KeepAlive(s)
}

func (b *cuda) AddMoments(means, spreads, moments *Tensor, entries, known []int, logScore *Tensor) {
	const op = "AddMoments"
	checkSpread(op, means, spreads, entries)
	checkMoments(op, moments, entries)
	checkSums(op, means, entries, known)
	checkGrouped(op, logScore, entries)
	b.do(op, func() {
		n := uploadLists(b, op, entries, known)
		b.launch("add_moments", columns(slices.Max(entries), len(entries)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.at(op, moments, F64), b.f32(op, logScore),
			n[0], n[1], moments.Shape[2], means.Width(), logScore.Width(), logScore.Dim0()/len(entries))
	})
	runtime.KeepAlive([]*Tensor{means, spreads, moments, logScore})
}

func (b *cuda) CarryMoments(means, spreads *Tensor, entries []int, moments *Tensor, known []int, rows PassRows) {
	const op = "CarryMoments"
	checkSpread(op, means, spreads, entries)
	checkSums(op, means, entries, known)
	checkMoments(op, moments, known)
	checkRows(op, rows, entries)
	b.do(op, func() {
		n := uploadLists(b, op, entries, known)
		b.launch("carry_moments", columns(slices.Max(known), len(known)), elementThreads, 0, b.f32(op, means), b.f32(op, spreads), b.at(op, moments, F64),
			positionsOf(b, op, rows, means.Width()), n[0], n[1], means.Width(), moments.Shape[2], rows.Count, rows.Next, rows.Window)
	})
	runtime.KeepAlive([]*Tensor{means, spreads, moments})
}

func (b *cuda) PickMoments(to, from *Tensor, s *Selection) {
	const op = "PickMoments"
	checkMoments(op, to, s.lens)
	checkMoments(op, from, s.spans)
	b.do(op, func() {
		ids, width := b.indices(op, s)
		grid := columns(slices.Max(s.lens), s.Heads())
		grid[2] = 3
		b.launch("pick_moments", grid, elementThreads, 0, b.at(op, to, F64), b.at(op, from, F64), ids, upload(b, op, int32s(s.lens)), to.Shape[2], from.Shape[2], width)
	})
	runtime.KeepAlive([]*Tensor{to, from})
	runtime.KeepAlive(s)
}

func (b *cuda) SelectSpread(means, spreads *Tensor, entries []int, budget, protected, sink, recent int) *Selection {
	const op = "SelectSpread"
	checkSpread(op, means, spreads, entries)
	if sink < 0 || recent < 0 || protected < sink+recent || budget < protected {
		panic(fmt.Sprintf("kernels: %s: budget %d, %d protected with %d sinks and %d recent entries", op, budget, protected, sink, recent))
	}
	s := &Selection{lens: make([]int, len(entries)), spans: slices.Clone(entries)}
	first, second, raised := make([]choice, len(entries)), make([]choice, len(entries)), make([]int, len(entries))
	for h, n := range entries {
		s.lens[h] = min(n, budget)
		first[h] = choice{int32(n), int32(min(n, protected)), int32(sink), int32(recent)}
		second[h] = choice{entries: int32(n), budget: int32(s.lens[h])}
		raised[h] = min(n, protected)
	}
	s.device = b.Alloc(I32, len(entries), slices.Max(s.lens))
	heads, width := len(entries), means.Width()
	most, threads := max(1, slices.Max(raised)), threadsFor(slices.Max(entries))
	b.do(op, func() {
		ids, ranked := b.temporary(op, 4*int64(heads*most)), b.temporary(op, 4*int64(heads*width))
		n, choices := uploadLists(b, op, entries, raised), upload(b, op, slices.Concat(first, second))
		grid := [3]int{heads, 1, 1}
		b.launch("select_top", grid, threads, 0, ids, b.f32(op, spreads), choices, width, most)
		b.launch("raise_scores", grid, threads, 0, ranked, b.f32(op, means), ids, n[0], n[1], width, most)
		b.launch("select_top", grid, threads, 0, b.at(op, s.device, I32), ranked, choices+cu.DevicePtr(16*heads), width, s.device.Width())
	})
	runtime.KeepAlive([]*Tensor{means, spreads, s.device})
	return s
}
