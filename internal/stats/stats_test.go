package stats

import (
	"cmp"
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
)

func TestMean(t *testing.T) {
	cases := []struct {
		name         string
		x            []float64
		mean, stdErr float64
	}{
		{"none", nil, math.NaN(), math.NaN()},
		{"one", []float64{3}, 3, math.NaN()},
		{"constant", []float64{2, 2, 2}, 2, 0},
		{"1 to 5", []float64{1, 2, 3, 4, 5}, 3, math.Sqrt(0.5)}, // s² = 2.5, n = 5
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			mean, stdErr := Mean(c.x)
			same(t, "mean", mean, c.mean)
			same(t, "standard error", stdErr, c.stdErr)
		})
	}
}

// same compares single values of which NaN is a legitimate one.
func same(t *testing.T, name string, got, want float64) {
	t.Helper()
	if math.IsNaN(want) {
		if !math.IsNaN(got) {
			t.Errorf("%s = %v, want NaN", name, got)
		}
		return
	}
	compare.Close(t, name, []float64{got}, []float64{want}, 1e-12)
}

func TestBinomialStdErr(t *testing.T) {
	cases := []struct {
		name string
		p    float64
		n    int
		want float64
	}{
		{"half of 100", 0.5, 100, 0.05},
		{"one of ten", 0.1, 10, math.Sqrt(0.009)},
		{"none right is not certainty", 0, 64, 1.0 / 130},
		{"all right is not certainty", 1, 64, 1.0 / 130},
		{"one sample", 1, 1, 0.25},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { same(t, "standard error", BinomialStdErr(c.p, c.n), c.want) })
	}
	for _, bad := range []struct {
		p float64
		n int
	}{{-0.1, 5}, {1.1, 5}, {math.NaN(), 5}, {0.5, 0}} {
		mustPanic(t, func() { BinomialStdErr(bad.p, bad.n) })
	}
}

// The value at p = 0 is the Wilson half-width at z = 1, computed from its general formula.
func TestBinomialStdErrIsWilsonAtTheEnds(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		p, f := 0.0, float64(n)
		wilson := math.Sqrt(p*(1-p)/f+1/(4*f*f)) / (1 + 1/f)
		same(t, "standard error", BinomialStdErr(p, n), wilson)
	}
}

func TestMacroMean(t *testing.T) {
	mean, stdErr := MacroMean([]float64{0.2, 0.4, 0.9}, []float64{0.03, 0, 0.04})
	same(t, "mean", mean, 0.5)
	same(t, "standard error", stdErr, 0.05/3)
	mean, stdErr = MacroMean(nil, nil)
	same(t, "mean of nothing", mean, math.NaN())
	same(t, "standard error of nothing", stdErr, math.NaN())
	mustPanic(t, func() { MacroMean([]float64{1}, nil) })
}

func TestKendallTau(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	cases := []struct {
		name string
		a, b []float32
		want float64
	}{
		{"same order", []float32{1, 2, 3}, []float32{10, 20, 30}, 1},
		{"reversed", []float32{1, 2, 3}, []float32{3, 2, 1}, -1},
		{"one exchange of three", []float32{1, 2, 3}, []float32{2, 1, 3}, 1.0 / 3},
		// scipy.stats.kendalltau([12, 2, 1, 12, 2], [1, 4, 7, 1, 0]) from its documentation
		{"ties in both", []float32{12, 2, 1, 12, 2}, []float32{1, 4, 7, 1, 0}, -0.47140452079103173},
		{"infinities are ranks like others", []float32{-inf, 0, inf}, []float32{1, 2, 3}, 1},
		{"negative zero equals zero", []float32{0, float32(math.Copysign(0, -1)), 1}, []float32{1, 1, 2}, 1},
		{"constant", []float32{1, 1, 1}, []float32{1, 2, 3}, math.NaN()},
		{"one", []float32{1}, []float32{1}, math.NaN()},
		{"none", nil, nil, math.NaN()},
		{"NaN", []float32{1, nan, 3}, []float32{1, 2, 3}, math.NaN()},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			same(t, "tau", KendallTau(c.a, c.b), c.want)
			same(t, "tau with the arguments exchanged", KendallTau(c.b, c.a), c.want)
		})
	}
	mustPanic(t, func() { KendallTau([]float32{1}, nil) })
}

// naiveTau counts every pair.
func naiveTau(a, b []float32) float64 {
	var score, untiedA, untiedB int
	for i := range a {
		for j := range i {
			da, db := cmp.Compare(a[i], a[j]), cmp.Compare(b[i], b[j])
			score += da * db
			untiedA += da * da
			untiedB += db * db
		}
	}
	return float64(score) / math.Sqrt(float64(untiedA)*float64(untiedB))
}

func TestKendallTauAgainstAllPairs(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		n, levels := 2+r.IntN(40), 2+r.IntN(30) // few levels make many ties
		a, b := randomLevels(r, n, levels), randomLevels(r, n, levels)
		same(t, "tau", KendallTau(a, b), naiveTau(a, b))
	}
}

func randomLevels(r *rand.Rand, n, levels int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.IntN(levels)) - 3
	}
	return x
}

func mustPanic(t *testing.T, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	f()
}

func benchmarkScores() (a, b []float32) {
	r := rand.New(rand.NewPCG(5, 6))
	a, b = make([]float32, 32768), make([]float32, 32768)
	for i := range a {
		a[i] = r.Float32()
		b[i] = a[i] + r.Float32()
	}
	return a, b
}

func BenchmarkKendallTau(b *testing.B) {
	x, y := benchmarkScores()
	b.Run("entries=32768", func(b *testing.B) {
		for b.Loop() {
			KendallTau(x, y)
		}
	})
}
