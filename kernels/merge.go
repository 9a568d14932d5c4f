package kernels

// Merger merges entries that go into entries that stay, in its own memory.
type Merger interface {
	// AttentionVariances are, per query head h, the variance over the first entries[h] columns
	// of the probabilities whose logarithms are given [heads, width], times rows.
	AttentionVariances(logScore *Tensor, entries []int, rows int) []float64
	// MergeEvicted merges, in every head, the pairs that are not in s into the pair of the
	// most similar key that is, of equal ones the first, where that similarity u_i (the
	// cosine) is at least the mean of all: x_j = (e·x_j + Σ exp(u_i)·x_i) / (e + Σ exp(u_i)),
	// in the order of i. It returns the means, F64 [kvHeads], NaN where there are none.
	MergeEvicted(past []KV, s *Selection) *Tensor
	// MergeStep merges the one pair of a head that is not in s likewise, into any of the
	// others, unless its similarity is below the threshold, F64 [kvHeads], which becomes
	// beta·similarity + (1−beta)·threshold first; NaN becomes the similarity. Heads that
	// keep all are left alone.
	MergeStep(past []KV, s *Selection, thresholds *Tensor, beta float64)
	// MergeRecent adds values between the first sink and the last recent ones to each of
	// these, divided by their number: in order, the i-th of head h where draws[h][i] is
	// below the share of its sum [kvHeads, width] in the mean sum of the recent ones.
	MergeRecent(past []KV, sums *Tensor, sink, recent int, draws [][]float64)
}
