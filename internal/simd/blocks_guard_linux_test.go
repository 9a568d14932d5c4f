package simd_test

import (
	"runtime/debug"
	"testing"

	. "glimpse/internal/simd"
)

// Products and Decode touch nothing before or after their blocks, activations and results.
func TestBlocksStayInsideTheirSlices(t *testing.T) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	for _, ends := range []bool{true, false} {
		a, b, c := NewGuarded(t, 64, ends), NewGuarded(t, 64, ends), NewGuarded(t, 64, ends)
		blockLevels(t, func(t *testing.T, f *blockFormat) {
			r := NewRand(81)
			for _, m := range []int{1, 2, 3, 4, 6, 17, 33} {
				for _, nn := range []bool{false, true} {
					g := newBlockCase(f, nn, m, 1+r.IntN(9), f.depths()[r.IntN(3)], r)
					if nn {
						g = newBlockCase(f, nn, m, f.depths()[r.IntN(2)], 1+r.IntN(40), r)
					}
					want := g.run(Rounded)
					place := func(memory Guarded, x []float32, rows, columns, stride int) []float32 {
						s := memory.Floats((rows-1)*stride + columns)
						copy(s, x)
						return s
					}
					blocks := b.Bytes(len(g.b))
					copy(blocks, g.b)
					g.b = blocks
					g.a = place(a, g.a, m, g.k, g.lda)
					got := place(c, g.c, m, g.n, g.ldc)
					gemm := GemmNTBlocks
					if nn {
						gemm = GemmNNBlocks
					}
					gemm(m, g.n, g.k, g.alpha, g.a, g.lda, &f.Blocks, g.b, Rounded, g.beta, got, g.ldc)
					if at := SameBits(got, want[:len(got)]); at >= 0 {
						t.Fatalf("%v: other bits at %d in guarded memory", g, at)
					}
				}
			}
			for blocks := 1; blocks < 4; blocks++ {
				src := b.Bytes(blocks * f.Bytes)
				copy(src, f.random(r, blocks*f.Elems))
				f.Decode(c.Floats(blocks*f.Elems), src)
			}
		})
	}
}
