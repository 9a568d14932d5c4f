//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("attention_rounded",
	"join_pairs", "rounded_scores_64", "rounded_scores_128",
)

// As in attention_rounded.cu.
const (
	observeBF16Queries = 64 // at a time
	observeBF16Warps   = 8
)

// observeBF16Spans are the entries of a warp by the width of the kernel.
var observeBF16Spans = map[int]int{64: 32, 128: 24}

// inBF16 tells whether t are many observed rows over caches in bf16.
func (t *attention) inBF16() bool {
	return t.half && t.rows > exactRows && t.past[0].index == 0 && observesInBF16(t.a)
}

// joined is t with its own pairs, in bf16, behind the entries of copies of the past.
func (t *attention) joined(values bool) *attention {
	j := *t
	j.k, j.v, j.ownFrom, j.fromPast = 0, 0, 0, 0
	j.past = make([]pastHead, t.kvHeads)
	sides, elements := 1, 0
	if values {
		sides = 2
	}
	for _, h := range t.past {
		elements += (int(h.entries) + t.rows) * t.dim
	}
	at := t.b.temporary(t.op, 2*int64(sides)*int64(elements))
	j.entries = t.entries + t.rows
	for g, h := range t.past {
		n := int(h.entries) + t.rows
		j.past[g] = pastHead{k: at, entries: int32(n)}
		at += cu.DevicePtr(2 * n * t.dim)
		if values {
			j.past[g].v = at
			at += cu.DevicePtr(2 * n * t.dim)
		}
	}
	j.pastAt = upload(t.b, t.op, j.past)
	if t.a.Window > 0 {
		from := make([]int32, 0, t.kvHeads*t.rows)
		for g := range t.kvHeads {
			for r := range t.rows {
				first, to := t.a.Visible(g, r)
				if first == to { // the past lies before the window
					own, _ := t.a.VisibleOwn(r)
					first += own
				}
				from = append(from, int32(first))
			}
		}
		j.fromPast = upload(t.b, t.op, from)
	}
	threads := j.entries * t.dim / 8
	t.b.launch("join_pairs", [3]int{(threads + elementThreads - 1) / elementThreads, t.kvHeads, sides}, elementThreads, 0,
		j.pastAt, t.pastAt, t.k, t.v, t.kvHeads, t.dim)
	return &j
}

// attendPrompt is attend as for the rows of a prompt, which are the last entries.
func (t *attention) attendPrompt(out, lse cu.DevicePtr) {
	if t.hopperFits(out) {
		t.attendHopper(out, lse)
	} else {
		t.attendMMA(out, lse)
	}
}

// observeBF16 computes the scores from lse.
func (t *attention) observeBF16(logScore *kernels.Tensor, lse cu.DevicePtr) {
	width := max(64, t.exactWidth())
	n := t.rows * t.heads * t.dim
	q := t.b.temporary(t.op, 2*int64(n))
	t.b.maps("to_bf16", n, q, t.q, size(n))
	block := observeBF16Warps * observeBF16Spans[width]
	t.b.launch(fmt.Sprint("rounded_scores_", width), [3]int{(t.entries + block - 1) / block, t.kvHeads, 1}, 32*observeBF16Warps, 2*2*observeBF16Queries*(width+8),
		t.b.f32(t.op, logScore), lse, q, t.pastAt, t.fromPast, t.own(), t.rows, t.heads, t.kvHeads, t.dim, logScore.Width(), t.scale)
}

var _ [unsafe.Sizeof(pastHead{})]byte = [PastBytes]byte{} // as the forecast counts it
