//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("attention",
	"attend_merge", "attend_sinks", "observe_rows_f32", "observe_rows_bf16", "attend_rows_f32_4", "attend_rows_f32_8", "attend_rows_bf16_8",
	"attend_rows_capped_f32_8", "attend_rows_capped_bf16_8", "observe_rows_capped_f32", "observe_rows_capped_bf16",
)

var _ = kernelsOf("attention_mma",
	"attend_mma_64", "attend_mma_128", "attend_mma_256", "attend_mma_capped_64", "attend_mma_capped_128", "attend_mma_capped_256",
)

// As in attention.h.
const (
	attendWarps   = 4
	attendThreads = 32 * attendWarps
	maxHeadDim    = 256
)

// pastHead is what the kernels read of one KV head: struct Past.
type pastHead struct {
	k, v    cu.DevicePtr
	index   cu.DevicePtr
	entries int32
	_       int32
}

// attention is an Attend as the kernels take it.
type attention struct {
	b                         *cuda
	op                        string
	a                         *kernels.Attend
	past                      []pastHead
	pastAt, fromPast, ownFrom cu.DevicePtr // pastAt: past on the device
	q, k, v                   cu.DevicePtr
	sinks                     cu.DevicePtr // [heads]; 0: none
	rows, heads, kvHeads, dim int
	sequences, stride         int     // rows of so many sequences, whose heads of past lie so far apart; 0: one
	entries                   int     // of the longest head
	suffix                    string  // of the kernels
	half                      bool    // keys and values in bf16
	scale, cap                float32 // cap: of the logits; 0: kernels that bound none
}

// launchBounded launches a kernel, or where the logits are capped another one, that takes the cap after all else.
func (t *attention) launchBounded(plain, capped string, grid [3]int, threads, shared int, args ...any) {
	if t.cap == 0 {
		t.b.launch(plain, grid, threads, shared, args...)
		return
	}
	t.b.launch(capped, grid, threads, shared, append(args, t.cap)...)
}

// TakesBias implements kernels.Attention: the kernels add none.
func (b *cuda) TakesBias() error {
	return kernels.NoBiases(b.Device())
}

// describe is a on the device, but for what is still to be uploaded.
func (b *cuda) describe(op string, a *kernels.Attend, values bool) *attention {
	t := &attention{b: b, op: op, a: a, rows: a.Rows(), heads: a.Heads(), kvHeads: a.KVHeads(), dim: a.HeadDim(), scale: float32(a.Scale), cap: float32(a.SoftCap)}
	dtype := a.Past[0].K.DType
	t.setPairs(dtype)
	t.past = make([]pastHead, t.kvHeads)
	for g, kv := range a.Past {
		if kv.Biased() > 0 {
			panic(fmt.Sprintf("kernels: %s: %v", op, b.TakesBias()))
		}
		t.past[g] = pastHead{k: b.at(op, kv.K, dtype), entries: int32(kv.Entries())}
		if values {
			t.past[g].v = b.at(op, kv.V, dtype)
		}
		t.entries = max(t.entries, kv.Entries())
	}
	t.q, t.k, t.sinks = b.f32(op, a.Q), b.f32(op, a.K), b.f32(op, a.Sinks)
	if values {
		t.v = b.f32(op, a.V)
	}
	return t
}

// prepare uploads what describes a.
func (b *cuda) prepare(op string, a *kernels.Attend, values bool) *attention {
	t := b.describe(op, a, values)
	t.pastAt = upload(b, op, t.past)
	if a.Window > 0 {
		from := make([]int32, 0, t.kvHeads*t.rows)
		for g := range t.kvHeads {
			for r := range t.rows {
				first, _ := a.Visible(g, r)
				from = append(from, int32(first))
			}
		}
		t.fromPast = upload(b, op, from)
		if a.K != nil {
			own := make([]int32, t.rows)
			for r := range own {
				first, _ := a.VisibleOwn(r)
				own[r] = int32(first)
			}
			t.ownFrom = upload(b, op, own)
		}
	}
	return t
}

// setPairs chooses the kernels for keys and values of a type.
func (t *attention) setPairs(dtype kernels.DType) {
	if t.dim > maxHeadDim {
		panic(fmt.Sprintf("kernels: %s: heads of %d elements, want at most %d", t.op, t.dim, maxHeadDim))
	}
	name := "f32"
	if dtype == kernels.BF16 {
		name = "bf16"
	} else if dtype != kernels.F32 {
		panic(fmt.Sprintf("kernels: %s: keys of %s", t.op, dtype))
	}
	n := 8 // columns of a lane; bf16 comes here rarely
	if t.dim <= 128 && dtype == kernels.F32 {
		n = 4
	}
	t.half = dtype == kernels.BF16
	t.suffix = fmt.Sprintf("_%s_%d", name, n)
}

// kind ends the names of kernels for keys and values of its type.
func (t *attention) kind() string {
	if t.half {
		return "_bf16"
	}
	return "_f32"
}

// launchGrid cuts the entries so that every processor has some blocks of so many queries. It
// depends on shapes and the device alone.
func (t *attention) launchGrid(queries int) (grid [3]int, chunk int) {
	tiles, splits, chunk := splitEntries(t.rows*t.heads/t.kvHeads, queries, t.kvHeads, t.cut(), t.b.processors)
	return [3]int{tiles, t.kvHeads, splits}, chunk
}

// cut is the number of entries of a block.
func (t *attention) cut() int {
	if t.rows == 1 && t.k == 0 { // a decoding step, which may be recorded for more entries
		return kernels.EntryBucket(t.entries)
	}
	return t.entries
}

func (t *attention) floats(n int) cu.DevicePtr { return t.b.temporary(t.op, 4*int64(n)) }

// tileBytes is shared memory for tiles of columns, of queries, and of queries by
// columns.
func (t *attention) tileBytes(columns, queries, weights int) int {
	return 4 * (columns*attendColumns*(t.dim+1) + queries*attendQueries*t.dim + weights*attendQueries*attendColumns)
}

// attend computes out and lse; either may be 0.
func (t *attention) attend(out, lse cu.DevicePtr) {
	if t.stepFits(out) {
		t.attendStep(out, lse, 0, 0)
		return
	}
	lse = t.sinksLSE(lse)
	t.attendEntries(out, lse)
	t.attendSinks(out, lse)
}

// sinksLSE is lse, or memory for it where only sinks need it.
func (t *attention) sinksLSE(lse cu.DevicePtr) cu.DevicePtr {
	if t.sinks != 0 && lse == 0 {
		return t.floats(max(1, t.sequences) * t.rows * t.heads)
	}
	return lse
}

// attendSinks lets the sinks, if there are any, count in out, which may be 0, and lse.
func (t *attention) attendSinks(out, lse cu.DevicePtr) {
	if t.sinks == 0 {
		return
	}
	heads := max(1, t.sequences) * t.heads
	t.b.launch("attend_sinks", [3]int{(t.rows*heads + attendWarps - 1) / attendWarps, 1, 1}, attendThreads, 0, out, lse, t.sinks, t.rows, heads, t.heads, t.dim)
}

// attendEntries is attend without sinks, where it is no decoding step.
func (t *attention) attendEntries(out, lse cu.DevicePtr) {
	if t.half && t.k == 0 && t.rows > 1 && t.rows*t.heads/t.kvHeads >= mmaRows && t.dim%8 == 0 {
		t.attendPrompt(out, lse)
		return
	}
	if t.inBF16() {
		t.joined(out != 0).attendPrompt(out, lse)
		return
	}
	if t.exactFits() {
		t.attendExact(out, lse, t.parts())
		return
	}
	grid, chunk := t.launchGrid(attendQueries)
	total := t.rows * t.heads
	splits := grid[2]
	tops, sums := t.floats(splits*total), t.floats(splits*total)
	var outs cu.DevicePtr
	if out != 0 {
		outs = t.floats(splits * total * t.dim)
	}
	t.launchBounded("attend_rows"+t.suffix, "attend_rows_capped"+t.kind()+"_8", grid, attendThreads, t.tileBytes(1, 1, 1), tops, sums, outs, t.q, t.pastAt, t.k, t.v, t.fromPast, t.ownFrom,
		t.rows, t.heads, t.kvHeads, t.dim, chunk, t.scale)
	t.b.launch("attend_merge", [3]int{total, 1, 1}, 32, 0, out, lse, tops, sums, outs, t.rows, t.heads, t.dim, splits)
}

// attendMMA is attend on the tensor cores that every device has.
func (t *attention) attendMMA(out, lse cu.DevicePtr) {
	queries, dim, keys := t.rows*t.heads/t.kvHeads, 64, 64
	for dim < t.dim {
		dim *= 2
	}
	if dim > 128 {
		keys = 32
	}
	shared := 2 * (dim + 8) * (mmaRows + 4*keys)
	t.launchBounded(fmt.Sprint("attend_mma_", dim), fmt.Sprint("attend_mma_capped_", dim), [3]int{(queries + mmaRows - 1) / mmaRows, t.kvHeads, 1}, attendThreads, shared,
		out, lse, t.q, t.pastAt, t.fromPast, t.rows, t.heads, t.kvHeads, t.dim, t.scale)
}

// observe computes the scores from lse.
func (t *attention) observe(logScore *kernels.Tensor, lse cu.DevicePtr) {
	columns := (t.cut() + attendColumns - 1) / attendColumns
	t.launchBounded("observe_rows"+t.kind(), "observe_rows_capped"+t.kind(), [3]int{columns, t.kvHeads, 1}, attendThreads, t.tileBytes(1, 0, 0), t.b.f32(t.op, logScore), lse, t.q, t.pastAt, t.fromPast, t.own(),
		t.rows, t.heads, t.kvHeads, t.dim, logScore.Width(), t.scale)
}

// keep keeps the tensors of a alive until the work on them is queued.
func keepAttend(a *kernels.Attend) {
	runtime.KeepAlive([]*kernels.Tensor{a.Q, a.K, a.V, a.Sinks})
	runtime.KeepAlive(slices.Clone(a.Past))
}

func (b *cuda) Attention(out, lse *kernels.Tensor, a *kernels.Attend) {
	const op = "Attention"
	kernels.CheckAttention("Attention", out, lse, a)
	b.do(op, func() { b.prepare(op, a, out != nil).attend(b.f32(op, out), b.f32(op, lse)) })
	keepAttend(a)
	runtime.KeepAlive([]*kernels.Tensor{out, lse})
}

func (b *cuda) ObservedScores(logScore, lse *kernels.Tensor, a *kernels.Attend) {
	const op = "ObservedScores"
	kernels.CheckObservedScores("ObservedScores", logScore, lse, a)
	b.do(op, func() {
		t := b.prepare(op, a, false)
		if t.inBF16() {
			t.observeBF16(logScore, b.f32(op, lse))
		} else if t.exactFits() {
			t.observeExact(logScore, b.f32(op, lse), t.parts())
		} else {
			t.observe(logScore, b.f32(op, lse))
		}
	})
	keepAttend(a)
	runtime.KeepAlive([]*kernels.Tensor{logScore, lse})
}

func (b *cuda) ObserveAttention(out, lse, logScore *kernels.Tensor, a *kernels.Attend) {
	const op = "ObserveAttention"
	kernels.CheckAttention("ObserveAttention", out, lse, a)
	kernels.CheckObservedScores("ObserveAttention", logScore, lse, a)
	b.do(op, func() {
		t := b.prepare(op, a, out != nil)
		if t.stepFits(b.f32(op, out)) {
			t.attendStep(b.f32(op, out), b.f32(op, lse), b.f32(op, logScore), logScore.Width())
			return
		}
		if t.inBF16() {
			t.attend(b.f32(op, out), b.f32(op, lse))
			t.observeBF16(logScore, b.f32(op, lse))
			return
		}
		if t.exactFits() {
			parts := t.parts()
			t.attendExact(b.f32(op, out), b.f32(op, lse), parts)
			t.attendSinks(b.f32(op, out), b.f32(op, lse))
			t.observeExact(logScore, b.f32(op, lse), parts)
			return
		}
		t.attend(b.f32(op, out), b.f32(op, lse))
		t.observe(logScore, b.f32(op, lse))
	})
	keepAttend(a)
	runtime.KeepAlive([]*kernels.Tensor{out, lse, logScore})
}

func (b *cuda) AttentionGrad(dq, dk, dv *kernels.Tensor, a *kernels.Attend, out, lse, logScore, dOut, dLogScore *kernels.Tensor) {
	const op = "AttentionGrad"
	kernels.CheckAttentionGrad(dq, dk, dv, a, out, lse, logScore, dOut, dLogScore)
	b.do(op, func() {
		t := b.prepare(op, a, dOut != nil)
		total := t.rows * t.heads
		var scores, width = cu.DevicePtr(0), 0
		if dLogScore != nil {
			scores, width = b.f32(op, logScore), logScore.Width()
		}
		LSE, DOut := b.f32(op, lse), b.f32(op, dOut)
		dots, splits, shares, main, keys := t.gradPast(LSE, DOut, b.f32(op, out), scores, b.f32(op, dLogScore), width)
		share := t.floats(total)
		t.launchBounded("grad_query", "grad_query_capped", [3]int{total, 1, 1}, attendThreads, 0, b.f32(op, dq), share, shares, main, keys, t.q, t.k, t.v, t.ownFrom, LSE, DOut, dots,
			splits, t.rows, t.heads, t.kvHeads, t.dim, t.scale)
		t.launchBounded("grad_own", "grad_own_capped", [3]int{t.rows * t.kvHeads, 1, 1}, attendThreads, 0, b.f32(op, dk), b.f32(op, dv), t.q, t.k, t.v, t.ownFrom, LSE, DOut, dots, share,
			t.rows, t.heads, t.kvHeads, t.dim, t.scale)
	})
	keepAttend(a)
	runtime.KeepAlive([]*kernels.Tensor{dq, dk, dv, out, lse, logScore, dOut, dLogScore})
}
