package stats

import "slices"

// Quantiles are the quantiles of x, between its numbers linearly. x is not empty.
func Quantiles(x []float64, of ...float64) (out []float64) {
	sorted := slices.Sorted(slices.Values(x))
	for _, q := range of {
		out = append(out, quantile(sorted, q))
	}
	return out
}
