package main

import "math"

// The vectors of an unrolled loop, and the general registers of the arrays.
const (
	unroll    = 4
	unrollExp = 2 // an exponential needs six registers
	count     = 0 // elements left
	array     = 1 // the first array's pointer, then the second's
)

// walk runs body over all elements: for vectors registers of four lanes at a time,
// for one register, and for single elements in lane 0.
func (s *assembly) walk(vectors int, body func(vectors, lanes int)) {
	for _, step := range []struct{ vectors, lanes int }{{vectors, 4}, {1, 4}, {1, 1}} {
		n := step.vectors * step.lanes
		s.repeatSteps("loop", n, count, func() {
			body(step.vectors, step.lanes)
			for i := range s.arrays {
				s.do("ADD $%d, R%d", 4*n, array+i)
			}
		})
		s.do("ADD $%d, R%d", n, count)
	}
}

// pointers loads the arrays' pointers, and n.
func (s *assembly) pointers() {
	s.params(array, s.arrays...)
	s.param("n", count)
}

// readArray and putArray move register u of a step from and to an array.
func (s *assembly) readArray(v, from, u, lanes int) { s.loadRegister(4*lanes, v, array+from, 16*u) }
func (s *assembly) putArray(v, from, u, lanes int)  { s.storeRegister(4*lanes, v, array+from, 16*u) }

func (s *assembly) returnFloat(v int) {
	s.do("FMOVS F%d, ret+%d(FP)", v, s.offsets["ret"])
	s.ret()
}

func vector(s *assembly) {
	reductions(s)
	maps(s)
	exponentials(s)
	conversions(s)
}

// addUp returns the sum of registers first … first+n-1 and of lane 0 of the register
// that follows them, in lane 0 of first.
func (s *assembly) addUp(first, n int) {
	for step := n / 2; step > 0; step /= 2 {
		for i := range step {
			s.op3("fadd", first+i, first+i, first+i+step)
		}
	}
	s.op3("faddp", first, first, first)
	s.op2("faddp.s", first, first)
	s.op3("fadd.s", first, first, first+n)
}

func reductions(s *assembly) {
	const sums, x, y = 0, 8, 16
	for _, f := range []struct {
		doc    string
		arrays []string
		add    func(u, sum int)
	}{
		{"dotNEON returns Σ x[i]·y[i].", []string{"x", "y"}, func(u, sum int) { s.op3("fmla", sum, x+u, y+u) }},
		{"sumNEON returns Σ x[i].", []string{"x"}, func(u, sum int) { s.op3("fadd", sum, sum, x+u) }},
	} {
		s.function(f.doc, append(f.arrays, "n int", "ret")...)
		s.pointers()
		for i := range unroll + 1 { // single elements have their own
			s.zero(sums + i)
		}
		s.walk(unroll, func(vectors, lanes int) {
			for u := range vectors {
				for i, r := range []int{x, y}[:len(f.arrays)] {
					s.readArray(r+u, i, u, lanes)
				}
				sum := sums + u
				if lanes == 1 {
					sum = sums + unroll
				}
				f.add(u, sum)
			}
		})
		s.addUp(sums, unroll)
		s.returnFloat(sums)
	}

	s.function("maxNEON returns the largest element, or NaN if there is one.", "x", "n int", "ret")
	s.pointers()
	for i := range unroll {
		s.constant(sums+i, math.Float32bits(float32(math.Inf(-1))))
	}
	s.walk(unroll, func(vectors, lanes int) {
		for u := range vectors {
			if lanes == 1 {
				s.loadAll(x, array)
			} else {
				s.readArray(x+u, 0, u, lanes)
			}
			s.op3("fmax", sums+u, sums+u, x+u)
		}
	})
	for i := 1; i < unroll; i++ {
		s.op3("fmax", sums, sums, sums+i)
	}
	s.op2("fmaxv", sums, sums)
	s.returnFloat(sums)
}

func maps(s *assembly) {
	const a, x, y = 0, 8, 16
	for _, f := range []struct {
		doc     string
		params  []string
		op      string
		d, n, m int   // its registers
		reads   []int // the arrays that x and y are from
		put     int   // and that the result goes to
	}{
		{"maxIntoNEON sets dst[i] = max(dst[i], src[i]).", []string{"dst", "src"}, "fmax", x, x, y, []int{0, 1}, 0},
		{"axpyNEON sets y[i] += a·x[i].", []string{"a float32", "x", "y"}, "fmla", y, x, a, []int{0, 1}, 1},
		{"scaleNEON sets x[i] *= a.", []string{"a float32", "x"}, "fmul", x, x, a, []int{0}, 0},
		{"addScalarNEON sets x[i] += a.", []string{"a float32", "x"}, "fadd", x, x, a, []int{0}, 0},
		{"addNEON sets dst[i] = x[i] + y[i].", []string{"dst", "x", "y"}, "fadd", x, x, y, []int{1, 2}, 0},
		{"mulNEON sets dst[i] = x[i] · y[i].", []string{"dst", "x", "y"}, "fmul", x, x, y, []int{1, 2}, 0},
	} {
		s.function(f.doc, append(f.params, "n int")...)
		if f.m == a {
			s.floatParam("a", a)
		}
		s.pointers()
		s.walk(unroll, func(vectors, lanes int) {
			for u := range vectors {
				for i, from := range f.reads {
					s.readArray([]int{x, y}[i]+u, from, u, lanes)
				}
				m := a
				if f.m != a {
					m = f.m + u
				}
				s.op3(f.op, f.d+u, f.n+u, m)
				s.putArray(f.d+u, f.put, u, lanes)
			}
		})
		s.ret()
	}
}

// Registers of the exponential: constants from 0 on, then working registers from
// work on; walk's register u uses work+u, work+u+unrollExp and so on.
const (
	highest = iota
	lowest
	log2e
	ln2Upper
	ln2Lower
	c2
	c3
	c4
	c5
	c6
	c7
	one
	bias
	shift  // a function's own
	sumExp // … 16: sums of two vectors and of single elements
	work   = 17
)

// expConstants loads what exp needs. Below lowest the result is 0 anyway; functions
// with a floor replace it.
func (s *assembly) expConstants() {
	// In order, so that the file is the same every time. The upper part of ln 2 has few
	// bits, so that its product with an integer is exact.
	for i, value := range []float32{89, -105, math.Log2E, 0.693359375, -2.12194440e-4,
		5.0000001201e-1, 1.6666665459e-1, 4.1665795894e-2, 8.3334519073e-3, 1.3981999507e-3, 1.9875691500e-4, 1} {
		s.constant(i, math.Float32bits(value))
	}
	s.constant(bias, 127)
}

// emitExp replaces x = v[u] for u < vectors by eˣ, 0 below lowest if that is a
// floor: x = n·ln 2 + r with |r| ≤ ½ ln 2, then eʳ by the polynomial of Cephes
// (Moshier, expf.c), then a scaling by 2ⁿ in two exact steps; the second
// rounds subnormal results.
func (s *assembly) emitExp(vectors int, floor bool) {
	register := func(i int) func(u int) int { return func(u int) int { return work + i*unrollExp + u } }
	x, n, square, p, t, below := register(0), register(1), register(2), register(3), register(4), register(5)
	each := func(emit func(u int)) {
		for u := range vectors {
			emit(u)
		}
	}
	op3 := func(name string, d, a, b func(int) int) {
		each(func(u int) { s.op3(name, d(u), a(u), b(u)) })
	}
	is := func(register int) func(int) int { return func(int) int { return register } }
	move := func(d, n func(int) int) { each(func(u int) { s.move(d(u), n(u)) }) }
	if floor {
		op3("fcmgt", below, is(lowest), x)
	}
	op3("fmax", x, x, is(lowest)) // NaN stays NaN
	op3("fmin", x, x, is(highest))
	op3("fmul", n, x, is(log2e))
	each(func(u int) { s.op2("frintn", n(u), n(u)) })
	op3("fmls", x, n, is(ln2Upper))
	op3("fmls", x, n, is(ln2Lower))
	op3("fmul", square, x, x)
	// 1 + (r + r²·(c₂ + c₃r + r²·(c₄ + c₅r + r²·(c₆ + c₇r))))
	move(p, is(c6))
	op3("fmla", p, x, is(c7))
	move(t, is(c4))
	op3("fmla", t, x, is(c5))
	op3("fmla", t, square, p)
	move(p, is(c2))
	op3("fmla", p, x, is(c3))
	op3("fmla", p, square, t)
	op3("fmla", x, square, p)
	op3("fadd", x, x, is(one))
	each(func(u int) { s.op2("fcvtns", n(u), n(u)) })
	each(func(u int) { s.shiftRight(t(u), n(u), 1) })
	op3("sub", n, n, t)
	for _, power := range []func(int) int{t, n} {
		op3("add", power, power, is(bias))
		each(func(u int) { s.shiftLeft(power(u), power(u), 23) })
		op3("fmul", x, x, power)
	}
	if floor {
		op3("bic", x, x, below)
	}
}

func exponentials(s *assembly) {
	start := func(doc string, params ...string) {
		s.function(doc, params...)
		s.pointers()
		s.expConstants()
	}
	// Reads the second array, from which before makes the exponents; after has their powers.
	walk := func(floor bool, before, after func(u, lanes int)) {
		s.walk(unrollExp, func(vectors, lanes int) {
			for u := range vectors {
				s.readArray(work+u, 1, u, lanes)
				before(u, lanes)
			}
			s.emitExp(vectors, floor)
			for u := range vectors {
				after(u, lanes)
			}
		})
	}
	start("expNEON sets dst[i] = exp(src[i]).", "dst", "src", "n int")
	walk(false, func(u, lanes int) {}, func(u, lanes int) { s.putArray(work+u, 0, u, lanes) })
	s.ret()

	start("expSumNEON sets dst[i] = exp(src[i] − shift), 0 where the difference is below floor, and returns their sum.",
		"dst", "src", "n int", "shift float32", "floor float32", "ret")
	s.floatParam("shift", shift)
	s.floatParam("floor", lowest)
	for i := range unrollExp + 1 {
		s.zero(sumExp + i)
	}
	walk(true, func(u, lanes int) { s.op3("fsub", work+u, work+u, shift) }, func(u, lanes int) {
		s.putArray(work+u, 0, u, lanes)
		sum := sumExp + u
		if lanes == 1 {
			sum = sumExp + unrollExp
		}
		s.op3("fadd", sum, sum, work+u)
	})
	s.addUp(sumExp, unrollExp)
	s.returnFloat(sumExp)

	start("addExpSubNEON sets dst[i] += exp(src[i] − shift[i]), 0 where the difference is below floor.",
		"dst", "src", "shift", "n int", "floor float32")
	s.floatParam("floor", lowest)
	walk(true, func(u, lanes int) {
		s.readArray(sumExp+u, 2, u, lanes)
		s.op3("fsub", work+u, work+u, sumExp+u)
	}, func(u, lanes int) {
		s.readArray(sumExp+u, 0, u, lanes)
		s.op3("fadd", work+u, work+u, sumExp+u)
		s.putArray(work+u, 0, u, lanes)
	})
	s.ret()

	start("siluMulNEON sets dst[i] = gate[i]·sigmoid(gate[i])·up[i].", "dst", "gate", "up", "n int")
	walk(false, func(u, lanes int) { s.op2("fneg", work+u, work+u) }, func(u, lanes int) {
		s.op3("fadd", work+u, work+u, one)
		s.readArray(sumExp+u, 1, u, lanes)
		s.op3("fdiv", work+u, sumExp+u, work+u)
		s.readArray(sumExp+u, 2, u, lanes)
		s.op3("fmul", work+u, work+u, sumExp+u)
		s.putArray(work+u, 0, u, lanes)
	})
	s.ret()
}

// conversions handle whole vectors of 8.
func conversions(s *assembly) {
	const dst, src, n = 1, 2, 0
	const x, y, t, mask, nan = 0, 1, 2, 4, 6
	const leastHalf, lastBit, quiet = 16, 17, 18
	loop := func(doc, d, sr string, sizeDst, sizeSrc int, setup, body func()) {
		s.function(doc, "dst *"+d, "src *"+sr, "n int")
		s.params(dst, "dst", "src")
		s.param("n", n)
		setup()
		s.repeatSteps("loop", 8, n, func() {
			body()
			s.do("ADD $%d, R%d", 8*sizeSrc, src)
			s.do("ADD $%d, R%d", 8*sizeDst, dst)
		})
		s.ret()
	}
	for _, v := range storages[1:] {
		loop("widen"+v.name+"NEON converts 8·(n/8) elements of "+v.name+" to float32.", "float32", "uint16", 4, 2,
			func() {}, func() {
				s.widenElements(v, 8, x, y, src)
				s.storeRegister(16, x, dst, 0)
				s.storeRegister(16, y, dst, 16)
			})
	}
	loop("narrowF16NEON rounds 8·(n/8) elements of float32 to F16.", "uint16", "float32", 2, 4,
		func() {}, func() {
			s.loadRegister(16, x, src, 0)
			s.loadRegister(16, y, src, 16)
			s.op2("fcvtn", t, x)
			s.op2("fcvtn.2", t, y)
			s.storeRegister(16, t, dst, 0)
		})
	loop("narrowBF16NEON rounds 8·(n/8) elements of float32 to BF16.", "uint16", "float32", 2, 4,
		func() {
			s.constant(leastHalf, 0x7fff)
			s.constant(lastBit, 1)
			s.constant(quiet, 0x400000)
		}, func() {
			for h := range 2 {
				s.loadRegister(16, x+h, src, 16*h)
				s.op3("fcmeq", mask+h, x+h, x+h)
				s.op3("orr", nan+h, x+h, quiet)
				s.shiftRightUnsigned(t+h, x+h, 16)
				s.op3("and", t+h, t+h, lastBit)
				s.op3("add", x+h, x+h, t+h)
				s.op3("add", x+h, x+h, leastHalf)
				s.op3("bit", nan+h, x+h, mask+h)
			}
			s.op2("shrn16", t, nan)
			s.op2("shrn16.2", t, nan+1)
			s.storeRegister(16, t, dst, 0)
		})
}
