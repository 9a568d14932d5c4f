package simd

// WidenBF16 sets dst[i] to the bfloat16 src[i]; exact. It panics if lengths differ.
func WidenBF16(dst []float32, src []uint16) {
	checkEqual("WidenBF16", "src", len(src), len(dst))
	if len(dst) > 0 {
		widenBF16(dst, src)
	}
}

// WidenF16 sets dst[i] to the IEEE half-precision number src[i]; exact, except that
// a signalling NaN becomes quiet. It panics if lengths differ.
func WidenF16(dst []float32, src []uint16) {
	checkEqual("WidenF16", "src", len(src), len(dst))
	if len(dst) > 0 {
		widenF16(dst, src)
	}
}

// NarrowBF16 sets dst[i] to the bfloat16 nearest to src[i], ties to even. What
// rounds above the largest number becomes infinite; NaN becomes a quiet NaN. It
// panics if lengths differ.
func NarrowBF16(dst []uint16, src []float32) {
	checkEqual("NarrowBF16", "src", len(src), len(dst))
	if len(dst) > 0 {
		narrowBF16(dst, src)
	}
}

// NarrowF16 sets dst[i] to the IEEE half-precision number nearest to src[i], ties to
// even, subnormals included. What rounds above 65504 becomes infinite; NaN becomes a
// quiet NaN. It panics if lengths differ.
func NarrowF16(dst []uint16, src []float32) {
	checkEqual("NarrowF16", "src", len(src), len(dst))
	if len(dst) > 0 {
		narrowF16(dst, src)
	}
}
