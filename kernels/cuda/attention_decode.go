//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"slices"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("attention_decode",
	"attend_step_bf16_128_4", "attend_step_bf16_256_4", "attend_step_bf16_512_4", "attend_step_bf16_128_8",
	"attend_step_bf16_256_8", "attend_step_bf16_512_8", "attend_step_f32_256_4", "attend_step_f32_512_4",
	"attend_step_f32_1024_4", "attend_step_capped_bf16_128", "attend_step_capped_bf16_256", "attend_step_capped_bf16_512",
	"attend_step_capped_f32_256", "attend_step_capped_f32_512", "attend_step_capped_f32_1024", "merge_step_f32", "merge_step_bf16", "step_scores_f32", "step_scores_bf16",
)

// As in attention_decode.cu.
const (
	stepWarps  = 4
	stepStages = 3
	stepSlots  = 4
)

// stepFits tells whether the kernels of cuda/attention_decode.cu compute t: one row over
// entries that it is among, whose keys and values are read in pieces of 16 bytes.
func (t *attention) stepFits(out cu.DevicePtr) bool {
	if t.rows != 1 || t.k != 0 || out == 0 || t.q%16 != 0 || !stepShape(t.dim, t.half) {
		return false
	}
	for _, h := range t.past {
		if h.k%16 != 0 || h.v%16 != 0 {
			return false
		}
	}
	return true
}

// StepBuckets implements Stepper.
func (b *cuda) StepBuckets(longest [][]int, pairs kernels.DType, headDim int) (buckets [][]int) {
	attends := slices.ContainsFunc(longest, func(layers []int) bool { return slices.Max(layers) > 0 })
	return StepBuckets(longest, attends && StepFits(headDim, pairs))
}

func (t *attention) stepQueries() int { return stepQueries(t.heads/t.kvHeads, t.half, t.cap > 0) }

// stepParts is the largest number of parts of a head.
func (t *attention) stepParts() int {
	_, most := stepBlocks(t.stepQueries(), t.heads/t.kvHeads, t.kvHeads, t.b.processors)
	return stepParts(kernels.EntryBucket(t.entries), most)
}

// attendStep computes out and lse, which may be 0, and, where logits [heads, width] is not
// 0, the scores.
func (t *attention) attendStep(out, lse, logits cu.DevicePtr, width int) {
	queries, chunks := t.stepQueries(), 1
	kind, row, bytes := t.kind(), 4*t.dim, 256
	if t.half {
		row, bytes = 2*t.dim, 128
	}
	for bytes < row {
		bytes *= 2
	}
	if bytes > 512 {
		chunks = 2
	}
	tiles, most := stepBlocks(queries, t.heads/t.kvHeads, t.kvHeads, t.b.processors)
	parts := t.stepParts()
	sequences, stride := max(1, t.sequences), max(t.stride, t.kvHeads)
	heads := sequences * t.heads
	if (logits != 0 || t.sinks != 0) && lse == 0 {
		lse = t.floats(heads)
	}
	whole, wholeLSE := out, lse
	var tops, sums, outs cu.DevicePtr
	if parts > 1 {
		whole, wholeLSE = 0, 0
		tops, sums, outs = t.floats(parts*heads), t.floats(parts*heads), t.floats(parts*heads*t.dim)
	}
	shared := stepWarps * (stepStages*2*stepSlots*chunks*32*16 + 4*queries*(4*stepSlots+3))
	t.launchBounded(fmt.Sprintf("attend_step%s_%d_%d", kind, bytes, queries), fmt.Sprintf("attend_step_capped%s_%d", kind, bytes), [3]int{tiles, sequences * t.kvHeads, parts}, stepWarps*32, shared,
		whole, wholeLSE, tops, sums, outs, logits, t.q, t.pastAt, t.fromPast, stride, t.heads, t.kvHeads, t.dim, most, width, t.scale)
	if parts > 1 {
		t.b.launch("merge_step"+kind, [3]int{heads, 1, 1}, stepWarps*32, 4*(stepWarps*t.dim+parts), out, lse, tops, sums, outs, t.pastAt, stride, t.heads, t.kvHeads, t.dim, most)
	}
	t.attendSinks(out, lse)
	if logits != 0 {
		t.b.launch("step_scores"+kind, [3]int{(kernels.EntryBucket(t.entries) + 255) / 256, heads, 1}, 256, 0, logits, lse, t.pastAt, t.fromPast, stride, t.heads, t.kvHeads, width)
	}
}
