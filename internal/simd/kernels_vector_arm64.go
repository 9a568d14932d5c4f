package simd

// log has no NEON version: it is used once per column of scores.
var vectorLevels = [...]*vectorKernels{
	neon: {
		dot:       dotNEON,
		sum:       sumNEON,
		max:       maxNEON,
		maxInto:   maxIntoNEON,
		axpy:      axpyNEON,
		scale:     scaleNEON,
		addScalar: addScalarNEON,
		add:       addNEON,
		mul:       mulNEON,
		exp:       expNEON,
		expSum:    expSumNEON,
		addExpSub: addExpSubNEON,
		siluMul:   siluMulNEON,
	},
}

// The conversions of NEON handle whole vectors of 8; the rest is converted one by one,
// with the same bits. The slices are not empty and have one length.

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
