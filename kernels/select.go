package kernels

import (
	"fmt"
	"math"
	"slices"
)

// Float is a type that backends compute in.
type Float interface{ float32 | float64 }

// MaxPoolWidth is the widest kernel of a max-pool. What belongs together in a prompt is
// shorter by far, and CUDA's kernels count in 32 bits.
const MaxPoolWidth = 1<<12 - 1

// CheckPoolWidth refuses kernels that MaxPool does not take.
func CheckPoolWidth(kernel int) error {
	if kernel < 1 || kernel > MaxPoolWidth || kernel%2 == 0 {
		return fmt.Errorf("pooling kernel: got %d, want an odd width from 1 to %d, 1 for none", kernel, MaxPoolWidth)
	}
	return nil
}

// MaxPool writes to dst the maximum of src over a window of the given odd
// kernel size centred on each element, clipped at the ends (stride 1, same
// length). kernel 1 copies.
func MaxPool(dst, src []float32, kernel int) {
	half := kernel / 2
	for i := range src {
		dst[i] = slices.Max(src[max(0, i-half):min(len(src), i+half+1)])
	}
}

// TopK returns the indices of the k largest scores, ascending. Of equal scores
// the lower index wins; max-pooling makes such plateaus. NaN ranks below every
// number. k beyond len(scores) selects everything.
func TopK[T Float](scores []T, k int) []int32 {
	if k <= 0 {
		return nil
	}
	if k >= len(scores) {
		return Ascending(len(scores))
	}
	out := make([]int32, 0, k)
	threshold := kthLargest(scores, k)
	ties := k
	for _, s := range scores {
		if s > threshold {
			ties--
		}
	}
	for i, s := range scores {
		switch {
		case s > threshold:
		case ties > 0 && rank(s) == threshold:
			ties--
		default:
			continue
		}
		out = append(out, int32(i))
	}
	return out
}

// rank is the score that v is ordered by.
func rank[T Float](v T) T {
	if v != v {
		return T(math.Inf(-1))
	}
	return v
}

// kthLargest selects by partitioning around the median of three; k is 1…len(x).
func kthLargest[T Float](x []T, k int) T {
	w := make([]T, len(x))
	for i, v := range x {
		w[i] = rank(v)
	}
	k--
	for lo, hi := 0, len(w)-1; ; {
		if lo == hi {
			return w[k]
		}
		pivot := median(w[lo], w[(lo+hi)/2], w[hi])
		// Dutch national flag: plateaus would make two-way partitions quadratic.
		gt, i, lt := lo, lo, hi
		for i <= lt {
			switch {
			case w[i] > pivot:
				w[i], w[gt] = w[gt], w[i]
				gt++
				i++
			case w[i] < pivot:
				w[i], w[lt] = w[lt], w[i]
				lt--
			default:
				i++
			}
		}
		switch {
		case k < gt:
			hi = gt - 1
		case k > lt:
			lo = lt + 1
		default:
			return pivot
		}
	}
}

func median[T Float](a, b, c T) T { return max(min(a, b), min(max(a, b), c)) }
