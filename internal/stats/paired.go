package stats

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// Differences returns a[i] − b[i]. It panics if the lengths differ.
func Differences(a, b []float64) []float64 {
	if len(a) != len(b) {
		panic(fmt.Sprintf("stats: %d values paired with %d", len(a), len(b)))
	}
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

// SignTest returns the two-sided p-value of the exact sign test for differences d of
// paired values: how likely it is that heads and tails of as many fair throws as
// there are differences other than zero are at least as unequal. 1 if there are none.
func SignTest(d []float64) float64 {
	above, below := 0, 0
	for _, v := range d {
		switch {
		case v > 0:
			above++
		case v < 0:
			below++
		}
	}
	n, k := above+below, min(above, below)
	logAll, _ := math.Lgamma(float64(n + 1))
	tail := 0.0
	for i := range k + 1 {
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		tail += math.Exp(logAll - a - b - float64(n)*math.Ln2)
	}
	return min(1, 2*tail)
}

// exactFlips bounds the number of differences up to which [PairedPermutation] goes
// through all 2^n signs.
const exactFlips = 16

// PairedPermutation returns the two-sided p-value of the paired permutation test for
// the mean of differences d (Fisher 1935): under the null hypothesis each pair could
// have been the other way round, so each difference could have the other sign. Up
// to 16 differences all signs are counted; above, as many random ones as resamples
// says, and the observed one (Phipson and Smyth 2010, arXiv:1603.05766). The same seed
// gives the same value. NaN without differences. It panics if resamples is not positive.
func PairedPermutation(d []float64, resamples int, seed uint64) float64 {
	if resamples < 1 {
		panic(fmt.Sprintf("stats: permutation test with %d resamples", resamples))
	}
	n := len(d)
	if n == 0 {
		return math.NaN()
	}
	observed := 0.0
	for _, v := range d {
		if math.IsNaN(v) {
			return math.NaN()
		}
		observed += v
	}
	// Sums in another order differ by rounding; what is equal counts as extreme.
	extreme := math.Abs(observed) * (1 - 1e-12)
	if n <= exactFlips {
		count := 0
		for signs := range uint64(1) << n {
			if math.Abs(flippedSum(d, []uint64{signs})) >= extreme {
				count++
			}
		}
		return float64(count) / float64(uint64(1)<<n)
	}
	r := rand.New(rand.NewPCG(seed, 0))
	signs := make([]uint64, (n+63)/64)
	count := 1
	for range resamples {
		for i := range signs {
			signs[i] = r.Uint64()
		}
		if math.Abs(flippedSum(d, signs)) >= extreme {
			count++
		}
	}
	return float64(count) / float64(resamples+1)
}

// flippedSum adds d with the signs changed where a bit is set, without branches, which would
// be guessed wrong half of the time.
func flippedSum(d []float64, signs []uint64) float64 {
	sum := 0.0
	for i, v := range d {
		sum += math.Float64frombits(math.Float64bits(v) ^ signs[i/64]>>(i%64)<<63)
	}
	return sum
}
