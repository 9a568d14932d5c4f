package kernels

// RunningStatistics keeps what it needs to know mean and standard deviation of the probabilities
// that every entry has got, in its own memory: moments are F64 [3, kvHeads, width], the
// rows that have seen an entry, the sum of their attention to it (the mean over the heads of
// a group), and the sum of its square. Means and spreads are scores [kvHeads, width] as
// of [Selector].
type RunningStatistics interface {
	// ScoreMoments writes means and standard deviations over the rows that see an entry,
	// from mean and square [heads, n], logarithms of the mean probability and of the mean
	// squared one over all rows.
	ScoreMoments(means, spreads *Tensor, entries []int, mean, square *Tensor, rows PassRows)
	// StartMoments writes the moments of the entries that s has selected, entry j of head
	// h having been seen by seen[h][j] rows.
	StartMoments(moments, means, spreads *Tensor, s *Selection, seen [][]int32)
	// AddMoments takes in the one row behind logScore [heads, n] and writes what means and
	// spreads then are; of entries the first known have moments. A row that pays an entry
	// nothing, because it does not see it, does not count.
	AddMoments(means, spreads, moments *Tensor, entries, known []int, logScore *Tensor)
	// CarryMoments makes means and spreads of a pass those over its rows and all before
	// it, whose moments the first known entries have.
	CarryMoments(means, spreads *Tensor, entries []int, moments *Tensor, known []int, rows PassRows)
	// SelectSpread keeps, of every head with more entries than budget, the first sink, the
	// last recent and the largest spreads up to protected entries, and then
	// the largest means up to budget. sink + recent ≤ protected ≤ budget.
	SelectSpread(means, spreads *Tensor, entries []int, budget, protected, sink, recent int) *Selection
}

// PassRows are the rows of a pass: how many, the position of the first, and the layer's
// window, 0 for none. Positions [kvHeads] are the positions of the entries where there is a window;
// without one the last entries of a head are the rows' own.
type PassRows struct {
	Count, Next, Window int
	Positions           [][]int32
}
