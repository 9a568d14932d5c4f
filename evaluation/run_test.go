package evaluation

import (
	"testing"

	"glimpse/internal/parallel"
	"glimpse/model/modeltest"
)

// TestConcurrency: small models on the host work on a sample for every thread, large ones and
// devices on one at a time, and what is asked for decides.
func TestConcurrency(t *testing.T) {
	small := modeltest.Llama{Layers: 1}.Open(t, "cpu")
	device, _ := small.Counted()
	large := modeltest.Llama{Layers: 1, Hidden: 64, Heads: 2, Intermediate: smallWeights / 64 / 8}.Open(t, "cpu")
	defer parallel.SetThreads(parallel.SetThreads(3))
	for _, c := range []struct {
		of   string
		got  int
		want int
	}{
		{"a small model", (&Options{}).concurrency(small), 3},
		{"a small model, 2 asked for", (&Options{Concurrency: 2}).concurrency(small), 2},
		{"a small model on a device", (&Options{}).concurrency(device), 1},
		{"a large model", (&Options{}).concurrency(large), 1},
		{"a large model, 2 asked for", (&Options{Concurrency: 2}).concurrency(large), 2},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d samples at once, want %d", c.of, c.got, c.want)
		}
	}
}
