package stats

import (
	"math"
	"testing"
)

// The values are those of R: p.adjust(c(.01, .04, .03, .005, .7), "holm").
func TestHolm(t *testing.T) {
	got, want := Holm([]float64{.01, .04, .03, .005, .7}), []float64{.04, .09, .09, .025, .7}
	for i := range want {
		if math.Abs(got[i]-want[i]) > 1e-15 {
			t.Errorf("p-value %d: %v, want %v", i, got[i], want[i])
		}
	}
	if got := Holm([]float64{.6, .9}); got[0] != 1 || got[1] != 1 {
		t.Errorf("%v, want none above 1", got)
	}
	if got := Holm([]float64{.01, math.NaN(), .04}); got[0] != .02 || got[1] == got[1] || got[2] != .04 {
		t.Errorf("%v, want NaN not to count", got)
	}
	if len(Holm(nil)) != 0 {
		t.Error("something of nothing")
	}
}

// TestBootstrapMacroMean: of groups of unequal sizes the interval is that of the mean of their
// means, not of the mean of all. TestResamplingEqualsSciPy has one group.
func TestBootstrapMacroMean(t *testing.T) {
	few := []float64{0, 1, 1, 0}
	many := make([]float64, 400)
	for i := range many {
		many[i] = float64(i % 2)
	}
	// The standard error of the mean of means is √(0.25/4 + 0.25/400)/2, that of all is 0.025.
	got := BootstrapMacroMean([][]float64{few, many}, 0.95, 4000, 1)
	if half := (got.High - got.Low) / 2; math.Abs(half-1.96*math.Sqrt(0.25/4+0.25/400)/2) > 0.03 {
		t.Errorf("half width %v", half)
	}
	if got := BootstrapMacroMean([][]float64{few, nil}, 0.95, 10, 1); !math.IsNaN(got.Low) || !math.IsNaN(got.High) {
		t.Errorf("an empty group: %v, want NaN", got)
	}
}
