package simd

import "math"

func bf16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

func f32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + b>>16&1) >> 16)
}

func f16ToF32(h uint16) float32 {
	sign, exponent, fraction := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch {
	case exponent == 0: // zero and subnormals: fraction · 2⁻²⁴
		return math.Float32frombits(math.Float32bits(float32(fraction)*(1.0/(1<<24))) | sign)
	case exponent < 31:
		return math.Float32frombits(sign | (exponent+112)<<23 | fraction<<13)
	case fraction == 0:
		return math.Float32frombits(sign | 0x7f800000)
	}
	return math.Float32frombits(sign | 0x7fc00000 | fraction<<13)
}

func f32ToF16(f float32) uint16 {
	b := math.Float32bits(f)
	sign := uint16(b >> 16 & 0x8000)
	b &= 0x7fffffff
	switch {
	case b > 0x7f800000: // NaN keeps the upper bits of its payload
		return sign | 0x7e00 | uint16(b>>13&0x3ff)
	case b >= 0x47800000: // 2¹⁶ and above
		return sign | 0x7c00
	case b < 0x38800000: // below 2⁻¹⁴: a multiple of 2⁻²⁴
		// Adding ½ leaves the multiple in the lowest bits of the sum, rounded to even.
		return sign | uint16(math.Float32bits(math.Float32frombits(b)+0.5))
	}
	// A fraction that rounds up carries into the exponent, and 65520 into infinity.
	return sign | uint16((b-112<<23+0xfff+b>>13&1)>>13)
}

func widenBF16Portable(dst []float32, src []uint16) {
	for i, b := range src {
		dst[i] = bf16ToF32(b)
	}
}

func widenF16Portable(dst []float32, src []uint16) {
	for i, h := range src {
		dst[i] = f16ToF32(h)
	}
}

func narrowBF16Portable(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = f32ToBF16(f)
	}
}

func narrowF16Portable(dst []uint16, src []float32) {
	for i, f := range src {
		dst[i] = f32ToF16(f)
	}
}
