//go:build avo

package main

import (
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// emitExp replaces each x by eˣ, for several registers in step: x = n·ln 2 + r with
// |r| ≤ ½ ln 2, then eʳ by the polynomial of Cephes (Moshier, expf.c), then a scaling by
// 2ⁿ that rounds subnormal results once.
func (v isa) emitExp(x []reg.VecVirtual) {
	lowest := v.vec()
	VMOVUPS(constant(-105), lowest) // below it the result is 0 anyway
	v.expFrom(x, lowest)
}

// expAbove is exp, but 0 for x below floor.
func (v isa) expAbove(x []reg.VecVirtual, floor reg.VecVirtual) {
	original := v.vecs(len(x))
	for i := range x {
		VMOVAPS(x[i], original[i])
	}
	v.expFrom(x, floor)
	for i := range x {
		v.chooseLanes(compareLess, original[i], floor, constant(0), x[i])
	}
}

func (v isa) expFrom(x []reg.VecVirtual, lowest reg.VecVirtual) {
	const (
		highest = 89 // beyond it the result is infinite
		// The upper part of ln 2 has few bits, so that its product with n is exact.
		ln2Upper, ln2Lower = 0.693359375, -2.12194440e-4
		nearest            = 0
	)
	each := func(emit func(i int)) {
		for i := range x {
			emit(i)
		}
	}
	n, p := v.vecs(len(x)), v.vecs(len(x))
	each(func(i int) { VMAXPS(x[i], lowest, x[i]) }) // x, if it is NaN
	bound := v.vec()
	VMOVUPS(constant(highest), bound)
	each(func(i int) { VMINPS(x[i], bound, x[i]) })
	each(func(i int) { VMULPS(constant(math.Log2E), x[i], n[i]) })
	each(func(i int) {
		if v.wide() {
			VRNDSCALEPS(Imm(nearest), n[i], n[i])
		} else {
			VROUNDPS(Imm(nearest), n[i], n[i])
		}
	})
	each(func(i int) { VFNMADD231PS(constant(ln2Upper), n[i], x[i]) })
	each(func(i int) { VFNMADD231PS(constant(ln2Lower), n[i], x[i]) })
	// 1 + (r + r²·(c₂ + c₃r + r²·(c₄ + c₅r + r²·(c₆ + c₇r)))): pairs of terms shorten
	// the chain of dependent operations, which is what limits the speed.
	square := v.vecs(len(x))
	each(func(i int) { VMULPS(x[i], x[i], square[i]) })
	pair := func(i int, odd, even float32) reg.VecVirtual {
		t := v.vec()
		VMOVUPS(constant(odd), t)
		VFMADD213PS(constant(even), x[i], t)
		return t
	}
	each(func(i int) { p[i] = pair(i, 1.9875691500e-4, 1.3981999507e-3) })
	for _, c := range [][2]float32{{8.3334519073e-3, 4.1665795894e-2}, {1.6666665459e-1, 5.0000001201e-1}} {
		each(func(i int) {
			t := pair(i, c[0], c[1])
			VFMADD231PS(square[i], p[i], t)
			p[i] = t
		})
	}
	each(func(i int) { VFMADD213PS(x[i], square[i], p[i]) })
	each(func(i int) { VADDPS(constant(1), p[i], p[i]) })
	if v.wide() {
		each(func(i int) { VSCALEFPS(n[i], p[i], x[i]) })
		return
	}
	// 2ⁿ may lie outside of the normal numbers: two steps, the first of them exact.
	each(func(i int) {
		half := v.vec()
		VCVTPS2DQ(n[i], n[i])
		VPSRAD(Imm(1), n[i], half)
		VPSUBD(half, n[i], n[i])
		v.powerOfTwo(half)
		v.powerOfTwo(n[i])
		VMULPS(half, p[i], p[i])
		VMULPS(n[i], p[i], x[i])
	})
}

// powerOfTwo replaces the integers n by the float32 2ⁿ, −126 ≤ n ≤ 127.
func (v isa) powerOfTwo(n reg.VecVirtual) {
	VPADDD(integer(127), n, n)
	VPSLLD(Imm(23), n, n)
}

func exponentials(v isa) {
	unroll := 2 // AVX2 has no registers for more
	if v.wide() {
		unroll = 4
	}
	// before gives the exponents of a step; exp makes them powers, for after.
	walk := func(arrays []array, before func(u int, m *mask) reg.VecVirtual, exp func([]reg.VecVirtual), after func(u int, m *mask, x reg.VecVirtual)) {
		v.walk(unroll, arrays, func(vectors int, m *mask) {
			x := make([]reg.VecVirtual, vectors)
			for u := range x {
				x[u] = before(u, m)
			}
			exp(x)
			for u := range x {
				after(u, m, x[u])
			}
		})
	}
	function("exp"+v.name, "func(dst, src *float32, n int)", "exp"+v.name+" sets dst[i] = exp(src[i]).")
	dst, src := arrayOf("dst", 4), arrayOf("src", 4)
	walk([]array{dst, src},
		func(u int, m *mask) reg.VecVirtual { return v.loadVector(v.element(src, u), m) }, v.emitExp,
		func(u int, m *mask, x reg.VecVirtual) { v.storeLanes(x, m, v.element(dst, u)) })
	endFunction()

	function("expSum"+v.name, "func(dst, src *float32, n int, shift, floor float32) float32",
		"expSum"+v.name+" sets dst[i] = exp(src[i] − shift), 0 where the difference is below floor, and returns their sum.")
	dst, src = arrayOf("dst", 4), arrayOf("src", 4)
	shift, floor := v.broadcast(parameter("shift")), v.broadcast(parameter("floor"))
	aboveFloor := func(x []reg.VecVirtual) { v.expAbove(x, floor) }
	sums := v.zeros(unroll)
	walk([]array{dst, src}, func(u int, m *mask) reg.VecVirtual {
		x := v.loadVector(v.element(src, u), m)
		VSUBPS(shift, x, x)
		return x
	}, aboveFloor, func(u int, m *mask, x reg.VecVirtual) {
		v.storeLanes(x, m, v.element(dst, u))
		if m != nil {
			v.fillLanes(x, *m, constant(0))
		}
		VADDPS(x, sums[u], sums[u])
	})
	returnFloat(v.reduceLanes(addUp(sums), plus))
	endFunction()

	function("addExpSub"+v.name, "func(dst, src, shift *float32, n int, floor float32)",
		"addExpSub"+v.name+" sets dst[i] += exp(src[i] − shift[i]), 0 where the difference is below floor.")
	dst, src = arrayOf("dst", 4), arrayOf("src", 4)
	shifts := arrayOf("shift", 4)
	floor = v.broadcast(parameter("floor"))
	walk([]array{dst, src, shifts}, func(u int, m *mask) reg.VecVirtual {
		x := v.loadVector(v.element(src, u), m)
		VSUBPS(v.loadVector(v.element(shifts, u), m), x, x)
		return x
	}, aboveFloor, func(u int, m *mask, x reg.VecVirtual) {
		VADDPS(v.loadVector(v.element(dst, u), m), x, x)
		v.storeLanes(x, m, v.element(dst, u))
	})
	endFunction()

	function("siluMul"+v.name, "func(dst, gate, up *float32, n int)",
		"siluMul"+v.name+" sets dst[i] = gate[i]·sigmoid(gate[i])·up[i].")
	dst, gate, up := arrayOf("dst", 4), arrayOf("gate", 4), arrayOf("up", 4)
	walk([]array{dst, gate, up}, func(u int, m *mask) reg.VecVirtual {
		g, x := v.loadVector(v.element(gate, u), m), v.zeros(1)[0]
		VSUBPS(g, x, x)
		return x
	}, v.emitExp, func(u int, m *mask, x reg.VecVirtual) {
		VADDPS(constant(1), x, x)
		g := v.loadVector(v.element(gate, u), m)
		VDIVPS(x, g, x)
		VMULPS(v.loadVector(v.element(up, u), m), x, x)
		v.storeLanes(x, m, v.element(dst, u))
	})
	endFunction()
}

// logarithm is ln x = e·ln 2 + ln m with ½√2 ≤ m < √2 and the polynomial of Cephes
// (Moshier, logf.c).
func logarithm(v isa) {
	const ln2Upper, ln2Lower = 0.693359375, -2.12194440e-4
	function("log"+v.name, "func(dst, src *float32, n int)", "log"+v.name+" sets dst[i] = ln src[i].")
	dst, src := arrayOf("dst", 4), arrayOf("src", 4)
	v.walk(1, []array{dst, src}, func(_ int, m *mask) {
		x := v.loadVector(v.element(src, 0), m)
		fraction, e := v.vec(), v.vec()
		if v.wide() {
			const oneToTwo = 0
			VGETMANTPS(Imm(oneToTwo), x, fraction)
			VGETEXPPS(x, e)
		} else {
			// Subnormal numbers are made normal first.
			scaled, bias := v.vec(), v.vec()
			VMULPS(constant(1<<23), x, scaled)
			VMOVAPS(x, fraction)
			v.chooseLanes(compareLess, x, constant(0x1p-126), scaled, fraction)
			VMOVUPS(constant(127), bias)
			v.chooseLanes(compareLess, x, constant(0x1p-126), constant(127+23), bias)
			VPSRLD(Imm(23), fraction, e)
			VCVTDQ2PS(e, e)
			VSUBPS(bias, e, e)
			VPAND(integer(0x007fffff), fraction, fraction)
			VPOR(constant(1), fraction, fraction)
		}
		half, next := v.vec(), v.vec()
		VMULPS(constant(0.5), fraction, half)
		VADDPS(constant(1), e, next)
		original := v.vec()
		VMOVAPS(fraction, original)
		v.chooseLanes(compareGreater, original, constant(math.Sqrt2), next, e)
		v.chooseLanes(compareGreater, original, constant(math.Sqrt2), half, fraction)
		f := fraction
		VSUBPS(constant(1), f, f)

		square, p := v.vec(), v.vec()
		VMULPS(f, f, square)
		VMOVUPS(constant(7.0376836292e-2), p)
		for _, c := range []float32{-1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
			-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1} {
			VFMADD213PS(constant(c), f, p)
		}
		VMULPS(f, p, p)
		VMULPS(square, p, p)
		VFMADD231PS(constant(ln2Lower), e, p)
		VFNMADD231PS(constant(0.5), square, p)
		VADDPS(f, p, p)
		VFMADD231PS(constant(ln2Upper), e, p)

		infinity := float32(math.Inf(1))
		v.chooseLanes(compareEqual, x, constant(infinity), constant(infinity), p)
		v.chooseLanes(compareNotAtOrAbove, x, constant(0), constant(float32(math.NaN())), p)
		v.chooseLanes(compareEqual, x, constant(0), constant(-infinity), p)
		v.storeLanes(p, m, v.element(dst, 0))
	})
	endFunction()
}
