package stats

import (
	"compress/gzip"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"testing"
)

// scipy.stats gave the intervals and p-values, its bootstrap with a generator
// that draws what math/rand/v2 draws; see lab/golden/golden_scoring.py.
func TestResamplingEqualsSciPy(t *testing.T) {
	f, err := os.Open("testdata/resampling.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		A, B        []float64
		Level       float64
		Resamples   int
		Seed        uint64
		Low, High   float64
		Sign        float64
		Permutation *float64
	}
	if err := json.NewDecoder(z).Decode(&cases); err != nil {
		t.Fatal(err)
	}
	exact := 0
	for _, c := range cases {
		d := Differences(c.A, c.B)
		ci := BootstrapMacroMean([][]float64{d}, c.Level, c.Resamples, c.Seed)
		same(t, "low end", ci.Low, c.Low)
		same(t, "high end", ci.High, c.High)
		same(t, "sign test", SignTest(d), c.Sign)
		if c.Permutation != nil {
			exact++
			same(t, "permutation test", PairedPermutation(d, 1, 0), *c.Permutation)
		}
	}
	if exact < 10 {
		t.Errorf("%d exact permutation tests, want at least 10", exact)
	}
}

// Random signs estimate what all signs give: 20 differences are too many to count
// here, but the same 10 twice over have a null distribution that can be convolved.
func TestRandomPermutationsEstimateTheExactValue(t *testing.T) {
	d := []float64{1, 2, 3, 4, -1, 2, 1, -2, 3, 1, 1, 2, 3, 4, -1, 2, 1, -2, 3, -4}
	ways := map[int]float64{0: 1} // signed sums and how many signs lead to them
	for _, v := range d {
		next := map[int]float64{}
		for sum, n := range ways {
			next[sum+int(v)] += n
			next[sum-int(v)] += n
		}
		ways = next
	}
	observed := 0.0
	for _, v := range d {
		observed += v
	}
	want := 0.0
	for sum, n := range ways {
		if math.Abs(float64(sum)) >= observed {
			want += n / (1 << 20)
		}
	}
	const resamples = 20000
	got := PairedPermutation(d, resamples, 7)
	if limit := 5 * math.Sqrt(want*(1-want)/resamples); math.Abs(got-want) > limit {
		t.Errorf("p = %v, want %v ± %v", got, want, limit)
	}
	if again := PairedPermutation(d, resamples, 7); again != got {
		t.Errorf("the same seed gave %v and %v", got, again)
	}
}

// An interval covers the true mean about as often as it says.
func TestBootstrapCoverage(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 9))
	const runs = 400
	covered := 0
	for run := range runs {
		x := make([]float64, 40)
		for i := range x {
			x[i] = r.ExpFloat64()
		}
		if ci := BootstrapMacroMean([][]float64{x}, 0.9, 200, uint64(run)); ci.Low <= 1 && 1 <= ci.High {
			covered++
		}
	}
	if share := float64(covered) / runs; share < 0.82 || share > 0.95 {
		t.Errorf("90%% intervals cover the mean in %v of the cases", share)
	}
}

func TestResamplingEdges(t *testing.T) {
	nan := math.NaN()
	for _, x := range [][]float64{nil, {1, nan}, {3}} {
		ci := BootstrapMacroMean([][]float64{x}, 0.95, 10, 0)
		same(t, "low end", ci.Low, nan)
		same(t, "high end", ci.High, nan)
		if len(x) != 1 {
			same(t, "permutation test", PairedPermutation(x, 10, 0), nan)
		}
	}
	same(t, "sign test of ties", SignTest([]float64{0, 0}), 1)
	same(t, "permutations of ties", PairedPermutation(make([]float64, 40), 50, 0), 1)
	same(t, "sign test of 10 wins", SignTest([]float64{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), 2.0/1024)
	mustPanic(t, func() { Differences([]float64{1}, nil) })
	mustPanic(t, func() { BootstrapMacroMean([][]float64{{1}}, 1, 10, 0) })
	mustPanic(t, func() { BootstrapMacroMean([][]float64{{1}}, 0.9, 0, 0) })
	mustPanic(t, func() { PairedPermutation([]float64{1}, 0, 0) })
}
