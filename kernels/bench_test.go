package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// benchShapes are a small model's prompt chunk, decoding step, observation window
// and learned rows.
var benchShapes = []kernelstest.AttendShape{
	{Name: "prefill", Rows: 512, Heads: 8, Dim: 64, Entries: []int{2048, 2048}},
	{Name: "decode", Rows: 1, Heads: 8, Dim: 64, Entries: []int{4096, 4096}},
	{Name: "window", Rows: 32, Heads: 8, Dim: 64, Entries: []int{4096, 4096}},
	{Name: "lookahead", Rows: 32, Heads: 8, Dim: 64, Entries: []int{4096, 4096}, Own: true},
	// Many weights among the least numbers: products with them may be subnormal, which
	// processors are slow with.
	{Name: "sharp", Rows: 512, Heads: 8, Dim: 64, Entries: []int{2048, 2048}, Logits: 40},
	{Name: "sharp", Rows: 32, Heads: 8, Dim: 64, Entries: []int{4096, 4096}, Own: true, Logits: 40},
}

func label(s kernelstest.AttendShape) string {
	return fmt.Sprintf("%s/rows=%d/entries=%d/heads=%d/kvheads=%d/dim=%d", s.Name, s.Rows, s.Entries[0], s.Heads, len(s.Entries), s.Dim)
}

// flops is the number of operations of one product of the rows with all keys.
func flops(s kernelstest.AttendShape) float64 {
	n := 0
	for _, e := range s.Entries {
		n += e * s.Heads / len(s.Entries)
	}
	return 2 * float64(n) * float64(s.Rows) * float64(s.Dim)
}

func rate(b *testing.B, flops float64) {
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkAttention(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(label(s), func(b *testing.B) {
			d := kernelstest.Open(b, "cpu")
			a := s.Attend(d, rand.New(rand.NewPCG(1, 1)))
			out, lse := d.Garbage(s.Rows, s.Heads*s.Dim), d.Garbage(s.Heads, s.Rows)
			for b.Loop() {
				d.B.Attention(out, lse, a)
			}
			rate(b, 2*flops(s))
		})
	}
}

func BenchmarkObservedScores(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(label(s), func(b *testing.B) {
			d := kernelstest.Open(b, "cpu")
			a := s.Attend(d, rand.New(rand.NewPCG(1, 1)))
			_, lse, scores := s.Observe(d, a)
			for b.Loop() {
				d.B.ObservedScores(scores, lse, a)
			}
			rate(b, flops(s))
		})
	}
}

func BenchmarkAttentionGrad(b *testing.B) {
	for _, s := range benchShapes {
		if !s.Own {
			continue
		}
		for _, v := range []struct {
			name string
			out  bool
		}{{"scores", false}, {"both", true}} {
			b.Run(label(s)+"/of="+v.name, func(b *testing.B) {
				d, rng := kernelstest.Open(b, "cpu"), rand.New(rand.NewPCG(1, 1))
				a := s.Attend(d, rng)
				dOut, dScore := s.Gradients(d, rng, v.out, true)
				out, lse, scores := s.Observe(d, a)
				dq, dk, dv := d.Garbage(s.Rows, s.Heads, s.Dim), d.Garbage(s.Rows, len(s.Entries), s.Dim), (*kernels.Tensor)(nil)
				products := 2.0 // logits again, dq; those of dk are few
				if v.out {
					dv = d.Garbage(s.Rows, len(s.Entries), s.Dim)
					products++
				}
				for b.Loop() {
					d.B.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore)
				}
				rate(b, products*flops(s))
			})
		}
	}
}
