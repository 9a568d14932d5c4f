//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("attention_observe",
	"observe_attend_64", "observe_attend_128", "observe_attend_256", "observe_scores_64", "observe_scores_128",
	"observe_scores_256",
)

// As in attention_observe.cu.
const (
	sweepEntries = 32  // entries of its tiles
	scoreTile    = 16  // queries at a time of the second sweep
	scoreEntries = 128 // of its blocks
	scoreThreads = 256
)

// exactWidth is the width of the kernels for t's heads.
func (t *attention) exactWidth() int {
	width := 64
	for width < t.dim {
		width *= 2
	}
	return width
}

// exactShared is the shared memory of the blocks of both sweeps.
func (t *attention) exactShared() (attend, scores int) {
	row := 2 * (t.exactWidth() + 8)
	return row * (queryParts*sweepQueries + 4*sweepEntries), row * (scoreEntries + 2*queryParts*scoreTile)
}

// exactFits tells whether rows that are observed run on tensor cores without loss:
// over caches in bf16, where nothing bounds logits, and where a block has the shared memory.
func (t *attention) exactFits() bool {
	attend, scores := t.exactShared()
	return t.half && t.rows > 1 && t.cap == 0 && t.past[0].index == 0 && exactShape(t.rows*t.heads/t.kvHeads, t.dim) && max(attend, scores) <= t.b.shared
}

// parts are the queries as sums of bf16 numbers.
func (t *attention) parts() cu.DevicePtr {
	n := t.rows * t.heads * t.dim
	parts := t.b.temporary(t.op, 2*queryParts*int64(n))
	t.b.each("split_bf16", n, parts, t.q, size(n))
	return parts
}

func (t *attention) own() int {
	if t.k != 0 {
		return 1
	}
	return 0
}

// attendExact computes out and lse; either may be 0. Own pairs, which are few
// and in float32, are a split of their own.
func (t *attention) attendExact(out, lse, parts cu.DevicePtr) {
	grid, chunk := t.launchGrid(sweepQueries)
	total, splits := t.rows*t.heads, grid[2]
	all := splits + t.own()
	tops, sums := t.floats(all*total), t.floats(all*total)
	var outs cu.DevicePtr
	if out != 0 {
		outs = t.floats(all * total * t.dim)
	}
	shared, _ := t.exactShared()
	t.b.launch(fmt.Sprint("observe_attend_", t.exactWidth()), grid, attendThreads, shared, tops, sums, outs, parts, t.pastAt, t.fromPast, t.own(),
		t.rows, t.heads, t.kvHeads, t.dim, chunk, t.scale)
	if t.k != 0 {
		after := func(p cu.DevicePtr, n int) cu.DevicePtr {
			if p == 0 {
				return 0
			}
			return p + cu.DevicePtr(4*splits*total*n)
		}
		none := upload(t.b, t.op, make([]pastHead, t.kvHeads))
		tiles := (t.rows*t.heads/t.kvHeads + attendQueries - 1) / attendQueries
		t.b.launch("attend_rows"+t.suffix, [3]int{tiles, t.kvHeads, 1}, attendThreads, t.tileBytes(1, 1, 1), after(tops, 1), after(sums, 1), after(outs, t.dim),
			t.q, none, t.k, t.v, cu.DevicePtr(0), t.ownFrom, t.rows, t.heads, t.kvHeads, t.dim, attendColumns, t.scale)
	}
	t.b.launch("attend_merge", [3]int{total, 1, 1}, 32, 0, out, lse, tops, sums, outs, t.rows, t.heads, t.dim, all)
}

// observeExact computes the scores from lse.
func (t *attention) observeExact(logScore *kernels.Tensor, lse, parts cu.DevicePtr) {
	_, shared := t.exactShared()
	t.b.launch(fmt.Sprint("observe_scores_", t.exactWidth()), [3]int{(t.entries + scoreEntries - 1) / scoreEntries, t.kvHeads, 1}, scoreThreads, shared,
		t.b.f32(t.op, logScore), lse, parts, t.pastAt, t.fromPast, t.own(), t.rows, t.heads, t.kvHeads, t.dim, logScore.Width(), t.scale)
}
