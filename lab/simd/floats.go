//go:build avo

package main

import (
	"fmt"
	"math"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// floatFormat is a format of 32 floats of 8 bits (E4M3) behind a scale.
type floatFormat struct {
	name  string
	scale func(b Mem) (scale, minimum reg.VecVirtual)
	bytes int  // of the scale
	dots  bool // there is a product
}

var floatFormats = []floatFormat{{"MXFP8", scaleE8M0, 1, false}, {"E4M3_BF16", scaleBF16, 2, true}, {"E4M3_F32", scaleF32, 4, true}}

// decodeFloats makes half-precision numbers of floats of 8 bits, whose exponents have 8 less of a bias: subnormal ones
// are widened without delay, other than float32's.
func decodeFloats(f floatFormat) {
	decodes(f.name, 32, 32+f.bytes)
	dst, src, left := pointer("dst"), pointer("src"), pointer("blocks")
	sign, magnitude, nan := loaded(integer(0x80008000)), loaded(integer(0x3f803f80)), loaded(integer(0x7e007e00))
	bias := loaded(integer(0x43800000)) // 2⁸
	Label("block")
	PREFETCHT0(Mem{Base: src, Disp: 1024})
	scale, _ := f.scale(Mem{Base: src})
	for part := range 2 {
		x, m, n := YMM(), YMM(), YMM()
		VPMOVZXBW(Mem{Base: src, Disp: f.bytes + 16*part}, x)
		VPSLLW(Imm(7), x, m)
		VPAND(magnitude, m, m)
		VPCMPEQW(magnitude, m, n)
		VPAND(nan, n, n)
		VPOR(n, m, m)
		VPSLLW(Imm(8), x, x)
		VPAND(sign, x, x)
		VPOR(m, x, x)
		high := XMM()
		VEXTRACTI128(Imm(1), x, high)
		for i, words := range []reg.VecVirtual{x.AsX().(reg.VecVirtual), high} {
			r := YMM()
			VCVTPH2PS(words, r)
			VMULPS(bias, r, r)
			VMULPS(scale, r, r)
			VMOVUPS(r, Mem{Base: dst, Disp: 64*part + 32*i})
		}
	}
	ADDQ(I32(4*32), dst)
	ADDQ(I32(32+f.bytes), src)
	again(left, "block")
	endFunction()
}

// decodeE2M1 is the decode of MXFP4 with the sign of zeros, which bytes do not have.
func decodeE2M1() {
	decodes("E2M1_E8M0", 32, 17)
	local := AllocLocal(32)
	dst, src, left := pointer("dst"), pointer("src"), pointer("blocks")
	var doubled []uint32
	for _, x := range []float32{0, 1, 2, 3, 4, 6, 8, 12} {
		doubled = append(doubled, math.Float32bits(x))
	}
	magnitudes, sign := loaded(words("e2m1Magnitudes", doubled...)), loaded(integer(1<<31))
	Label("block")
	PREFETCHT0(Mem{Base: src, Disp: 1024})
	scale, _ := halfE8M0(Mem{Base: src})
	VMOVDQU(nibbles(Mem{Base: src, Disp: 1}), local)
	for part := range 4 {
		code, x := YMM(), YMM()
		VPMOVZXBD(local.Offset(8*part), code)
		VPERMPS(magnitudes, code, x) // by the lowest three bits
		VPSLLD(Imm(28), code, code)
		VPAND(sign, code, code)
		VPOR(code, x, x)
		VMULPS(scale, x, x)
		VMOVUPS(x, Mem{Base: dst, Disp: 32 * part})
	}
	ADDQ(I32(4*32), dst)
	ADDQ(I32(17), src)
	again(left, "block")
	endFunction()
}

// maxFloatRows are the rows of a that are multiplied at once.
const maxFloatRows = 4

// floatDots multiplies rows of a as they are by rows of blocks: floats within a block without their scale, then blocks.
// What decodeFloats does to each number is done to sums: 2⁸ multiplies that of a row, and NaN is looked for in the
// largest bytes. A result is the same whatever the number of rows.
func floatDots(f floatFormat, v isa) {
	name := "multiply" + f.name + v.name
	function(name, "func(m, n, blocks int, alpha float32, a *byte, lda int, b *byte, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, n] = alpha·a·bᵀ + beta·c for m in 1 … %d rows of float32 of a, lda bytes apart, and b [n, blocks] of %s.", name, maxFloatRows, f.name))
	m := pointer("m")
	for rows := maxFloatRows; rows > 0; rows-- {
		ifRows(rows, m, func() { v.floatRows(f, rows) })
	}
	endFunction()
}

// scaled adds r times the scale of the block to sum.
func (v isa) scaled(f floatFormat, b Mem, r reg.VecVirtual, scale *reg.VecVirtual, sum reg.VecVirtual) {
	switch {
	case *scale != nil:
	case !v.wide():
		*scale, _ = f.scale(b)
	case f.bytes == 4:
		VFMADD231PS_BCST(b, r, sum)
		return
	default: // bfloat16
		*scale = ZMM()
		VPBROADCASTW(b, *scale)
		VPSLLD(Imm(16), *scale, *scale)
	}
	VFMADD231PS(*scale, r, sum)
}

func (v isa) floatRows(f floatFormat, rows int) {
	label := fmt.Sprintf("m%d", rows)
	n, c, b, left, at := pointer("n"), pointer("c"), pointer("b"), GP64(), GP64()
	ldc := stride("ldc", 4)
	a := rowsOfA(rows)
	mask, sign := v.vec(), loaded(byteVector(128))
	if v.wide() {
		VPBROADCASTD(integer(0xbf80bf80), mask)
	} else {
		VMOVDQU(integer(0xbf80bf80), mask)
	}
	sums, largest := make([]reg.VecVirtual, rows), YMM()
	for i := range sums {
		sums[i] = v.vec()
	}

	Label(label + "row")
	for _, sum := range sums {
		VXORPS(sum, sum, sum)
	}
	VPXOR(largest, largest, largest)
	XORQ(at, at)
	MOVQ(parameter("blocks"), left)
	Label(label + "block")
	pastLevel2(label, func() { PREFETCHNTA(Mem{Base: b, Disp: 6144}) }, func() { PREFETCHT0(Mem{Base: b, Disp: 2048}) })
	codes, products := YMM(), make([]reg.VecVirtual, rows)
	VPOR(Mem{Base: b, Disp: f.bytes}, sign, codes)
	VPMAXUB(codes, largest, largest)
	for piece := range 16 / v.lanes { // vectors of words
		// The sign is copied into the upper byte, and all bits move to where half precision has them.
		x, high, wide := v.vec(), reg.VecVirtual(nil), [2]reg.VecVirtual{v.vec(), v.vec()}
		VPMOVSXBW(Mem{Base: b, Disp: f.bytes + 2*v.lanes*piece}, x)
		VPSLLW(Imm(7), x, x)
		if v.wide() {
			VPANDD(mask, x, x)
			high = YMM()
			VEXTRACTI64X4(Imm(1), x, high)
			VCVTPH2PS(x.AsY(), wide[0])
		} else {
			VPAND(mask, x, x)
			high = XMM()
			VEXTRACTI128(Imm(1), x, high)
			VCVTPH2PS(x.AsX(), wide[0])
		}
		VCVTPH2PS(high, wide[1])
		for half, w := range wide {
			for i := range rows {
				from := Mem{Base: a[i], Index: at, Scale: 1, Disp: 4 * v.lanes * (2*piece + half)}
				if products[i] == nil {
					products[i] = v.vec()
					VMULPS(from, w, products[i])
				} else {
					VFMADD231PS(from, w, products[i])
				}
			}
		}
	}
	var scale reg.VecVirtual
	for i := range rows {
		v.scaled(f, Mem{Base: b}, products[i], &scale, sums[i])
	}
	ADDQ(I32(32+f.bytes), b)
	ADDQ(I32(4*32), at)
	again(left, label+"block")

	nan, found := XMM(), GP32()
	VXORPS(nan, nan, nan)
	VPCMPEQB(byteVector(255), largest, largest)
	VPMOVMSKB(largest, found)
	TESTL(found, found)
	JZ(LabelRef(label + "numbers"))
	VMOVSS(integer(0x7fc00000), nan)
	Label(label + "numbers")
	to := copyOf(c)
	beta := betaBits()
	for i := range rows {
		r := YMM()
		if v.wide() {
			VEXTRACTF64X4(Imm(1), sums[i], r)
			VADDPS(sums[i].AsY(), r, r)
		} else {
			r = sums[i]
		}
		x, t := XMM(), XMM()
		VEXTRACTF128(Imm(1), r, t)
		VADDPS(r.AsX(), t, x)
		VPERMILPS(Imm(0x4e), x, t)
		VADDPS(t, x, x)
		VMOVSHDUP(x, t)
		VADDSS(t, x, x)
		VMULSS(constant(256), x, x)
		VADDSS(nan, x, x)
		storeSum(x, t, beta, to, fmt.Sprintf("%sstore%d", label, i))
		if i+1 < rows {
			ADDQ(ldc, to)
		}
	}
	ADDQ(Imm(4), c)
	again(n, label+"row")
}
