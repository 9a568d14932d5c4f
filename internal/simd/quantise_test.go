package simd

import (
	"math"
	"testing"
	"unsafe"
)

// TestQuantise compares the records of the assembly with the portable code, which has no
// records: bytes, scales, and sums of them.
func TestQuantise(t *testing.T) {
	everyLevel(t, func(t *testing.T) {
		for _, f := range []*Blocks{
			{Elems: smallBlock, Bytes: 18, Vector: VectorQ4_0}, {Elems: smallBlock, Bytes: 34, Vector: VectorQ8_0}, {Elems: largeBlock, Bytes: 144, Vector: VectorQ4_K},
		} {
			kernels := f.kernels()
			if kernels.multiply == nil {
				continue
			}
			r := newRand(5)
			for range iterations(2000) {
				p := product{blocks: f, m: 1 + r.IntN(3), k: (1 + r.IntN(4)) * f.Elems}
				p.lda = p.k + r.IntN(3)
				x := normal(r, p.m*p.lda)
				scale := float32(math.Exp2(float64(r.IntN(250) - 124)))
				for i := range x {
					x[i] *= scale
					switch r.IntN(300) {
					case 0:
						x[i] = float32(math.NaN())
					case 1:
						x[i] = float32(math.Inf(r.IntN(3) - 1))
					case 2, 3, 4:
						x[i] = 0
					case 5, 6: // ties between bytes
						x[i] = 127 * scale
						x[(i+1)%len(x)] = (float32(r.IntN(127)) + 0.5) * scale
					}
				}
				for i := 0; i+32 <= len(x); i += 32 {
					if r.IntN(10) == 0 {
						clear(x[i : i+32])
					}
				}
				p.a = &x[0]
				p.quantised = new(quantised)
				p.quantised.layout(&p)
				for i := range p.m {
					p.quantiseTask(i)
					for group := range p.k / 32 {
						want := quantisePortable(x[i*p.lda+32*group:][:32])
						got := recordOf(f, p.quantised.row(i), group)
						same := func(name string, got, want float32) {
							if math.Float32bits(got) != math.Float32bits(want) && (got == got || want == want) {
								t.Fatalf("%s: %v, want %v, of %v", name, got, want, x[i*p.lda+32*group:][:32])
							}
						}
						if got.bytes != want.bytes {
							t.Fatalf("bytes %v, want %v, of %v", got.bytes, want.bytes, x[i*p.lda+32*group:][:32])
						}
						same("scale", got.scale, want.scale)
						same("sum", got.sum, want.scale*float32(want.sum(0, 32)))
						if f.Elems == largeBlock {
							same("sum of the first half", got.halves[0], want.scale*float32(want.sum(0, 16)))
							same("sum of the second half", got.halves[1], want.scale*float32(want.sum(16, 32)))
						} else if total := -kernels.offset * want.sum(0, 32); int(got.offset) != total {
							t.Fatalf("offset %d, want %d", got.offset, total)
						}
					}
				}
			}
		}
	})
}

type record struct {
	bytes      [32]int8
	scale, sum float32
	halves     [2]float32
	offset     int32
}

// recordOf reads what the records of a row say of a group of 32.
func recordOf(f *Blocks, row *byte, group int) (r record) {
	at := func(offset int) unsafe.Pointer { return unsafe.Add(unsafe.Pointer(row), offset) }
	if f.Elems == smallBlock {
		start := smallRecord * group
		r.bytes = *(*[32]int8)(at(start))
		r.scale, r.offset, r.sum = *(*float32)(at(start + 32)), *(*int32)(at(start + 36)), *(*float32)(at(start + 40))
		return r
	}
	start, g := largeRecord*(group/8), group%8
	r.bytes = *(*[32]int8)(at(start + 32*g))
	r.scale, r.sum = *(*float32)(at(start + 256 + 4*g)), *(*float32)(at(start + 288 + 4*g))
	r.halves = *(*[2]float32)(at(start + 320 + 8*g))
	return r
}
