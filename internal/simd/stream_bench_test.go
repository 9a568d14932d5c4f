package simd

import (
	"fmt"
	"testing"

	"glimpse/internal/benchclock"
)

// BenchmarkStream is products of a row by weights that come from memory, as decoding has them: the rate at which
// 128 MiB of weights are read, to hold against memory of BenchmarkMachine.
func BenchmarkStream(b *testing.B) {
	const bytes = 128 << 20
	half := make([]uint16, bytes/2)
	for i := range half {
		half[i] = 0x3f80
	}
	for _, m := range []int{1, 4} {
		for _, k := range []int{576, 1536, 2048, 8192} {
			b.Run(fmt.Sprintf("bf16/m=%d/k=%d", m, k), func(b *testing.B) {
				n := len(half) / k
				x, y := make([]float32, m*k), make([]float32, m*n)
				start := benchclock.Now()
				for b.Loop() {
					GemmNTBF16(m, n, k, 1, x, k, half, k, 0, y, n)
				}
				b.ReportMetric(float64(bytes)*float64(b.N)/(benchclock.Now()-start).Seconds()/1e9, "GB/s")
			})
		}
	}
}
