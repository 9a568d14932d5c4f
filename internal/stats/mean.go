package stats

import (
	"fmt"
	"math"
)

// Mean returns the arithmetic mean of x and the standard error of that mean,
// s/√n with the sample standard deviation s (divisor n − 1). The mean of nothing
// is NaN, and so is the standard error of fewer than two values: one value says
// nothing about its spread.
func Mean(x []float64) (mean, stdErr float64) {
	n := float64(len(x))
	for _, v := range x {
		mean += v / n
	}
	if len(x) < 2 {
		if len(x) == 0 {
			mean = math.NaN()
		}
		return mean, math.NaN()
	}
	var ss float64
	for _, v := range x {
		ss += (v - mean) * (v - mean)
	}
	return mean, math.Sqrt(ss / (n - 1) / n)
}

// AlikeStdErr returns what takes the place of the standard error of n values in [0, 1] that are all
// the same, where the usual formulas claim certainty whatever n is: the half-width 1/(2(n+1)) of
// the Wilson score interval of only right answers at one standard deviation (z = 1).
func AlikeStdErr(n int) float64 { return 1 / (2 * (float64(n) + 1)) }

// BinomialStdErr returns the standard error √(p(1−p)/n) of a share p of right
// answers among n; AlikeStdErr where none or all are. For graded answers in [0, 1] with mean p the value is
// an upper bound. It panics if p is not in [0, 1] or n is not positive.
func BinomialStdErr(p float64, n int) float64 {
	if !(p >= 0 && p <= 1) || n <= 0 {
		panic(fmt.Sprintf("stats: binomial standard error of p = %v, n = %d", p, n))
	}
	if p == 0 || p == 1 {
		return AlikeStdErr(n)
	}
	return math.Sqrt(p * (1 - p) / float64(n))
}

// MacroMean returns the unweighted mean over groups (tasks) of their means, and
// its standard error √(Σ stdErrs²)/len(means) for groups measured independently.
// The mean of no groups is NaN. It panics if the lengths differ.
func MacroMean(means, stdErrs []float64) (mean, stdErr float64) {
	if len(means) != len(stdErrs) {
		panic(fmt.Sprintf("stats: %d means with %d standard errors", len(means), len(stdErrs)))
	}
	if len(means) == 0 {
		return math.NaN(), math.NaN()
	}
	var ss float64
	for i, m := range means {
		mean += m
		ss += stdErrs[i] * stdErrs[i]
	}
	n := float64(len(means))
	return mean / n, math.Sqrt(ss) / n
}
