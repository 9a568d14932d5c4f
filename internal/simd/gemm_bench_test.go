package simd

import (
	"fmt"
	"testing"

	"glimpse/internal/parallel"
)

// BenchmarkGemm measures the shapes of the reference model (k, n up to 640), of
// attention tiles, and of a model of 1 to 3 billion parameters, with one thread and
// with all.
func BenchmarkGemm(b *testing.B) {
	for _, c := range []struct {
		kind    string
		m, n, k int
	}{
		{"NT", 512, 128, 128}, {"NT", 512, 640, 128}, {"NT", 512, 128, 320},
		{"NT", 16, 128, 128}, {"NT", 16, 640, 128}, {"NT", 32, 128, 320},
		{"NT", 32, 64, 32}, {"NT", 32, 512, 32}, {"NT", 64, 512, 64}, {"NT", 64, 512, 128}, // q·kᵀ
		{"NN", 32, 32, 64}, {"NN", 32, 32, 512}, {"NN", 64, 64, 512}, {"NN", 64, 128, 512}, // p·v
		{"NTBF16Split", 128, 512, 64}, {"NNBF16Split", 128, 64, 512},
		{"NN", 512, 128, 640}, {"NN", 32, 128, 128}, {"TN", 128, 128, 512}, {"TN", 128, 128, 32},
		{"NT", 1, 128, 128}, {"NT", 1, 512, 128}, {"NT", 1, 2048, 2048}, {"NT", 4, 2048, 2048}, {"NT", 8, 2048, 2048},
		{"NTBF16", 1, 2048, 2048}, {"NTF16", 1, 2048, 2048}, {"NTBF16", 8, 2048, 2048},
		{"NN", 1, 128, 512}, {"NN", 4, 128, 512}, {"NNBF16", 4, 128, 512},
		{"NT", 32, 2048, 2048}, {"NTBF16", 32, 2048, 2048},
		{"NT", 512, 2048, 2048}, {"NTBF16", 512, 2048, 2048}, {"NN", 512, 2048, 2048}, {"TN", 512, 2048, 2048},
		{"NT", 2048, 2048, 8192},
	} {
		for _, threads := range []int{1, 2} {
			b.Run(fmt.Sprintf("%s/m=%d/n=%d/k=%d/threads=%d", c.kind, c.m, c.n, c.k, threads), func(b *testing.B) {
				previous := parallel.SetThreads(threads)
				defer parallel.SetThreads(previous)
				var kind gemmKind
				for _, k := range gemmKinds {
					if k.name == c.kind {
						kind = k
					}
				}
				lda, ldb := c.k, c.n
				if kind.tn {
					lda = c.m
				}
				if kind.nt {
					ldb = c.k
				}
				x, w, y := make([]float32, c.m*c.k), make([]float32, c.n*c.k), make([]float32, c.m*c.n)
				h := make([]uint16, c.n*c.k)
				for b.Loop() {
					kind.run(c.m, c.n, c.k, 1, x, lda, w, h, ldb, 0, y, c.n)
				}
				seconds := b.Elapsed().Seconds() / float64(b.N)
				b.ReportMetric(2*float64(c.m)*float64(c.n)*float64(c.k)/seconds/1e9, "GFLOP/s")
				if c.m <= maxDotRows {
					b.ReportMetric(float64(c.n)*float64(c.k)*float64(kind.s.size())/seconds/1e9, "GB/s")
				}
			})
		}
	}
}
