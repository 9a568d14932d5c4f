package training

import "testing"

// TestWarmup: a preset's warm-up is 2% of the steps, however many there are.
func TestWarmup(t *testing.T) {
	p, err := Presets.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	for steps, want := range map[int]int{7600: 152, 100: 2, 1000: 20, 120: 3, 1: 1} {
		c := p.Config
		c.Steps = steps
		if got := c.warmupSteps(); got != want {
			t.Errorf("%d steps: %d of warm-up, want %d", steps, got, want)
		}
		if first := c.rate(0); first > 1/float64(want)+1e-12 {
			t.Errorf("%d steps: the first step's rate is %v of the peak, want 1/%d at most", steps, first, want)
		}
		c.Warmup = 7
		if got := c.warmupSteps(); got != 7 {
			t.Errorf("%d steps: %d of warm-up, want the 7 that are set", steps, got)
		}
	}
}
