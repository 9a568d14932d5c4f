package eviction

import (
	"math"

	"glimpse/internal/simd"
	"glimpse/kernels"
)

// estimator scores the pages of a head for a step.
type estimator interface {
	// reach tells what is estimated, where attention wants so many entries, fewer than
	// are seen, and estimation may read room numbers of the index, at least 2 · dim.
	reach(s sight, room, want int) reach
	// estimate returns logits by query of the group and page: of pages of r.size from
	// that of position r.start to that before position r.end. read are the numbers that
	// it has read of the index.
	estimate(x *pageIndex, q [][]float32, r reach) (logits [][]float32, read int)
}

// sight is what a step sees of a head's positions, and how they are indexed.
type sight struct {
	from, n int // positions that are seen
	most    int // positions there will be once the response is as long as it may get; n where that is less
	size    int // entries per page
	dim     int
}

// reach is what an estimate reads of a head's pages.
type reach struct {
	size       int // entries per page, doubled as often as it takes
	start, end int // positions that are estimated, the first of them in the first page
	recent     int // last entries that are chosen whatever their scores
	components int // dimensions
	read       int // numbers; 0 where queries decide how many
}

// decided tells that nothing is left to choose by scores.
func (r reach) decided(want int) bool { return r.recent == want }

// pagesOf is the number of pages of size from that of position start to the n-th entry's.
func pagesOf(n, size, start int) int { return (n+size-1)/size - start/size }

// rank turns every query's logits over pages into logarithms of probabilities, and returns
// what the pages are ranked by: the logarithms of their means over the queries. That orders
// pages as the means themselves do. But those of most pages of a sharp head are less than a
// float32 holds, or than the exponential of package simd cares for, and would all be equal.
func rank(logits [][]float32) []float32 {
	spare := make([]float32, len(logits[0]))
	for _, l := range logits {
		top := simd.Max(l)
		sum := float32(math.Log(float64(simd.ExpSum(spare, l, top))))
		for i, v := range l {
			l[i] = v - top - sum
		}
	}
	return logMean(spare, logits)
}

// logMean writes to dst, which it returns, the logarithm of the mean of the numbers whose
// logarithms rows hold: no less than −MaxFloat32.
func logMean(dst []float32, rows [][]float32) []float32 {
	for i := range dst {
		dst[i] = -math.MaxFloat32
	}
	for _, row := range rows {
		simd.MaxInto(dst, row)
	}
	if len(rows) == 1 {
		return dst
	}
	sums, spare := make([]float32, len(dst)), make([]float32, len(dst))
	for _, row := range rows {
		for i, v := range row {
			spare[i] = v - dst[i]
		}
		simd.ExpSum(spare, spare, 0) // nothing below e⁻⁴⁰ counts beside the largest, which is 1
		simd.Axpy(1, spare, sums)
	}
	for i, sum := range sums {
		dst[i] = max(-math.MaxFloat32, dst[i]+float32(math.Log(float64(sum)/float64(len(rows)))))
	}
	return dst
}

// largestDims are the k dimensions with the largest sum over queries of the absolute
// components, ascending.
func largestDims(q [][]float32, k int) []int32 {
	size := make([]float64, len(q[0]))
	for _, x := range q {
		for i, v := range x {
			size[i] += math.Abs(float64(v))
		}
	}
	return kernels.TopK(size, k)
}

// partialLogits are the products of the queries with bound in some dimensions, divided
// by the temperature of a partial product, √(d·‖q̂‖₁/‖q‖₁), where q̂ are the query's
// components in these dimensions (SparQ eq. 5).
func partialLogits(q [][]float32, dims []int32, bound func(i int32) []float32, pages int) [][]float32 {
	out := make([][]float32, len(q))
	for g, x := range q {
		some, all := 0.0, 0.0
		for _, v := range x {
			all += math.Abs(float64(v))
		}
		for _, i := range dims {
			some += math.Abs(float64(x[i]))
		}
		out[g] = make([]float32, pages)
		if some == 0 {
			continue
		}
		scale := 1 / math.Sqrt(float64(len(x))*some/all)
		for _, i := range dims {
			simd.Axpy(x[i]*float32(scale), bound(i), out[g])
		}
	}
	return out
}
