package simd

// The slices are not empty and have one length.

func dot(x, y []float32) float32 {
	switch level {
	case avx512:
		return dotAVX512(&x[0], &y[0], len(x))
	case avx2:
		return dotAVX2(&x[0], &y[0], len(x))
	}
	return dotPortable(x, y)
}

func sum(x []float32) float32 {
	switch level {
	case avx512:
		return sumAVX512(&x[0], len(x))
	case avx2:
		return sumAVX2(&x[0], len(x))
	}
	return sumPortable(x)
}

func maximum(x []float32) float32 {
	switch level {
	case avx512:
		return maxAVX512(&x[0], len(x))
	case avx2:
		return maxAVX2(&x[0], len(x))
	}
	return maxPortable(x)
}

func maxInto(dst, src []float32) {
	switch level {
	case avx512:
		maxIntoAVX512(&dst[0], &src[0], len(dst))
	case avx2:
		maxIntoAVX2(&dst[0], &src[0], len(dst))
	default:
		maxIntoPortable(dst, src)
	}
}

func axpy(a float32, x, y []float32) {
	switch level {
	case avx512:
		axpyAVX512(a, &x[0], &y[0], len(x))
	case avx2:
		axpyAVX2(a, &x[0], &y[0], len(x))
	default:
		axpyPortable(a, x, y)
	}
}

func scale(a float32, x []float32) {
	switch level {
	case avx512:
		scaleAVX512(a, &x[0], len(x))
	case avx2:
		scaleAVX2(a, &x[0], len(x))
	default:
		scalePortable(a, x)
	}
}

func addScalar(a float32, x []float32) {
	switch level {
	case avx512:
		addScalarAVX512(a, &x[0], len(x))
	case avx2:
		addScalarAVX2(a, &x[0], len(x))
	default:
		addScalarPortable(a, x)
	}
}

func addVectors(dst, x, y []float32) {
	switch level {
	case avx512:
		addAVX512(&dst[0], &x[0], &y[0], len(dst))
	case avx2:
		addAVX2(&dst[0], &x[0], &y[0], len(dst))
	default:
		addPortable(dst, x, y)
	}
}

func mul(dst, x, y []float32) {
	switch level {
	case avx512:
		mulAVX512(&dst[0], &x[0], &y[0], len(dst))
	case avx2:
		mulAVX2(&dst[0], &x[0], &y[0], len(dst))
	default:
		mulPortable(dst, x, y)
	}
}

func exp(dst, src []float32) {
	switch level {
	case avx512:
		expAVX512(&dst[0], &src[0], len(dst))
	case avx2:
		expAVX2(&dst[0], &src[0], len(dst))
	default:
		expPortable(dst, src)
	}
}

func expSum(dst, src []float32, shift, floor float32) float32 {
	switch level {
	case avx512:
		return expSumAVX512(&dst[0], &src[0], len(dst), shift, floor)
	case avx2:
		return expSumAVX2(&dst[0], &src[0], len(dst), shift, floor)
	}
	return expSumPortable(dst, src, shift, floor)
}

func addExpSub(dst, src, shift []float32, floor float32) {
	switch level {
	case avx512:
		addExpSubAVX512(&dst[0], &src[0], &shift[0], len(dst), floor)
	case avx2:
		addExpSubAVX2(&dst[0], &src[0], &shift[0], len(dst), floor)
	default:
		addExpSubPortable(dst, src, shift, floor)
	}
}

func log(dst, src []float32) {
	switch level {
	case avx512:
		logAVX512(&dst[0], &src[0], len(dst))
	case avx2:
		logAVX2(&dst[0], &src[0], len(dst))
	default:
		logPortable(dst, src)
	}
}

func siluMul(dst, gate, up []float32) {
	switch level {
	case avx512:
		siluMulAVX512(&dst[0], &gate[0], &up[0], len(dst))
	case avx2:
		siluMulAVX2(&dst[0], &gate[0], &up[0], len(dst))
	default:
		siluMulPortable(dst, gate, up)
	}
}

// The conversions of AVX2 handle whole vectors of 8; the rest is converted one by one,
// with the same bits.

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
