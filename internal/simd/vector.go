package simd

import "math"

// All functions of this file take slices of one length and panic if lengths differ;
// x and dst may be the same slice. They run on the calling goroutine.

// Dot returns Σ x[i]·y[i]; 0 if empty.
func Dot(x, y []float32) float32 {
	checkEqual("Dot", "y", len(y), len(x))
	if len(x) == 0 {
		return 0
	}
	return dot(x, y)
}

// Sum returns Σ x[i]; 0 if empty.
func Sum(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return sum(x)
}

// SumSquares returns Σ x[i]²; 0 if empty.
func SumSquares(x []float32) float32 {
	if len(x) == 0 {
		return 0
	}
	return dot(x, x)
}

// Max returns the largest element: NaN if there is a NaN, −Inf if empty. The sign of
// a zero result is undefined where both zeros occur.
func Max(x []float32) float32 {
	if len(x) == 0 {
		return float32(math.Inf(-1))
	}
	return maximum(x)
}

// MaxInto sets dst[i] = max(dst[i], src[i]): NaN if either is NaN. The sign of a zero
// result is undefined where the zeros differ.
func MaxInto(dst, src []float32) {
	checkEqual("MaxInto", "src", len(src), len(dst))
	if len(dst) > 0 {
		maxInto(dst, src)
	}
}

// Axpy sets y[i] += a·x[i].
func Axpy(a float32, x, y []float32) {
	checkEqual("Axpy", "y", len(y), len(x))
	if len(x) > 0 {
		axpy(a, x, y)
	}
}

// Scale sets x[i] *= a.
func Scale(a float32, x []float32) {
	if len(x) > 0 {
		scale(a, x)
	}
}

// AddScalar sets x[i] += a.
func AddScalar(a float32, x []float32) {
	if len(x) > 0 {
		addScalar(a, x)
	}
}

// Add sets dst[i] = x[i] + y[i].
func Add(dst, x, y []float32) {
	checkEqual("Add", "x", len(x), len(dst))
	checkEqual("Add", "y", len(y), len(dst))
	if len(dst) > 0 {
		addVectors(dst, x, y)
	}
}

// Mul sets dst[i] = x[i]·y[i].
func Mul(dst, x, y []float32) {
	checkEqual("Mul", "x", len(x), len(dst))
	checkEqual("Mul", "y", len(y), len(dst))
	if len(dst) > 0 {
		mul(dst, x, y)
	}
}

// Exp sets dst[i] = eˣ for x = src[i], within 2 units in the last place, subnormal
// results included. exp(−Inf) is 0, results above the largest number are +Inf, and
// NaN stays NaN.
func Exp(dst, src []float32) {
	checkEqual("Exp", "src", len(src), len(dst))
	if len(dst) > 0 {
		exp(dst, src)
	}
}

const (
	// logSmallestNormal is the least float32 whose exponential is a normal number, 2⁻¹²⁶.
	logSmallestNormal = -87.33654
	// logNothing is the logarithm below which a term is nothing beside 1.
	logNothing = -40
)

// ExpSum sets dst[i] = exp(src[i] − shift) and returns Σ dst[i]; 0 if empty. The
// difference is rounded once; its exponential is as accurate as that of [Exp], but 0
// where it would be subnormal, below 2⁻¹²⁶ (a difference of −87.3): arithmetic on
// subnormal numbers is a hundred times slower.
func ExpSum(dst, src []float32, shift float32) float32 {
	checkEqual("ExpSum", "src", len(src), len(dst))
	if len(dst) == 0 {
		return 0
	}
	return expSum(dst, src, shift, logSmallestNormal)
}

// ExpWeights is [ExpSum] for the weights of a mean, where the largest one is 1 or about the
// sum: it is 0 where the difference is below −40. A weight of less than 10⁻¹⁷ adds
// nothing, but products of it with other small numbers would be subnormal. Weights that
// are compared with each other come from ExpSum.
func ExpWeights(dst, src []float32, shift float32) float32 {
	checkEqual("ExpWeights", "src", len(src), len(dst))
	if len(dst) == 0 {
		return 0
	}
	return expSum(dst, src, shift, logNothing)
}

// AddExpSub sets dst[i] += exp(src[i] − shift[i]), with the terms of [ExpWeights]: one row
// of a log-sum-exp over columns.
func AddExpSub(dst, src, shift []float32) {
	checkEqual("AddExpSub", "src", len(src), len(dst))
	checkEqual("AddExpSub", "shift", len(shift), len(dst))
	if len(dst) > 0 {
		addExpSub(dst, src, shift, logNothing)
	}
}

// Log sets dst[i] = ln src[i], within 2 units in the last place. log(0) is −Inf,
// log(+Inf) is +Inf, and the logarithm of a negative number or NaN is NaN.
func Log(dst, src []float32) {
	checkEqual("Log", "src", len(src), len(dst))
	if len(dst) > 0 {
		log(dst, src)
	}
}

// SiLUMul sets dst[i] = gate[i]·sigmoid(gate[i])·up[i], the activation of a gated
// feed-forward layer (Shazeer 2020, SwiGLU).
func SiLUMul(dst, gate, up []float32) {
	checkEqual("SiLUMul", "gate", len(gate), len(dst))
	checkEqual("SiLUMul", "up", len(up), len(dst))
	if len(dst) > 0 {
		siluMul(dst, gate, up)
	}
}
