package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Interval is a two-sided confidence interval; both ends are NaN where there is
// nothing to estimate from.
type Interval struct{ Low, High float64 }

// BootstrapMacroMean returns the percentile bootstrap interval of the unweighted mean over
// groups (tasks) of their means at a level such as 0.95 (Efron and Tibshirani 1993, section
// 13.3): that mean of each of so many resamples, and the quantiles (1 − level)/2 and
// (1 + level)/2 of these means, interpolated linearly. Every group is resampled by itself,
// with replacement: the tasks are those that were chosen, their samples are drawn (the
// stratified bootstrap). The same seed gives the same interval. For two policies on the same
// samples, the values are the differences. Both ends are NaN if any group has fewer than two
// values: one says nothing about its spread. It panics if the level is not in (0, 1) or
// resamples is not positive.
func BootstrapMacroMean(groups [][]float64, level float64, resamples int, seed uint64) Interval {
	if !(level > 0 && level < 1) || resamples < 1 {
		panic(fmt.Sprintf("stats: bootstrap at level %v with %d resamples", level, resamples))
	}
	if len(groups) == 0 || slices.ContainsFunc(groups, func(x []float64) bool { return len(x) < 2 || slices.ContainsFunc(x, math.IsNaN) }) {
		return Interval{math.NaN(), math.NaN()}
	}
	r := rand.New(rand.NewPCG(seed, 0))
	means := make([]float64, resamples)
	for i := range means {
		for _, x := range groups {
			sum := 0.0
			for range x {
				sum += x[r.Uint64N(uint64(len(x)))]
			}
			means[i] += sum / float64(len(x))
		}
		means[i] /= float64(len(groups))
	}
	slices.Sort(means)
	return Interval{quantile(means, (1-level)/2), quantile(means, (1+level)/2)}
}

// quantile interpolates linearly between the order statistics (type 7 of Hyndman and
// Fan 1996, numpy's default).
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}
