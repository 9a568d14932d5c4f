package kernels_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/benchclock"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// BenchmarkPrefillAttention runs the attention of a whole prompt as a prefill does, in
// chunks of 512 rows after what the cache holds, and reports the rate of its causal
// operations over that of a matrix product of the same run.
func BenchmarkPrefillAttention(b *testing.B) {
	const heads, kvHeads, chunk = 8, 2, 512
	for _, s := range []struct{ tokens, dim int }{{2048, 64}, {2048, 128}, {8192, 64}, {8192, 128}} {
		b.Run(fmt.Sprintf("tokens=%d/heads=%d/kvheads=%d/dim=%d", s.tokens, heads, kvHeads, s.dim), func(b *testing.B) {
			d, rng := kernelstest.Open(b, "cpu"), rand.New(rand.NewPCG(1, 1))
			random := func(shape ...int) *kernels.Tensor {
				t := d.B.Alloc(kernels.F32, shape...)
				for i := range t.F32() {
					t.F32()[i] = float32(rng.NormFloat64())
				}
				return t
			}
			q, out := random(chunk, heads, s.dim), random(chunk, heads*s.dim)
			past := make([]kernels.KV, kvHeads)
			for h := range past {
				past[h] = kernels.KV{K: random(s.tokens, s.dim), V: random(s.tokens, s.dim)}
			}
			attention := func() {
				for from := 0; from < s.tokens; from += chunk {
					seen := make([]kernels.KV, kvHeads)
					for h, kv := range past {
						seen[h] = kernels.KV{K: kv.K.Rows(0, from+chunk), V: kv.V.Rows(0, from+chunk)}
					}
					d.B.Attention(out, nil, &kernels.Attend{Q: q, Past: seen, Scale: 1 / math.Sqrt(float64(s.dim))})
				}
			}
			const size = 2048
			x, w, y := random(chunk, size).F32(), random(size, size).F32(), make([]float32, chunk*size)
			product := func() { simd.GemmNT(chunk, size, size, 1, x, size, w, size, 0, y, size) }
			attention()
			product()
			n := float64(s.tokens)
			work, productWork := 4*float64(heads*s.dim)*n*(n+1)/2, 2.0*chunk*size*size
			var ratios, rates []float64
			for b.Loop() {
				start := benchclock.Now()
				product()
				before := (benchclock.Now() - start).Seconds()
				start = benchclock.Now()
				attention()
				seconds := (benchclock.Now() - start).Seconds()
				start = benchclock.Now()
				product()
				after := (benchclock.Now() - start).Seconds()
				rates = append(rates, work/seconds/1e9)
				ratios = append(ratios, work/seconds/(2*productWork/(before+after)))
			}
			slices.Sort(ratios)
			slices.Sort(rates)
			b.ReportMetric(rates[len(rates)/2], "GFLOP/s")
			b.ReportMetric(ratios[len(ratios)/2], "attention/product")
		})
	}
}
