package kernels_test

import (
	"testing"

	"glimpse/kernels"
)

// TestPrefillChunk: chunks fill whole waves of tiles on known chips with the outputs of
// Llama 3.1 8B's and, but for keys and values, 3.2 1B's products, take at most a 32nd of
// the memory, and never fewer than 512 rows.
func TestPrefillChunk(t *testing.T) {
	const row = 233 << 10 // of Llama 3.1 8B, about
	for _, c := range []struct {
		processors int
		memory     int64
		want       int
	}{
		{132, 80e9, 4224}, {114, 80e9, 3584}, {108, 40e9, 3456}, {132, 24e9, 2048}, {58, 24e9, 1792}, {128, 24e9, 2048}, {132, 8e9, 1024}, {132, 1e9, 512}, {2, 80e9, 512},
	} {
		n := kernels.Traits{Device: true, Processors: c.processors, Memory: c.memory}.PrefillChunk(row)
		if n != c.want {
			t.Errorf("%d processors, %d bytes: %d rows, want %d", c.processors, c.memory, n, c.want)
		}
		if c.memory < 40e9 {
			continue
		}
		for _, outputs := range []int{4096, 1024, 14336, 2048, 8192} { // tiles of 256 outputs by 128 rows
			tiles := outputs / 256 * ((n + 127) / 128)
			waves := (tiles + c.processors - 1) / c.processors
			if busy := float64(tiles) / float64(waves*c.processors); c.processors > 2 && busy < 0.95 {
				t.Errorf("%d processors, %d outputs: %.0f%% busy", c.processors, outputs, 100*busy)
			}
		}
	}
}
