//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"

	"gorgonia.org/cu"
)

var _ = kernelsOf("attention_grad_mma",
	"grad_prepare", "grad_past_mma_64", "grad_past_mma_128",
)

var _ = kernelsOf("attention_grad",
	"grad_dots", "grad_query", "grad_own", "grad_past_f32_4", "grad_past_f32_8", "grad_past_bf16_8",
	"grad_past_capped_f32_8", "grad_past_capped_bf16_8", "grad_query_capped", "grad_own_capped",
)

// gradPast queues the part of AttentionGrad that passes over the past. What it returns is
// dOut · out of all rows, 0 without dOut, and what every split leaves behind.
func (t *attention) gradPast(lse, dOut, out, logScore, dLogScore cu.DevicePtr, width int) (dots cu.DevicePtr, splits int, shares, main, keys cu.DevicePtr) {
	total := t.rows * t.heads
	rows := [3]int{total, 1, 1}
	if dOut != 0 {
		dots = t.floats(total)
	}
	parts := func(n int) {
		splits = n
		shares, main, keys = t.floats(n*total), t.floats(n*total*t.dim), t.floats(n*total*t.dim)
	}
	if k, ok := gradOnTensorCores(t.a, t.b.shared); ok {
		tiles, n, chunk := k.splitGrad(total/t.kvHeads, t.kvHeads, t.entries, t.b.processors)
		bytes := 2 * queryParts * int64(total) * int64(t.dim)
		q, d := t.b.temporary(t.op, bytes), cu.DevicePtr(0)
		if dOut != 0 {
			d = t.b.temporary(t.op, bytes)
		}
		t.b.launch("grad_prepare", rows, 32, 0, q, d, dots, t.q, dOut, out, t.rows, t.heads, t.dim)
		parts(n)
		t.b.launch(fmt.Sprint("grad_past_mma_", k.width), [3]int{tiles, t.kvHeads, n}, 32*k.queryWarps*k.sharers, k.shared(), shares, main, keys,
			q, t.pastAt, t.fromPast, lse, d, dots, logScore, dLogScore, width, t.rows, t.heads, t.kvHeads, t.dim, chunk, k.queryWarps, t.scale)
		return dots, splits, shares, main, keys
	}
	if dOut != 0 {
		t.b.launch("grad_dots", rows, 32, 0, dots, dOut, out, t.rows, t.heads, t.dim)
	}
	grid, chunk := t.launchGrid(attendQueries)
	parts(grid[2])
	name := "grad_past_bf16_8"
	if !t.half && t.dim <= 128 {
		name = "grad_past_f32_4"
	} else if !t.half {
		name = "grad_past_f32_8"
	}
	t.launchBounded(name, "grad_past_capped"+t.kind()+"_8", grid, attendThreads, t.tileBytes(2, 2, 2), shares, main, keys, t.q, t.pastAt, t.fromPast, lse, dOut, dots,
		logScore, dLogScore, width, t.rows, t.heads, t.kvHeads, t.dim, chunk, t.scale)
	return dots, splits, shares, main, keys
}
