package training_test

import (
	"fmt"
	"math"
	"testing"

	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

// TestFirstLossAgrees: the loss of the first training step is the same on every device
// and at every level of its kernels. The reference model's heads look at few entries:
// some pay the whole prompt less than e⁻⁴⁰ of their attention, and the divergence of
// their shares counts like any other head's.
func TestFirstLossAgrees(t *testing.T) {
	c := both(1)
	c.Batch = 2
	first := func(device string) []float64 {
		m, err := model.Open("", model.Options{Device: device})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		_, losses := run(t, m, c, stream(t, 96))
		return losses
	}
	want := first("reference64")
	check := func(name string, got []float64) {
		for i, v := range got {
			if e := math.Abs(v/want[i] - 1); !(e <= 1e-5) {
				t.Errorf("%s: %s: loss %v, want %v (%.2g)", name, c.Adapters[i].Kind, v, want[i], e)
			}
		}
	}
	for _, device := range kernels.Backends.Names() {
		if device != "cpu" && device != "reference64" {
			check(device, first(device))
		}
	}
	for _, level := range simd.Levels() {
		restore, err := simd.Use(level)
		if err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprint("cpu ", level), first("cpu"))
		restore()
	}
}
