package eviction

import "glimpse/kernels"

// Estimator tells what a sparse policy estimates before each step, so that the best pages can
// be chosen.
type Estimator interface {
	// How is how the backend estimates the attention to a page.
	How() kernels.Estimate
	// Reach tells what is estimated, where attention wants so many entries, fewer than
	// are seen, and estimation may read room numbers of the bounds, at least 2 · dim.
	Reach(s Sight, room, want int) Reach
}

// Sight is what a step sees of a head's positions, and how they are indexed.
type Sight struct {
	From, N int // positions that are seen
	Most    int // positions there will be once the response is as long as it may get; N where that is less
	Size    int // entries per page
	Dim     int
}

// Reach is what an estimate reads of a head's pages.
type Reach struct {
	Size       int // entries per page, the head's doubled as often as it takes
	Start, End int // positions that are estimated, the first of them in the first page
	Recent     int // last entries that are chosen whatever their scores
	Components int // dimensions
	Read       int // numbers; 0 where queries decide how many
}

// decided tells that nothing is left to choose by scores.
func (r Reach) decided(want int) bool { return r.Recent == want }

// pagesOf is the number of pages of size from that of position start to the n-th entry's.
func pagesOf(n, size, start int) int { return (n+size-1)/size - start/size }
