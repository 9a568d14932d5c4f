package simd

var vectorLevels = [...]*vectorKernels{
	avx2: {
		dot:       dotAVX2,
		sum:       sumAVX2,
		max:       maxAVX2,
		maxInto:   maxIntoAVX2,
		axpy:      axpyAVX2,
		scale:     scaleAVX2,
		addScalar: addScalarAVX2,
		add:       addAVX2,
		mul:       mulAVX2,
		exp:       expAVX2,
		expSum:    expSumAVX2,
		addExpSub: addExpSubAVX2,
		log:       logAVX2,
		siluMul:   siluMulAVX2,
	},
	avx512: {
		dot:       dotAVX512,
		sum:       sumAVX512,
		max:       maxAVX512,
		maxInto:   maxIntoAVX512,
		axpy:      axpyAVX512,
		scale:     scaleAVX512,
		addScalar: addScalarAVX512,
		add:       addAVX512,
		mul:       mulAVX512,
		exp:       expAVX512,
		expSum:    expSumAVX512,
		addExpSub: addExpSubAVX512,
		log:       logAVX512,
		siluMul:   siluMulAVX512,
	},
}

// The conversions of AVX2 handle whole vectors of 8; the rest is converted one by one,
// with the same bits. The slices are not empty and have one length.

func widenBF16(dst []float32, src []uint16) {
	switch level {
	case avx512:
		widenBF16AVX512(&dst[0], &src[0], len(dst))
	case avx2:
		widenBF16AVX2(&dst[0], &src[0], len(dst))
		done := len(dst) &^ 7
		widenBF16Portable(dst[done:], src[done:])
	default:
		widenBF16Portable(dst, src)
	}
}

func widenF16(dst []float32, src []uint16) {
	switch level {
	case avx512:
		widenF16AVX512(&dst[0], &src[0], len(dst))
	case avx2:
		widenF16AVX2(&dst[0], &src[0], len(dst))
		done := len(dst) &^ 7
		widenF16Portable(dst[done:], src[done:])
	default:
		widenF16Portable(dst, src)
	}
}

func narrowBF16(dst []uint16, src []float32) {
	switch level {
	case avx512:
		narrowBF16AVX512(&dst[0], &src[0], len(dst))
	case avx2:
		narrowBF16AVX2(&dst[0], &src[0], len(dst))
		done := len(dst) &^ 7
		narrowBF16Portable(dst[done:], src[done:])
	default:
		narrowBF16Portable(dst, src)
	}
}

func narrowF16(dst []uint16, src []float32) {
	switch level {
	case avx512:
		narrowF16AVX512(&dst[0], &src[0], len(dst))
	case avx2:
		narrowF16AVX2(&dst[0], &src[0], len(dst))
		done := len(dst) &^ 7
		narrowF16Portable(dst[done:], src[done:])
	default:
		narrowF16Portable(dst, src)
	}
}
