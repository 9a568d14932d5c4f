//go:build gpu && linux && amd64

package kernels_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
)

// TestCUDASelectedAttention: attention over chosen entries where they lie is attention
// over copies of them, for few and many entries, groups, windows, and both types of
// cache; what was not chosen, here NaN, is not read.
func TestCUDASelectedAttention(t *testing.T) {
	d, exact := openCUDA(t), open(t, "reference64")
	rng := rand.New(rand.NewPCG(8, 1))
	shapes := []attendShape{
		{rows: 1, heads: 1, dim: 4, entries: []int{1}},
		{rows: 1, heads: 6, dim: 16, entries: []int{1, 40, 7}},
		{rows: 1, heads: 8, dim: 32, entries: []int{1000, 700}},
		{rows: 1, heads: 71, dim: 8, entries: []int{90}},
		{rows: 1, heads: 2, dim: 128, entries: []int{300, 31}},
		{rows: 1, heads: 4, dim: 8, entries: []int{700, 700}, window: 90},
		{rows: 1, heads: 6, dim: 8, entries: []int{50, 13, 400}, window: 200, evicted: true},
	}
	for range 8 {
		s := attendShape{rows: 1, dim: 2 * (1 + rng.IntN(40))}
		kvHeads := 1 + rng.IntN(3)
		s.heads = kvHeads * (1 + rng.IntN(5))
		for range kvHeads {
			s.entries = append(s.entries, 1+rng.IntN(600))
		}
		shapes = append(shapes, s)
	}
	for i, s := range shapes {
		name := fmt.Sprintf("%d: heads=%d/dim=%d/entries=%v/window=%d", i, s.heads, s.dim, s.entries, s.window)
		seed := rng.Uint64()
		chosen := make([][]int32, len(s.entries))
		for g, n := range s.entries {
			for j := range n {
				if j == n-1 || rng.IntN(3) == 0 {
					chosen[g] = append(chosen[g], int32(j))
				}
			}
		}
		for _, bf16 := range []bool{false, true} {
			a := s.attend(d, rand.New(rand.NewPCG(seed, 1)))
			ref := s.attend(exact, rand.New(rand.NewPCG(seed, 1)))
			if bf16 {
				a, ref = halved(d, a, true), halved(exact, ref, false)
			}
			for g, idx := range chosen { // the reference has copies
				kv := &ref.Past[g]
				k, v := exact.garbage(len(idx), s.dim), exact.garbage(len(idx), s.dim)
				exact.b.Gather(k, kv.K, idx)
				exact.b.Gather(v, kv.V, idx)
				kv.K, kv.V = k, v
				if s.window > 0 {
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
				spoil := d.garbage(1, s.dim)
				for j := range s.entries[g] {
					if !slices.Contains(idx, int32(j)) {
						kernels.Convert(a.Past[g].K.Rows(j, j+1), spoil)
						kernels.Convert(a.Past[g].V.Rows(j, j+1), spoil)
					}
				}
			}
			out, lse := d.garbage(1, s.heads*s.dim), d.garbage(s.heads, 1)
			d.b.AttentionSelected(out, lse, a, kernels.HostSelection(chosen), nil)
			wantOut, wantLSE := exact.garbage(1, s.heads*s.dim), exact.garbage(s.heads, 1)
			exact.b.Attention(wantOut, wantLSE, ref)
			compare.Close(t, name+": out", out.Float64s(), wantOut.Float64s(), 3e-5, compare.Floor(magnitude(wantOut.Float64s())))
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
			s := attendShape{rows: 1, heads: 1, dim: 4, entries: []int{5}}
			d.b.AttentionSelected(d.garbage(1, 4), nil, s.attend(d, rng), kernels.HostSelection(entries), nil)
		}()
	}
}
