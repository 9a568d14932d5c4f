//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("select",
	"group_scores", "pool_scores", "mean_scores", "add_scores", "carry_scores", "max_scores", "key_scores_f32",
	"key_scores_bf16", "select_top", "select_top_part", "share_budget", "move_rows_16", "move_rows_2", "pick_f32", "pick_ids",
)

// Selector implements Backend.
func (b *cuda) Selector() kernels.Selector { return b }

// selectThreads are the threads of a block that selects or samples: the launch bound of
// these kernels.
const selectThreads = 512

func threadsFor(n int) int { return max(32, min(selectThreads, (n+31)/32*32)) }

// columns is a grid with a thread per column and a row per head.
func columns(n, heads int) [3]int {
	return [3]int{(n + elementThreads - 1) / elementThreads, heads, 1}
}

func int32s(x []int) []int32 {
	out := make([]int32, len(x))
	for i, v := range x {
		out[i] = int32(v)
	}
	return out
}

// uploadLists uploads lists of one number per head in one copy.
func uploadLists(b *cuda, op string, lists ...[]int) (at []cu.DevicePtr) {
	var all []int32
	for _, l := range lists {
		all = append(all, int32s(l)...)
	}
	start := upload(b, op, all)
	for i := range lists {
		at = append(at, start+cu.DevicePtr(4*i*len(lists[0])))
	}
	return at
}

func (b *cuda) Scores(scores *kernels.Tensor, entries []int, terms []kernels.ScoreTerm, allHeads bool) {
	const op = "Scores"
	kernels.CheckTerms(scores, entries, terms, allHeads)
	most, heads, width := slices.Max(entries), len(entries), scores.Width()
	b.do(op, func() {
		S, n := b.f32(op, scores), upload(b, op, int32s(entries))
		for i, t := range terms {
			factor := t.Factor
			if factor == 0 {
				factor = 1
			}
			pools, to := t.Kernel > 1 || i > 0, S
			if pools {
				to = b.temporary(op, 4*int64(heads*width))
			}
			b.launch("group_scores", columns(most, heads), elementThreads, 0, to, b.f32(op, t.LogScore), n, width, t.LogScore.Width(),
				t.LogScore.Dim0()/heads, int(t.Group), factor)
			if allHeads {
				b.launch("mean_scores", columns(most, 1), elementThreads, 0, to, most, width, heads, toInt(t.Group == kernels.GroupLogMean))
			}
			if pools {
				b.launch("pool_scores", columns(most, heads), elementThreads, 0, S, to, n, width, t.Kernel, t.Tail, min(i, 1))
			}
		}
	})
	runtime.KeepAlive(scores)
	for _, t := range terms {
		runtime.KeepAlive(t.LogScore)
	}
}

func (b *cuda) PoolScores(to, from *kernels.Tensor, entries []int, kernel, tail int) {
	const op = "PoolScores"
	kernels.CheckEntries(op, from, entries)
	kernels.CheckPool(op, kernel, tail)
	if !slices.Equal(to.Shape, from.Shape) {
		panic(fmt.Sprintf("kernels: %s: scores %v of %v", op, to.Shape, from.Shape))
	}
	b.do(op, func() {
		b.launch("pool_scores", columns(slices.Max(entries), len(entries)), elementThreads, 0, b.f32(op, to), b.f32(op, from),
			upload(b, op, int32s(entries)), from.Width(), kernel, tail, 0)
	})
	runtime.KeepAlive([]*kernels.Tensor{to, from})
}

func (b *cuda) KeyScores(scores *kernels.Tensor, past []kernels.KV) {
	const op = "KeyScores"
	entries, keys := make([]int, len(past)), make([]cu.DevicePtr, len(past))
	for h, kv := range past {
		entries[h] = kv.Entries()
	}
	kernels.CheckEntries(op, scores, entries)
	dtype, dim := past[0].K.DType, past[0].K.Width()
	name := map[kernels.DType]string{kernels.F32: "key_scores_f32", kernels.BF16: "key_scores_bf16"}[dtype]
	if name == "" {
		panic(fmt.Sprintf("kernels: %s: keys of %s", op, dtype))
	}
	for _, kv := range past {
		if kv.K.Width() != dim {
			panic(fmt.Sprintf("kernels: %s: keys %v of heads of %d", op, kv.K.Shape, dim))
		}
	}
	b.do(op, func() {
		for h, kv := range past {
			keys[h] = b.at(op, kv.K, dtype)
		}
		b.launch(name, columns(slices.Max(entries), len(past)), elementThreads, 0, b.f32(op, scores), upload(b, op, keys), upload(b, op, int32s(entries)), scores.Width(), dim)
	})
	runtime.KeepAlive(scores)
	runtime.KeepAlive(past)
}

func (b *cuda) AddScores(sums *kernels.Tensor, entries, known []int, logScore *kernels.Tensor) {
	const op = "AddScores"
	kernels.CheckSums(op, sums, entries, known)
	kernels.CheckEntries(op, sums, entries)
	kernels.CheckGrouped(op, logScore, entries)
	heads := len(entries)
	b.do(op, func() {
		n := uploadLists(b, op, entries, known)
		b.launch("add_scores", columns(slices.Max(entries), heads), elementThreads, 0, b.f32(op, sums), b.f32(op, logScore), n[0], n[1], sums.Width(), logScore.Width(), logScore.Dim0()/heads)
	})
	runtime.KeepAlive([]*kernels.Tensor{sums, logScore})
}

func (b *cuda) CarryScores(scores, sums *kernels.Tensor, known []int) {
	const op = "CarryScores"
	kernels.CheckEntries(op, sums, known)
	kernels.CheckEntries(op, scores, known)
	b.do(op, func() {
		b.launch("carry_scores", columns(slices.Max(known), len(known)), elementThreads, 0, b.f32(op, scores), b.f32(op, sums),
			upload(b, op, int32s(known)), scores.Width(), sums.Width())
	})
	runtime.KeepAlive([]*kernels.Tensor{scores, sums})
}

func (b *cuda) MaxScores(acc, other *kernels.Tensor) {
	b.elementwise("MaxScores", "max_scores", acc, other)
}

// choice is struct Choice of select.cu.
type choice struct{ entries, budget, sink, recent int32 }

func (b *cuda) Select(scores *kernels.Tensor, entries, budgets []int, sink, recent int) *kernels.Selection {
	const op = "Select"
	kernels.CheckSelect(op, scores, entries, budgets, sink, recent)
	s := &kernels.Selection{Lens: make([]int, len(entries)), Spans: slices.Clone(entries)}
	choices := make([]choice, len(entries))
	for h, n := range entries {
		s.Lens[h] = min(n, budgets[h])
		first := min(sink, budgets[h])
		choices[h] = choice{int32(n), int32(min(n, budgets[h])), int32(first), int32(min(recent, budgets[h]-first))}
	}
	s.Device = b.Alloc(kernels.I32, len(entries), slices.Max(s.Lens))
	b.do(op, func() {
		b.selectTop(op, b.at(op, s.Device, kernels.I32), b.f32(op, scores), choices, upload(b, op, choices), scores.Width(), s.Device.Width())
	})
	runtime.KeepAlive([]*kernels.Tensor{scores, s.Device})
	return s
}

// leastToSplit is the least of a row that several blocks choose from: below it, another launch takes
// longer than what it saves.
const leastToSplit = 4096

// selectChunk is how much of n entries one block chooses from, where k are kept of each of so many
// heads: what one block takes from all chunks is about as much as another has in its own. 0: the
// whole row has one block.
func selectChunk(n, k, heads, processors int) int {
	if n < leastToSplit || k == 0 {
		return 0
	}
	parts := min(int(math.Sqrt(float64(n)/float64(k))), 2*processors/heads)
	if parts < 2 {
		return 0
	}
	return (n + parts - 1) / parts
}

// selectTop queues the choice of every head of scores: at is where the choices are on the device.
func (b *cuda) selectTop(op string, ids, scores cu.DevicePtr, choices []choice, at cu.DevicePtr, width, idWidth int) {
	heads, most, k, longest := len(choices), 0, 0, int32(0)
	for _, c := range choices {
		longest = max(longest, c.entries)
		if c.entries > c.budget {
			most, k = max(most, int(c.entries-c.sink-c.recent)), max(k, int(c.budget-c.sink-c.recent))
		}
	}
	threads, best, bestAt, bestWidth := threadsFor(int(longest)), cu.DevicePtr(0), cu.DevicePtr(0), 0
	chunk := selectChunk(most, k, heads, b.processors)
	if chunk > 0 {
		parts := (most + chunk - 1) / chunk
		bestWidth = parts * k
		best, bestAt = b.temporary(op, 4*int64(heads*bestWidth)), b.temporary(op, 4*int64(heads*bestWidth))
		b.launch("select_top_part", [3]int{parts, heads, 1}, threadsFor(chunk), 0, best, bestAt, scores, at, width, chunk, bestWidth)
	}
	b.launch("select_top", [3]int{heads, 1, 1}, threads, 0, ids, scores, at, width, idWidth, best, bestAt, chunk, bestWidth)
}

// rival is struct Rival of select.cu.
type rival struct{ entries, sink, recent, own int32 }

func (b *cuda) ShareBudget(scores *kernels.Tensor, entries, own []int, sink, recent, pool int) []int {
	const op = "ShareBudget"
	kernels.CheckShare(op, scores, entries, own, sink, recent, pool)
	heads := len(entries)
	extra := make([]int, heads)
	if pool == 0 {
		return extra
	}
	rivals, host := make([]rival, heads), make([]int32, heads)
	for h, n := range entries {
		rivals[h] = rival{int32(n), int32(sink), int32(recent), int32(own[h])}
		if n < sink+recent { // nothing between them
			rivals[h] = rival{}
		}
	}
	b.do(op, func() {
		counts, bound, left := b.temporary(op, 4*int64(heads)), b.temporary(op, 4*int64(heads)), b.temporary(op, 4*int64(heads))
		b.launch("share_budget", [3]int{1, 1, 1}, threadsFor(slices.Max(entries)), 0, counts, bound, left, b.f32(op, scores), upload(b, op, rivals), heads, scores.Width(), pool)
		b.download(op, unsafe.Pointer(&host[0]), counts, 4*int64(heads))
	})
	runtime.KeepAlive(scores)
	for h, n := range host {
		extra[h] = int(n)
	}
	return extra
}

// move is struct Move of select.cu.
type move struct {
	to, from, ids cu.DevicePtr
	rows, back    int32
}

func (b *cuda) Compact(dst, src []kernels.KV, s *kernels.Selection) {
	const op = "Compact"
	kernels.CheckCompact(op, dst, src, s)
	if len(dst) == 0 || slices.Max(s.Lens) == 0 {
		return
	}
	dtype := dst[0].K.DType
	rowBytes := dst[0].K.Width() * dtype.Size()
	b.do(op, func() {
		ids, width := b.indices(op, s)
		var moves, back []move
		unit, name := 16, "move_rows_16"
		for h, n := range s.Lens {
			for _, p := range [][2]*kernels.Tensor{{dst[h].K, src[h].K}, {dst[h].V, src[h].V}} {
				to, from := b.at(op, p[0], dtype), b.at(op, p[1], dtype)
				if n == 0 {
					continue
				}
				if alignment(to) < 16 || alignment(from) < 16 || rowBytes%16 != 0 {
					unit, name = 2, "move_rows_2"
				}
				m := move{to: to, from: from, ids: ids + cu.DevicePtr(4*h*width), rows: int32(n)}
				if to < from+cu.DevicePtr(p[1].Bytes()) && from < to+cu.DevicePtr(p[0].Bytes()) { // rows would be overwritten that others have yet to read
					spare := b.temporary(op, int64(n*rowBytes))
					back = append(back, move{to: to, from: spare, ids: m.ids, rows: m.rows, back: 2})
					m.to, m.back = spare, 1
				}
				moves = append(moves, m)
			}
		}
		at, row := upload(b, op, slices.Concat(moves, back)), rowBytes/unit
		b.launch(name, columns(slices.Max(s.Lens)*row, len(moves)), elementThreads, 0, at, row)
		b.launch(name, columns(slices.Max(s.Lens)*row, len(back)), elementThreads, 0, at+cu.DevicePtr(uintptr(len(moves))*unsafe.Sizeof(move{})), row)
	})
	runtime.KeepAlive(dst)
	runtime.KeepAlive(src)
	runtime.KeepAlive(s)
}

// indices are the addresses of a selection's indices, and the width of a row.
func (b *cuda) indices(op string, s *kernels.Selection) (cu.DevicePtr, int) {
	if s.Device != nil {
		return b.at(op, s.Device, kernels.I32), s.Device.Width()
	}
	width := slices.Max(s.Lens)
	flat := make([]int32, width*len(s.Lens))
	for h, idx := range s.Indices() {
		copy(flat[h*width:], idx)
	}
	return upload(b, op, flat), width
}

func (b *cuda) Pick(to, from *kernels.Tensor, s *kernels.Selection) {
	const op = "Pick"
	kernels.CheckPick(to, from, s)
	name, grid, dtype, last := "pick_f32", columns(slices.Max(s.Lens), s.Heads()), kernels.F32, len(from.Shape)-1
	if last == 2 {
		name, grid[2], dtype = "pick_moments", 3, kernels.F64
	}
	b.do(op, func() {
		ids, width := b.indices(op, s)
		b.launch(name, grid, elementThreads, 0, b.at(op, to, dtype), b.at(op, from, dtype), ids, upload(b, op, int32s(s.Lens)), to.Shape[last], from.Shape[last], width)
	})
	runtime.KeepAlive([]*kernels.Tensor{to, from})
	runtime.KeepAlive(s)
}

func (b *cuda) Compose(before, s *kernels.Selection, base []int) *kernels.Selection {
	const op = "Compose"
	if before.Heads() != s.Heads() || len(base) != s.Heads() || s.Heads() == 0 {
		panic(fmt.Sprintf("kernels: %s: selections of %d and %d heads, %d bases", op, before.Heads(), s.Heads(), len(base)))
	}
	out := &kernels.Selection{Lens: slices.Clone(s.Lens), Spans: make([]int, s.Heads()), Device: b.Alloc(kernels.I32, s.Heads(), slices.Max(s.Lens))}
	for h := range out.Spans {
		out.Spans[h] = max(before.Spans[h], base[h]+max(0, s.Spans[h]-before.Lens[h]))
	}
	b.do(op, func() {
		first, firstWidth := b.indices(op, before)
		ids, width := b.indices(op, s)
		n := uploadLists(b, op, s.Lens, before.Lens, base)
		b.launch("pick_ids", columns(slices.Max(s.Lens), s.Heads()), elementThreads, 0, b.at(op, out.Device, kernels.I32), first, ids, n[0], n[1], n[2], out.Device.Width(), firstWidth, width)
	})
	runtime.KeepAlive([]*kernels.Selection{before, s, out})
	return out
}

// download copies to the host, after all work queued so far, and counts.
func (b *cuda) download(op string, dst unsafe.Pointer, src cu.DevicePtr, bytes int64) {
	b.mustNotRecord(op, "reads device memory")
	b.calls++
	b.try(op, cu.MemcpyDtoHAsync(dst, src, bytes, b.stream))
	b.synchronize(op)
	b.hostBytes += bytes
}

// HostBytes is how much the host has read of the device's memory.
func (b *cuda) HostBytes() (bytes int64) {
	b.do("HostBytes", func() { bytes = b.hostBytes })
	return bytes
}
