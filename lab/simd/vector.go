//go:build avo

package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func vector(v isa) {
	reductions(v)
	arithmetic(v)
	exponentials(v)
	logarithm(v)
	conversions(v)
}

// array is a slice that a kernel walks along.
type array struct {
	at   reg.GPVirtual
	size int // bytes of an element
}

func arrayOf(name string, size int) array { return array{pointer(name), size} }

// element is the memory of the u-th vector from the current position.
func (v isa) element(a array, u int) Mem { return Mem{Base: a.at, Disp: u * v.lanes * a.size} }

// walk emits the loops over n elements of some arrays: body is emitted for unroll
// vectors at once, for one, and for the masked rest. In the masked one, m is set and
// u is 0. The kernels of AVX2 with 16-bit arrays handle whole vectors only; their
// callers do the rest.
func (v isa) walk(unroll int, arrays []array, body func(vectors int, m *mask)) {
	n := pointer("n")
	masked := true
	for _, a := range arrays {
		masked = masked && (v.wide() || a.size == 4)
	}
	advance := func(vectors int) {
		for _, a := range arrays {
			ADDQ(I32(vectors*v.lanes*a.size), a.at)
		}
	}
	if unroll > 1 {
		Label("unrolled")
		SUBQ(I32(unroll*v.lanes), n)
		JLT(LabelRef("single"))
		body(unroll, nil)
		advance(unroll)
		JMP(LabelRef("unrolled"))
		Label("single")
		ADDQ(I32(unroll*v.lanes), n)
	}
	Label("vector")
	SUBQ(I32(v.lanes), n)
	JLT(LabelRef("tail"))
	body(1, nil)
	advance(1)
	JMP(LabelRef("vector"))
	Label("tail")
	if masked {
		ADDQ(I32(v.lanes), n)
		JZ(LabelRef("done"))
		body(1, &v.masks(n, 1)[0])
		Label("done")
	}
}

// loadVector loads a vector of float32, the masked lanes if m is set.
func (v isa) loadVector(from Mem, m *mask) reg.VecVirtual {
	r := v.vec()
	v.loadLanes(from, m, r)
	return r
}

// reduceLanes combines the lanes of r; the result is in lane 0.
func (v isa) reduceLanes(r reg.VecVirtual, combine func(a, b, to reg.Register)) reg.VecVirtual {
	if v.wide() {
		upper := YMM()
		VEXTRACTF64X4(Imm(1), r, upper)
		combine(upper, r.AsY(), r.AsY())
	}
	x, upper := r.AsX(), XMM()
	VEXTRACTF128(Imm(1), r.AsY(), upper)
	combine(upper, x, x)
	VPERMILPS(Imm(0x4e), x, upper)
	combine(upper, x, x)
	VPERMILPS(Imm(0xb1), x, upper)
	combine(upper, x, x)
	return r
}

func plus(a, b, to reg.Register) { VADDPS(a, b, to) }

// returnFloat stores lane 0 as the result.
func returnFloat(r reg.VecVirtual) {
	c, err := ReturnIndex(0).Resolve()
	if err != nil {
		panic(err)
	}
	VMOVSS(r.AsX(), c.Addr)
}

// addUp returns the sum of several registers, in pairs.
func addUp(r []reg.VecVirtual) reg.VecVirtual {
	for step := 1; step < len(r); step *= 2 {
		for i := 0; i+step < len(r); i += 2 * step {
			VADDPS(r[i+step], r[i], r[i])
		}
	}
	return r[0]
}

func reductions(v isa) {
	const unroll = 4
	function("dot"+v.name, "func(x, y *float32, n int) float32", "dot"+v.name+" returns Σ x[i]·y[i].")
	x, y := arrayOf("x", 4), arrayOf("y", 4)
	sums := v.zeros(unroll)
	v.walk(unroll, []array{x, y}, func(vectors int, m *mask) {
		for u := range vectors {
			VFMADD231PS(v.loadVector(v.element(x, u), m), v.loadVector(v.element(y, u), m), sums[u])
		}
	})
	returnFloat(v.reduceLanes(addUp(sums), plus))
	endFunction()

	function("sum"+v.name, "func(x *float32, n int) float32", "sum"+v.name+" returns Σ x[i].")
	x = arrayOf("x", 4)
	sums = v.zeros(unroll)
	v.walk(unroll, []array{x}, func(vectors int, m *mask) {
		for u := range vectors {
			VADDPS(v.loadVector(v.element(x, u), m), sums[u], sums[u])
		}
	})
	returnFloat(v.reduceLanes(addUp(sums), plus))
	endFunction()

	function("max"+v.name, "func(x *float32, n int) float32", "max"+v.name+" returns the largest element, or NaN if there is one.")
	x = arrayOf("x", 4)
	// VMAXPS returns its first operand (in this order) if one is NaN. So a NaN in x
	// gets into the result, but the next element drives it out again: the sum of
	// differences x − x would find infinities too, so comparisons are collected.
	largest, odd := v.vecs(unroll), v.zeros(unroll)
	for _, r := range largest {
		VMOVUPS(constant(float32(math.Inf(-1))), r)
	}
	v.walk(unroll, []array{x}, func(vectors int, m *mask) {
		for u := range vectors {
			r := v.loadVector(v.element(x, u), m)
			if m != nil { // the lanes that were not read must not count
				v.fillLanes(r, *m, constant(float32(math.Inf(-1))))
			}
			VMAXPS(r, largest[u], largest[u])
			v.collectNaN(r, odd[u])
		}
	})
	for u := 1; u < unroll; u++ {
		VMAXPS(largest[u], largest[0], largest[0])
		VORPS(odd[u], odd[0], odd[0])
	}
	result := v.reduceLanes(largest[0], func(a, b, to reg.Register) { VMAXPS(a, b, to) })
	nan := v.reduceLanes(odd[0], func(a, b, to reg.Register) { VORPS(a, b, to) })
	VORPS(nan.AsX(), result.AsX(), result.AsX()) // all ones is a NaN
	returnFloat(result)
	endFunction()

	function("maxInto"+v.name, "func(dst, src *float32, n int)", "maxInto"+v.name+" sets dst[i] = max(dst[i], src[i]).")
	dst, src := arrayOf("dst", 4), arrayOf("src", 4)
	v.walk(unroll, []array{dst, src}, func(vectors int, m *mask) {
		for u := range vectors {
			d, s, r := v.loadVector(v.element(dst, u), m), v.loadVector(v.element(src, u), m), v.vec()
			VMAXPS(s, d, r) // s, if either is NaN
			odd := v.zeros(1)[0]
			v.collectNaN(d, odd)
			VORPS(odd, r, r)
			v.storeLanes(r, m, v.element(dst, u))
		}
	})
	endFunction()
}

// fillLanes replaces the lanes outside of the mask.
func (v isa) fillLanes(r reg.VecVirtual, m mask, with Mem) {
	if v.wide() {
		other := K()
		KNOTW(m.k, other)
		VMOVUPS(with, other, r)
		return
	}
	t := v.vec()
	VMOVUPS(with, t)
	VBLENDVPS(m.y, r, t, r)
}

// collectNaN sets the lanes of to in which r is NaN to ones.
func (v isa) collectNaN(r, to reg.VecVirtual) {
	const unordered = 3
	if v.wide() {
		k := K()
		VCMPPS(Imm(unordered), r, r, k)
		VPTERNLOGD(Imm(0xff), to, to, k, to)
		return
	}
	t := v.vec()
	VCMPPS(Imm(unordered), r, r, t)
	VORPS(t, to, to)
}

func arithmetic(v isa) {
	const unroll = 4
	function("axpy"+v.name, "func(a float32, x, y *float32, n int)", "axpy"+v.name+" sets y[i] += a·x[i].")
	a := v.broadcast(parameter("a"))
	x, y := arrayOf("x", 4), arrayOf("y", 4)
	v.walk(unroll, []array{x, y}, func(vectors int, m *mask) {
		for u := range vectors {
			r := v.loadVector(v.element(y, u), m)
			VFMADD231PS(v.loadVector(v.element(x, u), m), a, r)
			v.storeLanes(r, m, v.element(y, u))
		}
	})
	endFunction()

	type operation struct {
		name, sign string
		emit       func(ops ...Op)
	}
	for _, op := range []operation{{"scale", "*=", VMULPS}, {"addScalar", "+=", VADDPS}} {
		function(op.name+v.name, "func(a float32, x *float32, n int)", fmt.Sprintf("%s sets x[i] %s a.", op.name+v.name, op.sign))
		a, x := v.broadcast(parameter("a")), arrayOf("x", 4)
		v.walk(unroll, []array{x}, func(vectors int, m *mask) {
			for u := range vectors {
				r := v.loadVector(v.element(x, u), m)
				op.emit(a, r, r)
				v.storeLanes(r, m, v.element(x, u))
			}
		})
		endFunction()
	}
	for _, op := range []operation{{"add", "+", VADDPS}, {"mul", "·", VMULPS}} {
		function(op.name+v.name, "func(dst, x, y *float32, n int)",
			fmt.Sprintf("%s sets dst[i] = x[i] %s y[i].", op.name+v.name, op.sign))
		dst, x, y := arrayOf("dst", 4), arrayOf("x", 4), arrayOf("y", 4)
		v.walk(unroll, []array{dst, x, y}, func(vectors int, m *mask) {
			for u := range vectors {
				r := v.loadVector(v.element(x, u), m)
				op.emit(v.loadVector(v.element(y, u), m), r, r)
				v.storeLanes(r, m, v.element(dst, u))
			}
		})
		endFunction()
	}
}

func conversions(v isa) {
	for _, s := range []storage{bf16, f16} {
		function("widen"+s.name+v.name, "func(dst *float32, src *uint16, n int)",
			fmt.Sprintf("widen%s%s converts %s to float32.", s.name, v.name, s.name))
		dst, src := arrayOf("dst", 4), arrayOf("src", 2)
		v.walk(2, []array{dst, src}, func(vectors int, m *mask) {
			for u := range vectors {
				r := v.vec()
				v.loadWide(s, v.element(src, u), m, r)
				v.storeLanes(r, m, v.element(dst, u))
			}
		})
		endFunction()

		function("narrow"+s.name+v.name, "func(dst *uint16, src *float32, n int)",
			fmt.Sprintf("narrow%s%s rounds float32 to %s.", s.name, v.name, s.name))
		dst, src = arrayOf("dst", 2), arrayOf("src", 4)
		v.walk(2, []array{dst, src}, func(vectors int, m *mask) {
			for u := range vectors {
				to := v.element(dst, u)
				x := v.loadVector(v.element(src, u), m)
				if s == f16 {
					const nearestEven = 0
					if m == nil {
						VCVTPS2PH(Imm(nearestEven), x, to)
					} else {
						VCVTPS2PH(Imm(nearestEven), x, m.k, to)
					}
					continue
				}
				v.roundBF16(x)
				switch {
				case m != nil:
					VPMOVDW(x, m.k, to)
				case v.wide():
					VPMOVDW(x, to)
				default: // pack within 128 bits, then join the lower halves of both
					VPACKUSDW(x, x, x)
					VPERMQ(Imm(0x08), x, x)
					VMOVUPS(x.AsX(), to)
				}
			}
		})
		endFunction()
	}
}

// roundBF16 replaces the bits of a float32 by the nearest bfloat16's.
func (v isa) roundBF16(x reg.VecVirtual) {
	rounded, odd := v.vec(), v.vec()
	and := func(m Op, x, to reg.VecVirtual) {
		if v.wide() {
			VPANDD(m, x, to)
		} else {
			VPAND(m, x, to)
		}
	}
	VPSRLD(Imm(16), x, odd)
	and(integer(1), odd, odd)
	VPADDD(integer(0x7fff), x, rounded)
	VPADDD(odd, rounded, rounded)
	quiet := v.vec()
	if v.wide() {
		VPORD(integer(0x400000), x, quiet)
	} else {
		VPOR(integer(0x400000), x, quiet)
	}
	v.chooseLanes(compareUnordered, x, x, quiet, rounded)
	VPSRLD(Imm(16), rounded, x)
}

// Predicates of VCMPPS.
const (
	compareEqual        = 0
	compareLess         = 1
	compareUnordered    = 3
	compareNotAtOrAbove = 9 // less or unordered
	compareGreater      = 14
)

// chooseLanes replaces the lanes of r in which x <predicate> y holds by other's.
func (v isa) chooseLanes(predicate uint64, x reg.VecVirtual, y, other Op, r reg.VecVirtual) {
	if v.wide() {
		k := K()
		VCMPPS(Imm(predicate), y, x, k)
		VMOVUPS(other, k, r)
		return
	}
	t := v.vec()
	VCMPPS(Imm(predicate), y, x, t)
	VBLENDVPS(t, other, r, r)
}
