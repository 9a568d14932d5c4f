package simd

import "math/rand/v2"

// For tests that need kernels/formats, which imports this package.

var (
	NewRand  = newRand
	Normal   = normal
	SameBits = sameBits
)

const (
	RaceEnabled = raceEnabled
	MaxDotRows  = maxDotRows
)

// MultipliesBlocks reports whether few rows are multiplied by blocks as they are at the level in use.
func (f *Blocks) MultipliesBlocks() bool { return f.kernels().multiply != nil }

// Quantises reports whether they are quantised for it.
func (f *Blocks) Quantises() bool { return f.MultipliesBlocks() && f.kernels().offset >= 0 }

// DecodesRows reports whether m rows are multiplied by blocks [k, n] in float32 at the level in use.
func (f *Blocks) DecodesRows(m, n int) bool {
	p := product{level: level, m: m, n: n, blocks: f}
	return !p.usesDots() && p.inPlace()
}

// BytePanels reports whether more rows, if Rounded, are multiplied by blocks as bytes.
func (f *Blocks) BytePanels() bool { return f.multipliesBytes() }

// Dequantise rounds each 32 elements to what bytes and a scale hold.
func Dequantise(dst, src []float32) {
	for at := 0; at < len(src); at += 32 {
		g := quantisePortable(src[at : at+32])
		for i, q := range g.bytes {
			dst[at+i] = float32(q) * g.scale
		}
	}
}

// RandomFew are numbers of which few are near the largest.
func RandomFew(r *rand.Rand, n int) []float32 {
	x := normal(r, n)
	for i := range x {
		x[i] *= x[i] * x[i]
	}
	return x
}
