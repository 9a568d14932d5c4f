package simd

// The slices are not empty and have one length.

func dot(x, y []float32) float32 {
	if level == neon {
		return dotNEON(&x[0], &y[0], len(x))
	}
	return dotPortable(x, y)
}

func sum(x []float32) float32 {
	if level == neon {
		return sumNEON(&x[0], len(x))
	}
	return sumPortable(x)
}

func maximum(x []float32) float32 {
	if level == neon {
		return maxNEON(&x[0], len(x))
	}
	return maxPortable(x)
}

func maxInto(dst, src []float32) {
	if level == neon {
		maxIntoNEON(&dst[0], &src[0], len(dst))
		return
	}
	maxIntoPortable(dst, src)
}

func axpy(a float32, x, y []float32) {
	if level == neon {
		axpyNEON(a, &x[0], &y[0], len(x))
		return
	}
	axpyPortable(a, x, y)
}

func scale(a float32, x []float32) {
	if level == neon {
		scaleNEON(a, &x[0], len(x))
		return
	}
	scalePortable(a, x)
}

func addScalar(a float32, x []float32) {
	if level == neon {
		addScalarNEON(a, &x[0], len(x))
		return
	}
	addScalarPortable(a, x)
}

func addVectors(dst, x, y []float32) {
	if level == neon {
		addNEON(&dst[0], &x[0], &y[0], len(dst))
		return
	}
	addPortable(dst, x, y)
}

func mul(dst, x, y []float32) {
	if level == neon {
		mulNEON(&dst[0], &x[0], &y[0], len(dst))
		return
	}
	mulPortable(dst, x, y)
}

func exp(dst, src []float32) {
	if level == neon {
		expNEON(&dst[0], &src[0], len(dst))
		return
	}
	expPortable(dst, src)
}

func expSum(dst, src []float32, shift, floor float32) float32 {
	if level == neon {
		return expSumNEON(&dst[0], &src[0], len(dst), shift, floor)
	}
	return expSumPortable(dst, src, shift, floor)
}

func addExpSub(dst, src, shift []float32, floor float32) {
	if level == neon {
		addExpSubNEON(&dst[0], &src[0], &shift[0], len(dst), floor)
		return
	}
	addExpSubPortable(dst, src, shift, floor)
}

func siluMul(dst, gate, up []float32) {
	if level == neon {
		siluMulNEON(&dst[0], &gate[0], &up[0], len(dst))
		return
	}
	siluMulPortable(dst, gate, up)
}

// log has no NEON version: it is used once per column of scores.
func log(dst, src []float32) { logPortable(dst, src) }

// The conversions of NEON handle whole vectors of 8; the rest is converted one by one,
// with the same bits.

func widenBF16(dst []float32, src []uint16) {
	done := 0
	if level == neon {
		widenBF16NEON(&dst[0], &src[0], len(dst))
		done = len(dst) &^ 7
	}
	widenBF16Portable(dst[done:], src[done:])
}

func widenF16(dst []float32, src []uint16) {
	done := 0
	if level == neon {
		widenF16NEON(&dst[0], &src[0], len(dst))
		done = len(dst) &^ 7
	}
	widenF16Portable(dst[done:], src[done:])
}

func narrowBF16(dst []uint16, src []float32) {
	done := 0
	if level == neon {
		narrowBF16NEON(&dst[0], &src[0], len(dst))
		done = len(dst) &^ 7
	}
	narrowBF16Portable(dst[done:], src[done:])
}

func narrowF16(dst []uint16, src []float32) {
	done := 0
	if level == neon {
		narrowF16NEON(&dst[0], &src[0], len(dst))
		done = len(dst) &^ 7
	}
	narrowF16Portable(dst[done:], src[done:])
}
