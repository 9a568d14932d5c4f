package formats

import (
	"math"

	"glimpse/internal/simd"
)

// e2m1 are twice the values of 4-bit floats (OCP Microscaling Formats, version 1.0, table 5). The
// scales are halved instead, which is exact.
var e2m1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

func init() {
	// 32 elements with a power of two as scale.
	add("MXFP4", 32, 17, simd.VectorMXFP4, func(dst []float32, src []byte) {
		for ; len(dst) >= 32 && len(src) >= 17; dst, src = dst[32:], src[17:] {
			widenTable(dst[:32], src[1:17], halfE8M0(src[0]), &e2m1)
		}
	})
	// 64 elements, whose groups of 16 have a float of 8 bits without sign as scale each.
	add("NVFP4", 64, 36, 0, func(dst []float32, src []byte) {
		for ; len(dst) >= 64 && len(src) >= 36; dst, src = dst[64:], src[36:] {
			for group := range 4 {
				widenTable(dst[16*group:][:16], src[4+8*group:][:8], halfE4M3(src[group]), &e2m1)
			}
		}
	})
}

// halfE8M0 is half of 2^(e-127). The NaN of 255 is a number, as in ggml.
func halfE8M0(e byte) float32 {
	if e < 2 {
		return math.Float32frombits(0x200000 << e) // subnormal
	}
	return math.Float32frombits(uint32(e-1) << 23)
}

// halfE4M3 is half of a float of 4 bits of exponent and 3 of mantissa, whatever its sign bit. Its
// NaN is 0, as in ggml.
func halfE4M3(b byte) float32 {
	exp, man := int(b>>3&15), float64(b&7)
	switch {
	case b == 0x7f:
		return 0
	case exp == 0:
		return float32(math.Ldexp(man, -10))
	}
	return float32(math.Ldexp(1+man/8, exp-8))
}
