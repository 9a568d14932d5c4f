package formats

import (
	"math"

	"glimpse/internal/simd"
)

// e2m1 are twice the values of 4-bit floats (OCP Microscaling Formats, version 1.0, table 5). The
// scales are halved instead, which is exact.
var e2m1 = [16]float32{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}

// signedE2M1 is e2m1 with −0.
var signedE2M1 = func() [16]float32 {
	values := e2m1
	values[8] = float32(math.Copysign(0, -1))
	return values
}()

func init() {
	// 32 elements with a power of two as scale.
	addBlocks("MXFP4", 32, 17, simd.VectorMXFP4, func(dst []float32, src []byte) { widenTable(dst[:32], src[1:17], halfE8M0(src[0]), &e2m1) })
	// MXFP4 as checkpoints of Hugging Face widen it: zeros have signs.
	addBlocks("E2M1_E8M0", 32, 17, simd.VectorE2M1_E8M0, func(dst []float32, src []byte) { widenTable(dst[:32], src[1:17], halfE8M0(src[0]), &signedE2M1) })
	// 32 floats of 8 bits with a power of two as scale: MXFP8 of the same specification. Its products are numbers of
	// bfloat16 and of float32 alike. NaN is what it says, of elements and of scales.
	addBlocks("MXFP8", 32, 33, simd.VectorMXFP8, func(dst []float32, src []byte) {
		scale := scaleE8M0(src[0])
		for i, b := range src[1:33] {
			dst[i] = E4M3[b] * scale
		}
	}).Narrow = narrowMXFP8
	// 64 elements, whose groups of 16 have a float of 8 bits without sign as scale each.
	addBlocks("NVFP4", 64, 36, 0, func(dst []float32, src []byte) {
		for group := range 4 {
			widenTable(dst[16*group:][:16], src[4+8*group:][:8], halfE4M3(src[group]), &e2m1)
		}
	})
}

// E4M3 are the values of 8-bit floats with 4 bits of exponent and 3 of mantissa, which have NaN but
// no infinity (OCP 8-bit Floating Point Specification, revision 1.0, table 1).
var E4M3 = func() (values [256]float32) {
	for b := range values {
		exp, man := b>>3&15, float64(b&7)
		v := math.Ldexp(1+man/8, exp-7)
		if exp == 0 {
			v = math.Ldexp(man, -9)
		}
		if b&127 == 127 {
			v = math.NaN()
		}
		values[b] = float32(math.Copysign(v, float64(1-b>>7*2)))
	}
	return values
}()

// mostE4M3 is the largest finite value.
const mostE4M3 = 448

// narrowMXFP8 takes as scale the least power of two that leaves no number above the largest of E4M3 (as
// Mishra et al., arXiv:2506.08027, round it up; the OCP's own rule takes up to an eighth off the largest), and
// rounds to nearest even.
func narrowMXFP8(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[33:], src[32:] {
		var bits uint32 // of the largest magnitude: NaN is above infinity
		for _, x := range src[:32] {
			bits = max(bits, math.Float32bits(x)&0x7fffffff)
		}
		top := math.Float32frombits(bits)
		if !(top <= math.MaxFloat32) {
			clear(dst[:33])
			dst[0] = 0xff
			continue
		}
		e := 0                                                  // of the scale, 2^(e-127)
		if fraction, exp := math.Frexp(float64(top)); top > 0 { // 448 is 0.875 · 2⁹
			if e = exp - 9 + 127; fraction > mostE4M3/512. {
				e++
			}
			e = max(e, 0)
		}
		dst[0] = byte(e)
		inverse := math.Ldexp(1, 127-e)
		for i, x := range src[:32] {
			dst[1+i] = toE4M3(float32(float64(x) * inverse))
		}
	}
}

// toE4M3 rounds a number of at most 448 to nearest even.
func toE4M3(x float32) byte {
	bits := math.Float32bits(x)
	sign, bits := byte(bits>>24&0x80), bits&0x7fffffff
	if bits < (127-6)<<23 { // subnormal: multiples of 2⁻⁹, which the sum rounds to
		return sign | byte(math.Float32bits(math.Float32frombits(bits)+0x1p14)-math.Float32bits(0x1p14))
	}
	bits += 1<<19 - 1 + bits>>20&1
	return sign | byte(bits>>20-(127-7)<<3)
}

// scaleE8M0 is 2^(e-127), NaN of 255.
func scaleE8M0(e byte) float32 {
	switch e {
	case 0:
		return 0x1p-127
	case 255:
		return float32(math.NaN())
	}
	return math.Float32frombits(uint32(e) << 23)
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
