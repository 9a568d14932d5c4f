//go:build gpu && linux && (amd64 || arm64)

package cuda

import "glimpse/kernels"

// AttentionVariances are the variances of scores in float32.
func (b *cuda) AttentionVariances(logScore *kernels.Tensor, entries []int, rows int) []float64 {
	const op = "AttentionVariances"
	kernels.CheckGrouped(op, logScore, entries)
	b.f32(op, logScore)
	sums := b.Alloc(kernels.F32, len(entries), logScore.Width())
	b.Scores(sums, entries, []kernels.ScoreTerm{{LogScore: logScore, Factor: float32(rows)}}, false)
	var heads []*kernels.Tensor
	var lengths [][]int
	for h, n := range entries {
		heads, lengths = append(heads, sums.Rows(h, h+1)), append(lengths, []int{n})
	}
	return b.variances(heads, lengths)
}
