//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"runtime"
	"slices"

	"glimpse/kernels"
)

func (b *cuda) MeanScores(scores *kernels.Tensor, entries []int, heads int, logarithms bool) {
	const op = "MeanScores"
	kernels.CheckEntries(op, scores, entries)
	if heads < 1 || len(entries)%heads != 0 {
		panic(fmt.Sprintf("kernels: %s: means of %d heads of %d", op, heads, len(entries)))
	}
	for h, n := range entries {
		if n != entries[h/heads*heads] {
			panic(fmt.Sprintf("kernels: %s: head %d has %d entries, another of the same mean %d", op, h, n, entries[h/heads*heads]))
		}
	}
	most := slices.Max(entries)
	b.do(op, func() {
		b.launch("mean_scores", columns(most, len(entries)/heads), elementThreads, 0, b.f32(op, scores), most, scores.Width(), heads, toInt(logarithms))
	})
	runtime.KeepAlive(scores)
}

func toInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
