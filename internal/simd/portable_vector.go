package simd

import "math"

// Reductions keep eight partial sums: that hides the latency of the additions, and
// errors grow more slowly than in one long sum.

func dotPortable(x, y []float32) float32 {
	y = y[:len(x)]
	var s [8]float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a, b := x[i:i+8:i+8], y[i:i+8:i+8]
		s[0] += a[0] * b[0]
		s[1] += a[1] * b[1]
		s[2] += a[2] * b[2]
		s[3] += a[3] * b[3]
		s[4] += a[4] * b[4]
		s[5] += a[5] * b[5]
		s[6] += a[6] * b[6]
		s[7] += a[7] * b[7]
	}
	for j := 0; i < len(x); i, j = i+1, j+1 {
		s[j] += x[i] * y[i]
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func sumPortable(x []float32) float32 {
	var s [8]float32
	i := 0
	for ; i+8 <= len(x); i += 8 {
		a := x[i : i+8 : i+8]
		s[0] += a[0]
		s[1] += a[1]
		s[2] += a[2]
		s[3] += a[3]
		s[4] += a[4]
		s[5] += a[5]
		s[6] += a[6]
		s[7] += a[7]
	}
	for j := 0; i < len(x); i, j = i+1, j+1 {
		s[j] += x[i]
	}
	return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
}

func maxPortable(x []float32) float32 {
	m := float32(math.Inf(-1))
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

func maxIntoPortable(dst, src []float32) {
	for i, v := range src {
		dst[i] = max(dst[i], v)
	}
}

func axpyPortable(a float32, x, y []float32) {
	y = y[:len(x)]
	for i, v := range x {
		y[i] += a * v
	}
}

func scalePortable(a float32, x []float32) {
	for i := range x {
		x[i] *= a
	}
}

func addScalarPortable(a float32, x []float32) {
	for i := range x {
		x[i] += a
	}
}

func addPortable(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] + y[i]
	}
}

func mulPortable(dst, x, y []float32) {
	x, y = x[:len(dst)], y[:len(dst)]
	for i := range dst {
		dst[i] = x[i] * y[i]
	}
}

func exp32(x float32) float32 { return float32(math.Exp(float64(x))) }

func expPortable(dst, src []float32) {
	for i, x := range src {
		dst[i] = exp32(x)
	}
}

func expAbove(x, floor float32) float32 {
	if x < floor {
		return 0
	}
	return exp32(x)
}

func expSumPortable(dst, src []float32, shift, floor float32) float32 {
	for i, x := range src {
		dst[i] = expAbove(x-shift, floor)
	}
	return sumPortable(dst)
}

func addExpSubPortable(dst, src, shift []float32, floor float32) {
	for i, x := range src {
		dst[i] += expAbove(x-shift[i], floor)
	}
}

func logPortable(dst, src []float32) {
	for i, x := range src {
		dst[i] = float32(math.Log(float64(x)))
	}
}

func siluMulPortable(dst, gate, up []float32) {
	for i, g := range gate {
		dst[i] = g / (1 + exp32(-g)) * up[i]
	}
}
