//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestCUDASelectedAttention: attention over chosen entries where they lie is attention
// over copies of them, for few and many entries, groups, windows, and both types of
// cache; what was not chosen, here NaN, is not read.
func TestCUDASelectedAttention(t *testing.T) {
	d, exact := openCUDA(t), kernelstest.Open(t, "reference64")
	rng := rand.New(rand.NewPCG(8, 1))
	shapes := []kernelstest.AttendShape{
		{Rows: 1, Heads: 1, Dim: 4, Entries: []int{1}},
		{Rows: 1, Heads: 6, Dim: 16, Entries: []int{1, 40, 7}},
		{Rows: 1, Heads: 8, Dim: 32, Entries: []int{1000, 700}},
		{Rows: 1, Heads: 71, Dim: 8, Entries: []int{90}},
		{Rows: 1, Heads: 2, Dim: 128, Entries: []int{300, 31}},
		{Rows: 1, Heads: 4, Dim: 8, Entries: []int{700, 700}, Window: 90},
		{Rows: 1, Heads: 6, Dim: 8, Entries: []int{50, 13, 400}, Window: 200, Evicted: true},
		{Rows: 1, Heads: 6, Dim: 8, Entries: []int{50, 13, 400}, Logits: 8, SoftCap: 5, Sinks: 1, Window: 200, Evicted: true},
		{Rows: 1, Heads: 6, Dim: 10, Entries: []int{50, 400}, Logits: 8, SoftCap: 5, Sinks: 1},
	}
	for range 8 {
		s := kernelstest.AttendShape{Rows: 1, Dim: 2 * (1 + rng.IntN(40))}
		kvHeads := 1 + rng.IntN(3)
		s.Heads = kvHeads * (1 + rng.IntN(5))
		for range kvHeads {
			s.Entries = append(s.Entries, 1+rng.IntN(600))
		}
		shapes = append(shapes, s)
	}
	for i, s := range shapes {
		name := fmt.Sprintf("%d: heads=%d/dim=%d/entries=%v/window=%d", i, s.Heads, s.Dim, s.Entries, s.Window)
		seed := rng.Uint64()
		chosen := make([][]int32, len(s.Entries))
		for g, n := range s.Entries {
			for j := range n {
				if j == n-1 || rng.IntN(3) == 0 {
					chosen[g] = append(chosen[g], int32(j))
				}
			}
		}
		for _, bf16 := range []bool{false, true} {
			a := s.Attend(d, rand.New(rand.NewPCG(seed, 1)))
			ref := s.Attend(exact, rand.New(rand.NewPCG(seed, 1)))
			if bf16 {
				a, ref = kernelstest.Halved(d, a, true), kernelstest.Halved(exact, ref, false)
			}
			for g, idx := range chosen { // the reference has copies
				kv := &ref.Past[g]
				k, v := exact.Garbage(len(idx), s.Dim), exact.Garbage(len(idx), s.Dim)
				exact.B.Gather(k, kv.K, idx)
				exact.B.Gather(v, kv.V, idx)
				kv.K, kv.V = k, v
				if s.Window > 0 {
					positions := kv.Positions
					kv.Positions = nil
					for _, j := range idx {
						at := j
						if positions != nil {
							at = positions[j]
						}
						kv.Positions = append(kv.Positions, at)
					}
				}
				spoil := d.Garbage(1, s.Dim)
				for j := range s.Entries[g] {
					if !slices.Contains(idx, int32(j)) {
						kernels.Convert(a.Past[g].K.Rows(j, j+1), spoil)
						kernels.Convert(a.Past[g].V.Rows(j, j+1), spoil)
					}
				}
			}
			out, lse := d.Garbage(1, s.Heads*s.Dim), d.Garbage(s.Heads, 1)
			d.B.AttentionSelected(out, lse, a, kernels.HostSelection(chosen), nil)
			wantOut, wantLSE := exact.Garbage(1, s.Heads*s.Dim), exact.Garbage(s.Heads, 1)
			exact.B.Attention(wantOut, wantLSE, ref)
			compare.Close(t, name+": out", out.Float64s(), wantOut.Float64s(), 3e-5, compare.Floor(kernelstest.Magnitude(wantOut.Float64s())))
			compare.Close(t, name+": lse", lse.Float64s(), wantLSE.Float64s(), 3e-5, compare.Floor(1))
		}
	}
	for name, entries := range map[string][][]int32{"none": {{}}, "too large": {{5}}, "not ascending": {{2, 2}}, "one head too few": {}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			s := kernelstest.AttendShape{Rows: 1, Heads: 1, Dim: 4, Entries: []int{5}}
			d.B.AttentionSelected(d.Garbage(1, 4), nil, s.Attend(d, rng), kernels.HostSelection(entries), nil)
		}()
	}
}
