package kernels_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// biasedCases are attention over entries with biases, all of them or chosen ones.
func biasedCases() []kernelstest.Conformance {
	shapes := append([]kernelstest.AttendShape(nil), kernelstest.BoundedShapes...)
	for i := range shapes {
		shapes[i].Name, shapes[i].Biased = "biases, "+shapes[i].Name, 21
	}
	return kernelstest.AttentionCases(append(shapes, kernelstest.BiasedShapes...))
}

// TestBiasedAttention holds attention with biases, on backends that take some, against the reference.
func TestBiasedAttention(t *testing.T) {
	exact := kernelstest.Open(t, "reference64")
	for _, name := range []string{"cpu", "reference"} {
		d := kernelstest.Open(t, name)
		if err := d.B.TakesBias(); err != nil {
			t.Fatal(err)
		}
		for _, c := range biasedCases() {
			c.Compare(t, d, c.RunOn(exact))
		}
	}
}

// TestBiasCountsAnEntryTwice: a bias of log 2 is a second entry with the same key and value, and a selection takes biases along.
func TestBiasCountsAnEntryTwice(t *testing.T) {
	for _, name := range []string{"reference64", "reference", "cpu"} {
		d, rng := kernelstest.Open(t, name), rand.New(rand.NewPCG(3, 9))
		const heads, dim, n, twice = 2, 8, 30, 4
		q, k, v := d.Drawn(rng, 1, heads, dim), kernelstest.Random(rng, n*dim, 1), kernelstest.Random(rng, n*dim, 1)
		attend := func(bias []float64, rows ...int32) (out, lse *kernels.Tensor) {
			kv := kernels.KV{K: d.Tensor(k, n, dim), V: d.Tensor(v, n, dim)}
			if bias != nil {
				kv.Bias = d.Tensor(bias, len(bias))
			} else {
				kv.K, kv.V = d.B.Alloc(d.B.Compute(), len(rows), dim), d.B.Alloc(d.B.Compute(), len(rows), dim)
				d.B.Gather(kv.K, d.Tensor(k, n, dim), rows)
				d.B.Gather(kv.V, d.Tensor(v, n, dim), rows)
			}
			a := &kernels.Attend{Q: q, Past: []kernels.KV{kv}, Scale: 1}
			out, lse = d.Garbage(1, heads*dim), d.Garbage(heads, 1)
			if bias == nil {
				d.B.Attention(out, lse, a)
			} else {
				d.B.AttentionSelected(out, lse, a, kernels.HostSelection([][]int32{rows}), kernels.NewArena(d.B))
			}
			return out, lse
		}
		wantOut, wantLSE := attend(nil, 1, twice, twice, 17, n-1)
		out, lse := attend([]float64{3, 0, -1, 5, math.Ln2}, 1, twice, 17, n-1)
		compare.CloseToScale(t, name+": out", out.Float64s(), wantOut.Float64s(), 1e-5)
		compare.CloseToScale(t, name+": lse", lse.Float64s(), wantLSE.Float64s(), 1e-5)
	}
}

// TestBiasedEntriesHaveNoGradient: they are of contexts that were refitted, which nothing trains on.
func TestBiasedEntriesHaveNoGradient(t *testing.T) {
	d, rng := kernelstest.Open(t, "cpu"), rand.New(rand.NewPCG(3, 9))
	s := kernelstest.AttendShape{Rows: 2, Heads: 2, Dim: 4, Entries: []int{5, 5}, Own: true, Biased: 3}
	a := s.Attend(d, rng)
	dOut, dScore := s.Gradients(d, rng, true, true)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	s.Grad(d, a, dOut, dScore)
}
