package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/kernels"
)

// benchShapes are a small model's prompt chunk, decoding step, observation window
// and learned rows.
var benchShapes = []attendShape{
	{name: "prefill", rows: 512, heads: 8, dim: 64, entries: []int{2048, 2048}},
	{name: "decode", rows: 1, heads: 8, dim: 64, entries: []int{4096, 4096}},
	{name: "window", rows: 32, heads: 8, dim: 64, entries: []int{4096, 4096}},
	{name: "lookahead", rows: 32, heads: 8, dim: 64, entries: []int{4096, 4096}, own: true},
	// Many weights among the least numbers: products with them may be subnormal, which
	// processors are slow with.
	{name: "sharp", rows: 512, heads: 8, dim: 64, entries: []int{2048, 2048}, logits: 40},
	{name: "sharp", rows: 32, heads: 8, dim: 64, entries: []int{4096, 4096}, own: true, logits: 40},
}

func (s attendShape) label() string {
	return fmt.Sprintf("%s/rows=%d/entries=%d/heads=%d/kvheads=%d/dim=%d", s.name, s.rows, s.entries[0], s.heads, len(s.entries), s.dim)
}

// flops is the number of operations of one product of the rows with all keys.
func (s attendShape) flops() float64 {
	n := 0
	for _, e := range s.entries {
		n += e * s.heads / len(s.entries)
	}
	return 2 * float64(n) * float64(s.rows) * float64(s.dim)
}

func rate(b *testing.B, flops float64) {
	b.ReportMetric(flops*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

func BenchmarkAttention(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(s.label(), func(b *testing.B) {
			d := open(b, "cpu")
			a := s.attend(d, rand.New(rand.NewPCG(1, 1)))
			out, lse := d.garbage(s.rows, s.heads*s.dim), d.garbage(s.heads, s.rows)
			for b.Loop() {
				d.b.Attention(out, lse, a)
			}
			rate(b, 2*s.flops())
		})
	}
}

func BenchmarkObservedScores(b *testing.B) {
	for _, s := range benchShapes {
		b.Run(s.label(), func(b *testing.B) {
			d := open(b, "cpu")
			a := s.attend(d, rand.New(rand.NewPCG(1, 1)))
			_, lse, scores := s.observe(d, a)
			for b.Loop() {
				d.b.ObservedScores(scores, lse, a)
			}
			rate(b, s.flops())
		})
	}
}

func BenchmarkAttentionGrad(b *testing.B) {
	for _, s := range benchShapes {
		if !s.own {
			continue
		}
		for _, v := range []struct {
			name string
			out  bool
		}{{"scores", false}, {"both", true}} {
			b.Run(s.label()+"/of="+v.name, func(b *testing.B) {
				d, rng := open(b, "cpu"), rand.New(rand.NewPCG(1, 1))
				a := s.attend(d, rng)
				dOut, dScore := s.gradients(d, rng, v.out, true)
				out, lse, scores := s.observe(d, a)
				dq, dk, dv := d.garbage(s.rows, s.heads, s.dim), d.garbage(s.rows, len(s.entries), s.dim), (*kernels.Tensor)(nil)
				products := 2.0 // logits again, dq; those of dk are few
				if v.out {
					dv = d.garbage(s.rows, len(s.entries), s.dim)
					products++
				}
				for b.Loop() {
					d.b.AttentionGrad(dq, dk, dv, a, out, lse, scores, dOut, dScore)
				}
				rate(b, products*s.flops())
			})
		}
	}
}
