//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"slices"
	"unsafe"

	"gorgonia.org/cu"

	"glimpse/kernels"
)

var _ = kernelsOf("sample",
	"draw_top", "draw_digit", "draw_pick",
)

// As in sample.cu.
const (
	drawThreads       = 256
	drawPartBytes     = 208 // struct Part
	drawProgressBytes = 64  // struct Progress
)

// drawBlocks is the number of segments into which logits of n tokens are cut: eight tokens
// for each thread, or more.
func drawBlocks(n int) int { return max(1, min(64, (n+8*drawThreads-1)/(8*drawThreads))) }

// draw is struct Draw of cuda/sample.cu.
type draw struct {
	temperature, topP, u float64
	topK, _              int32
}

// cuts tells, as the kernels do, whether a stage leaves tokens of n out.
func (d draw) cuts(stage drawStage, n int) bool {
	switch {
	case !(d.temperature > 0):
		return false
	case stage == drawTopK:
		return d.topK > 0 && int(d.topK) < n
	}
	return stage == drawOne || d.topP > 0 && d.topP < 1
}

// drawStage is what the passes of sample.cu look for.
type drawStage int

const (
	drawTop drawStage = iota - 1
	drawTopK
	drawTopP
	drawOne
)

// DrawsInPlace implements Sampler.
func (b *cuda) DrawsInPlace() bool { return true }

func (b *cuda) Draw(logits *kernels.Tensor, draws []kernels.Draw) []int32 {
	const op = "Draw"
	kernels.CheckDraws(logits, draws)
	if slices.ContainsFunc(draws, func(d kernels.Draw) bool { return d.MinP > 0 }) {
		return b.Decomposed.Draw(logits, draws)
	}
	ids := make([]int32, len(draws))
	if len(draws) == 0 {
		return ids
	}
	rows, vocab := make([]draw, len(draws)), logits.Width()
	for i, d := range draws {
		rows[i] = draw{temperature: d.Temperature, topP: d.TopP, u: d.U, topK: int32(min(d.TopK, vocab))}
	}
	b.do(op, func() {
		x, settings, blocks := b.f32(op, logits), upload(b, op, rows), drawBlocks(vocab)
		grid := [3]int{blocks, len(rows), 1}
		// Every pass reads what the one before left, and leaves the same.
		halves := func(bytes int64) func(pass int) cu.DevicePtr {
			at := b.temporary(op, 2*bytes)
			return func(pass int) cu.DevicePtr { return at + cu.DevicePtr(int64(pass%2)*bytes) }
		}
		partsOf, progressOf := halves(int64(blocks*len(rows))*drawPartBytes), halves(int64(len(rows))*drawProgressBytes)
		b.launch("draw_top", grid, drawThreads, 0, partsOf(0), x, vocab)
		pass, last, lastShift := 0, drawTop, 0
		for stage := drawTopK; stage <= drawOne; stage++ {
			if !slices.ContainsFunc(rows, func(d draw) bool { return d.cuts(stage, vocab) }) {
				continue
			}
			for shift := 28; shift >= 0; shift -= 4 {
				pass++
				b.launch("draw_digit", grid, drawThreads, 0, partsOf(pass), progressOf(pass), partsOf(pass-1), progressOf(pass-1), x, settings, vocab,
					int(stage), shift, int(last), lastShift)
				last, lastShift = stage, shift
			}
		}
		out := b.temporary(op, 4*int64(len(ids)))
		b.launch("draw_pick", [3]int{len(rows), 1, 1}, drawThreads, 0, out, partsOf(pass), progressOf(pass), x, settings, vocab, blocks, int(last), lastShift)
		b.download(op, unsafe.Pointer(&ids[0]), out, 4*int64(len(ids)))
	})
	runtime.KeepAlive(logits)
	return ids
}
