//go:build avo

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/attr"
	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// A quantised row of a is one record after another. That of 32 elements holds their
// bytes q and a scale s of float32, −offset·Σq as int32, s·Σq as float32 and padding; that
// of 256 the bytes, eight scales, the eight s·Σq and the s·Σq of the 16 halves. That of 32 for
// panels has s·Σq and −offset·Σq of the halves behind the sums of all 32.
const (
	smallRecord, smallScale, smallOffset, smallSum                  = 48, 32, 36, 40
	largeRecord, largeScales, largeSums, largeHalvesSums            = 384, 256, 288, 320
	panelRecord, panelScale, panelSum, panelHalvesSums, panelOffset = 64, 32, 36, 40, 48
)

// rowRecord is where a record has what follows its bytes; 0: it does not.
type rowRecord struct {
	name                     string
	groups, bytes            int // a group is 32 elements
	scales, sums, halvesSums int
	offset                   int
}

var rowRecords = []rowRecord{
	{"quantise32AVX2", 1, smallRecord, smallScale, smallSum, 0, smallOffset},
	{"quantise256AVX2", 8, largeRecord, largeScales, largeSums, largeHalvesSums, 0},
	{"quantisePanelAVX2", 1, panelRecord, panelScale, panelSum, panelHalvesSums, panelOffset},
}

// blockISA is what multiplies bytes: VPMADDUBSW of AVX2, or VPDPBUSD of AVX512_VNNI, with
// more registers.
type blockISA struct {
	name string
	vnni bool
	rows int // of a at once
}

var blockISAs = []blockISA{{"AVX2", false, 3}, {"AVX512VNNI", true, 4}}

// blockFormat emits what is particular to a format. A group is 32 elements.
type blockFormat struct {
	name         string
	elems, bytes int
	halves       bool // scales are of 16 elements
	half         bool // products are rounded to half precision where they are widened
	minima       bool // are added to weights
	// unpack returns the bytes of a group, offset above the numbers that are scaled, or
	// the numbers themselves if signed.
	unpack func(v blockISA, b Mem, group int, signed bool) reg.VecVirtual
	offset int
	// signedDots is set where bytes with an offset are too large for VPMADDUBSW.
	signedDots bool
	// scale is for blocks of 32: the scale in all lanes, the minimum in the first or nil.
	scale func(b Mem) (scale, minimum reg.VecVirtual)
	// zero is the zero point that makes the minimum: a signed byte, which is subtracted where blocks are widened.
	zero func(b Mem) Mem
	// scales is for blocks of 256.
	scales func(b Mem) blockScales
	// pair returns the bytes of groups 2·p and 2·p+1 of a block with halves, offset above the numbers, for VNNI.
	pair func(b *wideBlock, p int) reg.VecVirtual
}

// blockScales are the scales of a block of 256.
type blockScales struct {
	scales  []reg.VecVirtual // of the 8 groups, or 16 halves of groups
	minima  []reg.VecVirtual // as many, to be added, or none
	whole   reg.VecVirtual   // of halves: what all scales have in common, and
	factors reg.VecVirtual   // what they are multiples of it by, 16 signed bytes
}

func (f *blockFormat) large() bool { return f.elems == 256 }

// signed reports whether dot products take signed bytes.
func (f *blockFormat) signed(v blockISA) bool { return f.signedDots && !v.vnni }

func emitBlocks() {
	for _, r := range rowRecords {
		emitQuantise(r)
	}
	for _, f := range floatFormats {
		decodeFloats(f)
		if f.dots {
			floatDots(f, avx2)
			floatDots(f, avx512)
		}
	}
	decodeE2M1()
	for i := range blockFormats {
		f := &blockFormats[i]
		decodeBlocks(f)
		for _, v := range blockISAs {
			blockDots(f, v)
		}
		unpackBlocks(f)
	}
	emitRows()
	for _, v := range byteISAs {
		for _, kind := range bytePanels(v) {
			multiplyBytes(v, kind)
		}
	}
}

// byteVector is a vector whose bytes are all x.
func byteVector(x byte) Mem { return integer(uint32(x) * 0x01010101) }

// bytesOf is a constant of 32 bytes.
func bytesOf(name string, at func(i int) byte) Mem {
	w := make([]uint32, 8)
	for i := range 32 {
		w[i/4] |= uint32(at(i)) << (i % 4 * 8)
	}
	return words(name, w...)
}

// loaded is a constant in a register.
func loaded(m Mem) reg.VecVirtual {
	r := YMM()
	VMOVDQU(m, r)
	return r
}

// loadedBytes are the bytes of a block that several groups are unpacked of, by their place in it; nil: there are no
// registers for them.
var loadedBytes map[int]reg.VecVirtual

// shifted moves bits of bytes right, or left if by is negative, and leaves the bits of mask.
func shifted(from Mem, by int, mask byte) reg.VecVirtual {
	r := YMM()
	if loadedBytes != nil {
		x, ok := loadedBytes[from.Disp]
		if !ok {
			x = loaded(from)
			loadedBytes[from.Disp] = x
		}
		switch {
		case by > 0:
			VPSRLW(Imm(uint64(by)), x, r)
			x = r
		case by < 0:
			VPSLLW(Imm(uint64(-by)), x, r)
			x = r
		}
		VPAND(held(byteVector(mask)), x, r)
		return r
	}
	if c, ok := held(byteVector(mask)).(reg.VecVirtual); ok && by == 0 {
		VPAND(from, c, r)
		return r
	}
	VMOVDQU(from, r)
	switch {
	case by > 0:
		VPSRLW(Imm(uint64(by)), r, r)
	case by < 0:
		VPSLLW(Imm(uint64(-by)), r, r)
	}
	VPAND(held(byteVector(mask)), r, r)
	return r
}

// nibbles are the low halves of 16 bytes, then the high ones.
func nibbles(from Mem) reg.VecVirtual {
	r := YMM()
	VBROADCASTI128(from, r)
	VPSRLVQ(held(nibbleShifts()), r, r)
	VPAND(held(byteVector(15)), r, r)
	return r
}

func nibbleShifts() Mem { return words("nibbles", 0, 0, 0, 0, 4, 0, 4, 0) }

// heldConstants are constants that loops keep in registers.
var heldConstants = map[string]reg.VecVirtual{}

// held is a constant, in its register if it has one.
func held(m Mem) Op {
	if r, ok := heldConstants[m.Symbol.Name]; ok {
		return r
	}
	return m
}

// heldX is held, 16 bytes of it.
func heldX(m Mem) Op {
	if r, ok := heldConstants[m.Symbol.Name]; ok {
		return r.AsX()
	}
	return m
}

// table are values by 4 bits, with an offset unless they are signed.
func table(name string, values [16]int, signed bool, add int) Mem {
	if signed {
		add = 0
	}
	return bytesOf(fmt.Sprintf("%s%d", name, add), func(i int) byte { return byte(values[i%16] + add) })
}

// lookUp replaces 4 bits by values of a table.
func lookUp(table Mem, index reg.VecVirtual) reg.VecVirtual {
	values, ok := held(table).(reg.VecVirtual)
	if !ok {
		values = loaded(table)
	}
	VPSHUFB(index, values, index)
	return index
}

// withFifth adds a fifth bit to the bytes of x.
func withFifth(v blockISA, x reg.VecVirtual, bits Mem) reg.VecVirtual {
	if v.vnni {
		k := K()
		KMOVD(bits, k)
		VPADDB(held(byteVector(16)), x, k, x)
		return x
	}
	mask, r := bitOfByte(), YMM()
	VPBROADCASTD(bits, r)
	VPSHUFB(bytesOf("byteOfBit", func(i int) byte { return byte(i / 8) }), r, r)
	VPAND(held(mask), r, r)
	VPCMPEQB(held(mask), r, r)
	VPAND(held(byteVector(16)), r, r)
	VPOR(r, x, x)
	return x
}

func bitOfByte() Mem { return bytesOf("bitOfByte", func(i int) byte { return 1 << (i % 8) }) }

// halfScale widens one half-precision number.
func halfScale(from Mem) reg.VecVirtual {
	x, r := XMM(), YMM()
	VPBROADCASTW(from, x)
	VCVTPH2PS(x, r)
	return r
}

// scaleOnly widens a half-precision number at the start of a block, with others that come
// after it.
func scaleOnly(b Mem) (scale, minimum reg.VecVirtual) {
	x, d := XMM(), YMM()
	VCVTPH2PS(b, x)
	VBROADCASTSS(x, d)
	return d, nil
}

// scaleAndMinimum widens two half-precision numbers.
func scaleAndMinimum(b Mem) (scale, minimum reg.VecVirtual) {
	x, d := XMM(), YMM()
	VCVTPH2PS(b, x)
	VBROADCASTSS(x, d)
	VMOVSHDUP(x, x)
	return d, x
}

// withOffset is an unpack of bytes with an offset.
func withOffset(offset byte, unpack func(v blockISA, b Mem, group int) reg.VecVirtual) func(blockISA, Mem, int, bool) reg.VecVirtual {
	return func(v blockISA, b Mem, group int, signed bool) reg.VecVirtual {
		r := unpack(v, b, group)
		if signed && offset > 0 {
			VPSUBB(byteVector(offset), r, r)
		}
		return r
	}
}

var blockFormats = []blockFormat{
	{name: "Q4_0", elems: 32, bytes: 18, offset: 8, scale: scaleOnly,
		unpack: withOffset(8, func(_ blockISA, b Mem, _ int) reg.VecVirtual { return nibbles(b.Offset(2)) })},
	{name: "Q4_1", elems: 32, bytes: 20, minima: true, scale: scaleAndMinimum,
		unpack: withOffset(0, func(_ blockISA, b Mem, _ int) reg.VecVirtual { return nibbles(b.Offset(4)) })},
	{name: "Q5_0", elems: 32, bytes: 22, offset: 16, scale: scaleOnly,
		unpack: withOffset(16, func(v blockISA, b Mem, _ int) reg.VecVirtual {
			return withFifth(v, nibbles(b.Offset(6)), b.Offset(2))
		})},
	{name: "Q5_1", elems: 32, bytes: 24, minima: true, scale: scaleAndMinimum,
		unpack: withOffset(0, func(v blockISA, b Mem, _ int) reg.VecVirtual {
			return withFifth(v, nibbles(b.Offset(8)), b.Offset(4))
		})},
	{name: "Q8_0", elems: 32, bytes: 34, offset: 128, signedDots: true, scale: scaleOnly, unpack: plainBytes},
	{name: "IQ4_NL", elems: 32, bytes: 18, offset: 128, signedDots: true, scale: scaleOnly,
		unpack: func(_ blockISA, b Mem, _ int, signed bool) reg.VecVirtual {
			return lookUp(iq4(signed), nibbles(b.Offset(2)))
		}},
	{name: "MXFP4", elems: 32, bytes: 17, offset: 12, scale: halfE8M0,
		unpack: func(_ blockISA, b Mem, _ int, signed bool) reg.VecVirtual {
			return lookUp(e2m1(signed), nibbles(b.Offset(1)))
		}},
	{name: "I4_BF16", elems: 32, bytes: 19, offset: 16, scale: scaleBF16, unpack: withZero},
	{name: "I4_F16", elems: 32, bytes: 19, offset: 16, scale: scaleOnly, unpack: withZero, half: true},
	{name: "I8_BF16", elems: 32, bytes: 34, offset: 128, signedDots: true, scale: scaleBF16, unpack: plainBytes},
	{name: "I8_F16", elems: 32, bytes: 34, offset: 128, signedDots: true, scale: scaleOnly, unpack: plainBytes, half: true},
	{name: "I8Z_BF16", elems: 32, bytes: 35, offset: 128, signedDots: true, minima: true, scale: zeroed(scaleBF16), zero: afterScale, unpack: bytesAfterZero},
	{name: "I8Z_F16", elems: 32, bytes: 35, offset: 128, signedDots: true, minima: true, scale: zeroed(scaleOnly), zero: afterScale, unpack: bytesAfterZero, half: true},
	{name: "Q2_K", elems: 256, bytes: 84, halves: true, minima: true, scales: scalesQ2K,
		pair:   func(b *wideBlock, p int) reg.VecVirtual { return b.bits(b.twice(16+p/2*32), p%2*4, p%2*4+2, 3) },
		unpack: withOffset(0, func(_ blockISA, b Mem, g int) reg.VecVirtual { return shifted(b.Offset(16+g/4*32), g%4*2, 3) })},
	{name: "Q3_K", elems: 256, bytes: 110, halves: true, offset: 4, scales: scalesQ3K,
		pair: func(b *wideBlock, p int) reg.VecVirtual {
			return b.with(b.bits(b.twice(32+p/2*32), p%2*4, p%2*4+2, 3), b.twice(0), 2*p-2, 2*p-1, 4)
		},
		unpack: withOffset(4, func(_ blockISA, b Mem, g int) reg.VecVirtual {
			r := shifted(b.Offset(32+g/4*32), g%4*2, 3)
			VPOR(shifted(b, g-2, 4), r, r)
			return r
		})},
	{name: "Q4_K", elems: 256, bytes: 144, minima: true, scales: scalesQ4K,
		unpack: withOffset(0, func(_ blockISA, b Mem, g int) reg.VecVirtual { return shifted(b.Offset(16+g/2*32), g%2*4, 15) })},
	{name: "Q5_K", elems: 256, bytes: 176, minima: true, scales: scalesQ4K,
		unpack: withOffset(0, func(_ blockISA, b Mem, g int) reg.VecVirtual {
			r := shifted(b.Offset(48+g/2*32), g%2*4, 15)
			VPOR(shifted(b.Offset(16), g-4, 16), r, r)
			return r
		})},
	{name: "Q6_K", elems: 256, bytes: 210, halves: true, offset: 32, scales: scalesQ6K,
		pair: func(b *wideBlock, p int) reg.VecVirtual {
			n, by := p/2, p%2*4
			return b.with(b.bits(b.once(64*n), by, by, 15), b.twice(128+32*n), by-4, by-2, 0x30)
		},
		unpack: withOffset(32, func(_ blockISA, b Mem, g int) reg.VecVirtual {
			n, s := g/4, g%4
			r := shifted(b.Offset(64*n+s%2*32), s/2*4, 15)
			VPOR(shifted(b.Offset(128+32*n), 2*s-4, 0x30), r, r)
			return r
		})},
	{name: "IQ4_XS", elems: 256, bytes: 136, offset: 128, signedDots: true, scales: scalesIQ4XS,
		unpack: func(_ blockISA, b Mem, g int, signed bool) reg.VecVirtual {
			return lookUp(iq4(signed), nibbles(b.Offset(8+16*g)))
		}},
}

// wideBlock is a block of 256 that is unpacked two groups at a time. What they share is loaded once.
type wideBlock struct {
	from   Mem
	loaded map[int]reg.VecVirtual
	held   map[string]reg.Register // constants, in registers behind the sums'
}

// hold loads a constant into the next free register.
func (b *wideBlock) hold(m Mem, load func(...Op)) {
	r := upperZ[8+len(b.held)]
	load(m, r)
	b.held[m.Symbol.Name] = r
}

func (b *wideBlock) loadOnce(at int, load func(...Op)) reg.VecVirtual {
	r, ok := b.loaded[at]
	if !ok {
		r = ZMM()
		load(b.from.Offset(at), r)
		b.loaded[at] = r
	}
	return r
}

// once are 64 bytes, twice the same 32 in both halves.
func (b *wideBlock) once(at int) reg.VecVirtual  { return b.loadOnce(at, VMOVDQU64) }
func (b *wideBlock) twice(at int) reg.VecVirtual { return b.loadOnce(at, VBROADCASTI64X4) }

// constant is the register that hold has loaded.
func (b *wideBlock) constant(m Mem) reg.Register { return b.held[m.Symbol.Name] }

// shifted moves bits right, or left if negative: in the lower half by the first number, in the upper by the second.
func (b *wideBlock) shifted(from reg.VecVirtual, lower, upper int) reg.VecVirtual {
	if lower == 0 && upper == 0 {
		return from
	}
	r := ZMM()
	if lower == upper && lower > 0 {
		VPSRLQ(Imm(uint64(lower)), from, r)
		return r
	}
	name, shift := "right", VPSRLVQ
	if lower < 0 {
		name, shift, lower, upper = "left", VPSLLVQ, -lower, -upper
	}
	w := make([]uint32, 16)
	for i := range 4 {
		w[2*i], w[8+2*i] = uint32(lower), uint32(upper)
	}
	shift(words(fmt.Sprintf("%s%dAnd%d", name, lower, upper), w...), from, r)
	return r
}

// bits are the bits of mask in shifted bytes.
func (b *wideBlock) bits(from reg.VecVirtual, lower, upper int, mask byte) reg.VecVirtual {
	r := ZMM()
	VPANDD(b.constant(byteVector(mask)), b.shifted(from, lower, upper), r)
	return r
}

// with adds them to r.
func (b *wideBlock) with(r, from reg.VecVirtual, lower, upper int, mask byte) reg.VecVirtual {
	const either = 0xf8 // r | shifted & mask
	VPTERNLOGD(Imm(either), b.constant(byteVector(mask)), b.shifted(from, lower, upper), r)
	return r
}

// plainBytes is the unpack of signed bytes after a scale of two.
func plainBytes(_ blockISA, b Mem, _ int, signed bool) reg.VecVirtual {
	r := loaded(b.Offset(2))
	if !signed {
		VPXOR(held(byteVector(128)), r, r)
	}
	return r
}

// bytesAfterZero is plainBytes of those behind a zero point.
func bytesAfterZero(v blockISA, b Mem, group int, signed bool) reg.VecVirtual {
	return plainBytes(v, b.Offset(1), group, signed)
}

// afterScale is the zero point behind a scale of two.
func afterScale(b Mem) Mem { return b.Offset(2) }

// zeroed gives a scale the minimum that its zero point makes, a signed byte behind it.
func zeroed(of func(b Mem) (scale, minimum reg.VecVirtual)) func(b Mem) (scale, minimum reg.VecVirtual) {
	return func(b Mem) (scale, minimum reg.VecVirtual) {
		scale, _ = of(b)
		minimum = XMM()
		zero := GP32()
		MOVBLSX(afterScale(b), zero)
		NEGL(zero)
		VXORPS(minimum, minimum, minimum)
		VCVTSI2SSL(zero, minimum, minimum)
		VMULSS(scale.AsX(), minimum, minimum)
		return scale, minimum
	}
}

// withZero is the unpack of 4 bits above a zero point, a byte after a scale of two.
func withZero(_ blockISA, b Mem, _ int, signed bool) reg.VecVirtual {
	r, zero := nibbles(b.Offset(3)), YMM()
	VPBROADCASTB(b.Offset(2), zero)
	VPSUBB(zero, r, r)
	if !signed {
		VPADDB(held(byteVector(16)), r, r)
	}
	return r
}

// scaleBF16 widens a number of bfloat16.
func scaleBF16(b Mem) (scale, minimum reg.VecVirtual) {
	r := YMM()
	VPBROADCASTW(b, r)
	VPSLLD(Imm(16), r, r)
	return r, nil
}

func scaleF32(b Mem) (scale, minimum reg.VecVirtual) {
	r := YMM()
	VBROADCASTSS(b, r)
	return r, nil
}

// scaleE8M0 is 2^(e-127) for a byte e, NaN of 255.
func scaleE8M0(b Mem) (scale, minimum reg.VecVirtual) {
	e, bits, other := GP32(), GP32(), GP32()
	MOVBLZX(b, e)
	MOVL(e, bits)
	SHLL(Imm(23), bits)
	MOVL(U32(0x00400000), other) // 2⁻¹²⁷
	TESTL(e, e)
	CMOVLEQ(other, bits)
	MOVL(U32(0x7fc00000), other)
	CMPL(e, U32(255))
	CMOVLEQ(other, bits)
	return broadcast(bits), nil
}

// broadcast is a float32 in all lanes.
func broadcast(bits reg.GPVirtual) reg.VecVirtual {
	r := YMM()
	VMOVD(bits, r.AsX())
	VBROADCASTSS(r.AsX(), r)
	return r
}

// iq4 and e2m1 are the tables of 4 bits.
func iq4(signed bool) Mem {
	values := [16]int{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}
	return table("iq4", values, signed, 128)
}

func e2m1(signed bool) Mem {
	values := [16]int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	return table("e2m1", values, signed, 12)
}

// halfE8M0 is half of 2^(e-127), for a byte e.
func halfE8M0(b Mem) (scale, minimum reg.VecVirtual) {
	e, subnormal := GP32(), GP32()
	MOVBLZX(b, e)
	LEAL(Mem{Base: e.As64(), Disp: 1}, subnormal)
	SHLL(Imm(21), subnormal) // of e = 0 and 1
	DECL(e)
	SHLL(Imm(23), e)
	CMPB(b, Imm(2))
	CMOVLCS(subnormal, e)
	return broadcast(e), nil
}

// widenBytes turns 8 bytes of x into float32, those from the ninth on if upper.
func widenBytes(x reg.VecVirtual, upper bool) reg.VecVirtual {
	from := x
	if upper {
		from = XMM()
		VPSHUFD(Imm(0xee), x, from)
	}
	r := YMM()
	VPMOVSXBD(from, r)
	VCVTDQ2PS(r, r)
	return r
}

// times multiplies each of x by y.
func times(y Op, x ...reg.VecVirtual) []reg.VecVirtual {
	for _, r := range x {
		VMULPS(y, r, r)
	}
	return x
}

func bothHalves(x reg.VecVirtual) []reg.VecVirtual {
	return []reg.VecVirtual{widenBytes(x, false), widenBytes(x, true)}
}

// negative is a half-precision number with the other sign.
func negative(from Mem) reg.VecVirtual {
	r := halfScale(from)
	VXORPS(held(integer(1<<31)), r, r)
	return r
}

func scalesQ2K(b Mem) blockScales {
	s, m := XMM(), XMM()
	VMOVDQU(b, s)
	VPSRLW(Imm(4), s, m)
	VPAND(byteVector(15), s, s)
	VPAND(byteVector(15), m, m)
	d := halfScale(b.Offset(80))
	return blockScales{times(d, bothHalves(s)...), times(negative(b.Offset(82)), bothHalves(m)...), d, s}
}

func scalesQ3K(b Mem) blockScales {
	// 4 bits of each of 8 bytes and, high, of the same; 2 bits of each of 4 bytes, times 4.
	s, high := XMM(), XMM()
	VPBROADCASTQ(b.Offset(96), s)
	VPSRLVQ(words("nibblesOf8", 0, 0, 4, 0), s, s)
	VPAND(byteVector(15), s, s)
	VPBROADCASTD(b.Offset(104), high)
	VPSRLVD(words("pairsOf4", 0, 2, 4, 6), high, high)
	VPAND(byteVector(3), high, high)
	VPSLLW(Imm(4), high, high)
	VPOR(high, s, s)
	VPSUBB(byteVector(32), s, s)
	d := halfScale(b.Offset(108))
	return blockScales{times(d, bothHalves(s)...), nil, d, s}
}

// scalesQ4K unpacks 6 bits of each of the 8 scales and 8 minima. The first four of both
// are the low bits of two words; the last four have their low bits in the third word and
// two each on top of the others.
func scalesQ4K(b Mem) blockScales {
	first, last, top := XMM(), XMM(), XMM()
	VMOVQ(b.Offset(4), first)
	VPBROADCASTD(b.Offset(12), last)
	VPSRLVD(heldX(nibblesOf4()), last, last)
	VPAND(heldX(byteVector(15)), last, last)
	VPSRLD(Imm(2), first, top)
	VPAND(heldX(byteVector(0x30)), top, top)
	VPOR(top, last, last)
	VPAND(heldX(byteVector(63)), first, first)
	VPUNPCKLDQ(last, first, first)
	return blockScales{scales: times(halfScale(b), widenBytes(first, false)), minima: times(negative(b.Offset(2)), widenBytes(first, true))}
}

func nibblesOf4() Mem { return words("nibblesOf4", 0, 4, 0, 0, 0, 0, 0, 0) }

func scalesQ6K(b Mem) blockScales {
	s, d := XMM(), halfScale(b.Offset(208))
	VMOVDQU(b.Offset(192), s)
	return blockScales{times(d, bothHalves(s)...), nil, d, s}
}

func scalesIQ4XS(b Mem) blockScales {
	s, high := YMM(), YMM()
	VPBROADCASTD(b.Offset(4), s)
	VPSRLVD(words("nibbleOfWord", 0, 4, 8, 12, 16, 20, 24, 28), s, s)
	VPAND(integer(15), s, s)
	VPBROADCASTW(b.Offset(2), high)
	VPSRLVD(words("pairOfWord", 0, 2, 4, 6, 8, 10, 12, 14), high, high)
	VPAND(integer(3), high, high)
	VPSLLD(Imm(4), high, high)
	VPOR(high, s, s)
	VPSUBD(integer(32), s, s)
	VCVTDQ2PS(s, s)
	return blockScales{scales: times(halfScale(b), s)}
}

// halfFactors are the factors of a group's halves, 8 words each.
func halfFactors(factors reg.VecVirtual, group int) reg.VecVirtual {
	name := fmt.Sprintf("halves%d", group/2*2)
	// Two groups share a constant of 32 bytes.
	m := bytesOf(name, func(i int) byte { return byte(2*(group/2*2+i/16) + i%16/8) })
	x, r := XMM(), YMM()
	VPSHUFB(m.Offset(group%2*16), factors, x)
	VPMOVSXBW(x, r)
	return r
}

// decodes starts a function that widens blocks of a format.
func decodes(format string, elems, bytes int) {
	name := "decode" + format + "AVX2"
	function(name, "func(dst *float32, src *byte, blocks int)",
		fmt.Sprintf("%s widens blocks of %s, %d elements in %d bytes each.", name, format, elems, bytes))
}

// decodeBlocks widens with the roundings of the portable code: a product, then a sum.
func decodeBlocks(f *blockFormat) {
	v := blockISAs[0]
	decodes(f.name, f.elems, f.bytes)
	local := AllocLocal(32 + 2*64)
	store := func(x []reg.VecVirtual, at int) {
		for i, r := range x {
			VMOVUPS(r, local.Offset(at+32*i))
		}
	}
	dst, src, left := pointer("dst"), pointer("src"), pointer("blocks")
	b := Mem{Base: src}
	Label("block")
	PREFETCHT0(b.Offset(1024))
	var s blockScales
	var scale, minimum reg.VecVirtual
	zero := YMM()
	if f.large() {
		s = f.scales(b)
		store(s.scales, 32)
		store(s.minima, 96)
	} else if scale, minimum = f.scale(b); f.zero != nil {
		minimum = nil
		VPMOVSXBD(f.zero(b), zero.AsX())
		VPBROADCASTD(zero.AsX(), zero)
		VCVTDQ2PS(zero, zero)
	} else if minimum != nil {
		wide := YMM()
		VBROADCASTSS(minimum, wide)
		minimum = wide
	}
	for g := range f.elems / 32 {
		VMOVDQU(f.unpack(v, b, g, true), local)
		for part := range 4 {
			r := YMM()
			VPMOVSXBD(local.Offset(8*part), r)
			VCVTDQ2PS(r, r)
			if f.large() {
				at := g * len(s.scales)
				if len(s.scales) == 2 {
					at += part / 2
				}
				if part%(4/len(s.scales)) == 0 {
					scale = YMM()
					VBROADCASTSS(local.Offset(32+4*at), scale)
					if s.minima != nil {
						minimum = YMM()
						VBROADCASTSS(local.Offset(96+4*at), minimum)
					}
				}
			}
			if f.zero != nil {
				VSUBPS(zero, r, r)
			}
			VMULPS(scale, r, r)
			if minimum != nil {
				VADDPS(minimum, r, r)
			}
			if f.half {
				x := XMM()
				VCVTPS2PH(Imm(0), r, x)
				VCVTPH2PS(x, r)
			}
			VMOVUPS(r, Mem{Base: dst, Disp: 128*g + 32*part})
		}
	}
	ADDQ(I32(4*f.elems), dst)
	ADDQ(I32(f.bytes), src)
	again(left, "block")
	endFunction()
}

// blockDots multiplies quantised rows of a by rows of blocks: integers within a group,
// float32 across groups, even and odd ones in different sums. A result is the same
// whatever the number of rows.
func blockDots(f *blockFormat, v blockISA) {
	name := "multiply" + f.name + v.name
	attributes := attr.NOSPLIT
	if f.large() {
		attributes = 0
	}
	functionOf(attributes, name, "func(m, n, blocks int, alpha float32, a *byte, lda int, b *byte, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, n] = alpha·a·bᵀ + beta·c for m in 1 … %d quantised rows of a, lda bytes apart, and b [n, blocks] of %s.", name, v.rows, f.name))
	var local Mem
	if f.large() {
		local = AllocLocal(2*v.aheadBytes() + 64)
	}
	m := pointer("m")
	for rows := v.rows; rows > 0; rows-- {
		ifRows(rows, m, func() { v.blockRows(f, rows, local) })
	}
	endFunction()
}

// The sums of VNNI have registers that few instructions reach, so that the others are left
// to those that need them.
var (
	upperY = []reg.Register{reg.Y16, reg.Y17, reg.Y18, reg.Y19, reg.Y20, reg.Y21, reg.Y22, reg.Y23, reg.Y24, reg.Y25, reg.Y26, reg.Y27}
	upperX = []reg.Register{reg.X16, reg.X17, reg.X18, reg.X19, reg.X20, reg.X21, reg.X22, reg.X23, reg.X24, reg.X25, reg.X26, reg.X27}
	upperZ = []reg.Register{reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23, reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31}
)

// fetchAhead fetches so many bytes of rows that lie behind each other. Where they are to pass the level-2 cache by they
// come into the level-1 cache at once, else with AVX-512 into the level-2 cache, where more can wait, and from there,
// shortly before use, into the level-1 cache.
func (v blockISA) fetchAhead(label string, b Mem, bytes int) {
	each := func(fetch func(line Mem)) {
		for line := 0; line < bytes; line += 64 {
			fetch(b.Offset(line))
		}
	}
	pastLevel2(label, func() {
		each(func(line Mem) { PREFETCHNTA(line.Offset(6144)) })
	}, func() {
		if v.vnni {
			each(func(line Mem) {
				PREFETCHT1(line.Offset(6144))
				PREFETCHT0(line.Offset(512))
			})
			return
		}
		each(func(line Mem) { PREFETCHT0(line.Offset(2048)) })
	})
}

// rowSums are the registers that sum up rows of a.
type rowSums struct {
	sets [2][]reg.Register
	wide []reg.Register // of large blocks with VNNI: the first sums, and in the upper halves the others
	low  []reg.Register // sums of minima or offsets: of large blocks in all lanes, else in one; nil: there are none
}

func (v blockISA) newSums(f *blockFormat, rows int) (s rowSums) {
	free := 0
	sum := func() (y, x reg.Register) {
		if v.vnni {
			free++
			return upperY[free-1], upperX[free-1]
		}
		r := YMM()
		return r, r.AsX()
	}
	for range rows {
		for u := range s.sets {
			if u > 0 && f.halves && v.vnni {
				continue
			}
			y, _ := sum()
			s.sets[u] = append(s.sets[u], y)
			s.wide = append(s.wide, upperZ[max(0, free-1)])
		}
		if f.minima || f.large() && f.offset > 0 && !f.signed(v) {
			y, x := sum()
			if f.large() {
				x = y
			}
			s.low = append(s.low, x)
		}
	}
	return s
}

// clear sets them to 0.
func (s *rowSums) clear() {
	for i := range s.sets[0] {
		for _, set := range s.sets {
			if i < len(set) {
				VXORPS(set[i], set[i], set[i])
			}
		}
		if s.low != nil {
			VXORPS(s.low[i], s.low[i], s.low[i])
		}
	}
}

// total is the sum of a row, in the first lane of x, with a free t.
func (s *rowSums) total(v blockISA, f *blockFormat, i int) (x, t reg.VecVirtual) {
	r, t := YMM(), XMM()
	if f.halves && v.vnni {
		VEXTRACTF64X4(Imm(1), s.wide[i], r)
		VADDPS(r, s.sets[0][i], r)
	} else {
		VADDPS(s.sets[1][i], s.sets[0][i], r)
	}
	if s.low != nil && f.large() {
		VADDPS(s.low[i], r, r)
	}
	VEXTRACTF128(Imm(1), r, t)
	x = r.AsX().(reg.VecVirtual)
	VADDPS(t, x, x)
	VPERMILPS(Imm(0x4e), x, t)
	VADDPS(t, x, x)
	VMOVSHDUP(x, t)
	VADDSS(t, x, x)
	if s.low != nil && !f.large() {
		VADDSS(s.low[i], x, x)
	}
	return x, t
}

// holdConstants loads constants of blocks of a format, as far as there are registers for them.
func (v blockISA) holdConstants(f *blockFormat, rows int) (held map[string]reg.Register) {
	held = map[string]reg.Register{}
	if f.halves && v.vnni {
		b := wideBlock{held: held}
		for _, m := range f.constants(v, rows) {
			b.hold(m, VBROADCASTI64X4)
		}
		for p := range 4 {
			b.hold(halvesLanes(p), VMOVDQU32)
		}
	} else if v.vnni || rows < v.rows { // else there are no registers for them
		for _, m := range f.constants(v, rows) {
			heldConstants[m.Symbol.Name] = loaded(m)
		}
	}
	return held
}

// rowLoop are the registers of the loop that multiplies rows of a by a row of blocks.
type rowLoop struct {
	label       string
	a           []reg.GPVirtual
	b, left, at reg.GPVirtual // the next block, how many are left, and where their records are in rows of a
	sums        rowSums
	ones        reg.VecVirtual
	held        map[string]reg.Register

	// What is made of the scales of a large block is stored while the block before it is multiplied, since
	// it takes longer than processors look ahead.
	blocks, stored, ahead reg.GPVirtual
}

// records are those of all rows, at a place and some bytes behind it.
func (l *rowLoop) records(at reg.GPVirtual, disp int) []Mem {
	x := make([]Mem, len(l.a))
	for i := range x {
		x[i] = Mem{Base: l.a[i], Index: at, Scale: 1, Disp: disp}
	}
	return x
}

// prepareFirst stores what is made of the scales of the first block.
func (l *rowLoop) prepareFirst(v blockISA, f *blockFormat, n reg.GPVirtual, local Mem) {
	MOVQ(parameter("blocks"), l.blocks)
	IMULQ(n, l.blocks)
	LEAQ(local.Offset(63), l.stored)
	ANDQ(I32(-64), l.stored)
	LEAQ(Mem{Base: l.stored, Disp: v.aheadBytes()}, l.ahead)
	first := make([]Mem, len(l.a))
	for i := range first {
		first[i] = Mem{Base: l.a[i]}
	}
	v.prepareRow(f, Mem{Base: l.b}, first, Mem{Base: l.stored})
}

// multiplyLarge multiplies a row of large blocks.
func (l *rowLoop) multiplyLarge(v blockISA, f *blockFormat) {
	Label(l.label + "block")
	v.fetchAhead(l.label, Mem{Base: l.b}, f.bytes)
	CMPQ(l.blocks, Imm(1))
	JEQ(LabelRef(l.label + "use"))
	next := GP64()
	LEAQ(Mem{Base: l.at, Disp: largeRecord}, next)
	CMPQ(l.left, Imm(1)) // the next block is the first of a row
	CMOVQEQ(words("zero", 0, 0), next)
	v.prepareRow(f, Mem{Base: l.b, Disp: f.bytes}, l.records(next, 0), Mem{Base: l.ahead})
	Label(l.label + "use")
	if f.halves && v.vnni {
		v.wideBlock(f, &wideBlock{from: Mem{Base: l.b}, held: l.held}, l.records(l.at, 0), l.sums.wide, l.sums.low, Mem{Base: l.stored})
	} else {
		v.largeBlock(f, Mem{Base: l.b}, l.records(l.at, 0), l.sums.sets, l.sums.low, l.ones, Mem{Base: l.stored})
	}
	XCHGQ(l.stored, l.ahead)
	ADDQ(I32(f.bytes), l.b)
	ADDQ(I32(largeRecord), l.at)
	DECQ(l.blocks)
	again(l.left, l.label+"block")
}

// multiplySmall multiplies a row of small blocks, two at a time.
func (l *rowLoop) multiplySmall(v blockISA, f *blockFormat) {
	block := func(u int) {
		v.smallBlock(f, Mem{Base: l.b, Disp: u * f.bytes}, l.records(l.at, u*smallRecord), l.sums.sets[u], l.sums.low, l.ones)
	}
	Label(l.label + "pair")
	SUBQ(Imm(2), l.left)
	JLT(LabelRef(l.label + "last"))
	v.fetchAhead(l.label, Mem{Base: l.b}, 2*f.bytes)
	block(0)
	block(1)
	ADDQ(I32(2*f.bytes), l.b)
	ADDQ(I32(2*smallRecord), l.at)
	JMP(LabelRef(l.label + "pair"))
	Label(l.label + "last")
	ADDQ(Imm(2), l.left)
	JZ(LabelRef(l.label + "sum"))
	block(0)
	ADDQ(I32(f.bytes), l.b)
	Label(l.label + "sum")
}

func (v blockISA) blockRows(f *blockFormat, rows int, local Mem) {
	l := &rowLoop{label: fmt.Sprintf("m%d", rows), sums: v.newSums(f, rows)}
	n, c := pointer("n"), pointer("c")
	l.b, l.left, l.at = pointer("b"), GP64(), GP64()
	ldc := stride("ldc", 4)
	l.a = rowsOfA(rows)
	if !v.vnni && !f.halves {
		l.ones = loaded(integer(0x00010001))
	}
	clear(heldConstants)
	defer clear(heldConstants)
	l.held = v.holdConstants(f, rows)
	l.blocks, l.stored, l.ahead = GP64(), GP64(), GP64()
	if f.large() {
		l.prepareFirst(v, f, n, local)
	}

	Label(l.label + "row")
	l.sums.clear()
	XORQ(l.at, l.at)
	MOVQ(parameter("blocks"), l.left)
	if f.large() {
		l.multiplyLarge(v, f)
	} else {
		l.multiplySmall(v, f)
	}

	to := copyOf(c)
	beta := betaBits()
	for i := range rows {
		x, t := l.sums.total(v, f, i)
		storeSum(x, t, beta, to, fmt.Sprintf("%sstore%d", l.label, i))
		if i+1 < rows {
			ADDQ(ldc, to)
		}
	}
	ADDQ(Imm(4), c)
	again(n, l.label+"row")
}

// constants are those that unpack uses most.
func (f *blockFormat) constants(v blockISA, rows int) []Mem {
	switch f.name {
	case "Q4_0", "Q4_1":
		return []Mem{nibbleShifts(), byteVector(15)}
	case "Q5_0", "Q5_1":
		if v.vnni {
			return []Mem{nibbleShifts(), byteVector(15), byteVector(16)}
		}
		return []Mem{nibbleShifts(), byteVector(15), byteVector(16), bitOfByte()}
	case "I4_BF16", "I4_F16":
		return []Mem{nibbleShifts(), byteVector(15), byteVector(16)}
	case "Q8_0", "I8_BF16", "I8_F16", "I8Z_BF16", "I8Z_F16":
		if v.vnni {
			return []Mem{byteVector(128)}
		}
	case "IQ4_NL", "IQ4_XS":
		return []Mem{nibbleShifts(), byteVector(15), iq4(f.signed(v))}
	case "MXFP4":
		return []Mem{nibbleShifts(), byteVector(15), e2m1(false)}
	case "Q2_K":
		return []Mem{byteVector(3)}
	case "Q3_K":
		return []Mem{byteVector(3), byteVector(4)}
	case "Q4_K", "Q5_K":
		all := []Mem{byteVector(15), byteVector(16), nibblesOf4(), byteVector(0x30), byteVector(63), integer(1 << 31)}
		switch {
		case v.vnni || rows == 1:
			return all
		case f.name == "Q4_K":
			return all[:1]
		}
		return all[:2]
	case "Q6_K":
		return []Mem{byteVector(15), byteVector(0x30)}
	}
	return nil
}

// firstLane loads 32 bits and clears the other lanes. To avo, VMOVD would leave the upper
// half of the register as it was before.
func firstLane(from Mem, r reg.VecVirtual) {
	Instruction(&ir.Instruction{Opcode: "VMOVD", Operands: []Op{from, r.AsX()}, Inputs: []Op{from}, Outputs: []Op{r}})
}

// insertUpper sets to to lower and, above, upper. To avo, VINSERTF64X4 would read all of lower's register.
func insertUpper(lower, upper, to reg.VecVirtual) {
	Instruction(&ir.Instruction{Opcode: "VINSERTF64X4", Operands: []Op{Imm(1), upper, lower.AsZ(), to}, Inputs: []Op{upper, lower}, Outputs: []Op{to}})
}

// dotBytes returns the products of w and x, 4 added up in each lane, plus a number in
// memory in the first lane if there is one.
func (v blockISA) dotBytes(w, magnitude reg.VecVirtual, x Mem, plus *Mem, ones reg.VecVirtual) reg.VecVirtual {
	r := YMM()
	if v.vnni {
		if plus != nil {
			firstLane(*plus, r)
		} else {
			VPXOR(r, r, r)
		}
		// avo does not know the instruction.
		Instruction(&ir.Instruction{Opcode: "VPDPBUSD", Operands: []Op{x, w, r}, Inputs: []Op{x, w, r}, Outputs: []Op{r}})
		return r
	}
	if magnitude != nil {
		VMOVDQU(x, r)
		VPSIGNB(w, r, r)
		VPMADDUBSW(r, magnitude, r)
	} else {
		VPMADDUBSW(x, w, r)
	}
	VPMADDWD(ones, r, r)
	if plus != nil {
		t := YMM()
		firstLane(*plus, t)
		VPADDD(t, r, r)
	}
	return r
}

// magnitude is that of signed bytes, or nil.
func (v blockISA) magnitude(f *blockFormat, w reg.VecVirtual) reg.VecVirtual {
	if !f.signed(v) {
		return nil
	}
	r := YMM()
	VPABSB(w, r)
	return r
}

// addScaled adds r times a number in memory and, unless nil, a vector to sum.
func (v blockISA) addScaled(r reg.VecVirtual, scale Mem, by reg.VecVirtual, sum reg.Register) {
	VCVTDQ2PS(r, r)
	switch {
	case v.vnni && by == nil:
		VFMADD231PS_BCST(scale, r, sum)
		return
	case v.vnni:
		t := YMM()
		VMULPS_BCST(scale, by, t)
		VFMADD231PS(t, r, sum)
		return
	}
	t := YMM()
	VBROADCASTSS(scale, t)
	if by != nil {
		VMULPS(by, t, t)
	}
	VFMADD231PS(t, r, sum)
}

func (v blockISA) smallBlock(f *blockFormat, b Mem, x []Mem, sums, low []reg.Register, ones reg.VecVirtual) {
	d, minimum := f.scale(b)
	w := f.unpack(v, b, 0, f.signed(v))
	magnitude := v.magnitude(f, w)
	for i := range x {
		var plus *Mem
		if f.offset > 0 && !f.signed(v) {
			m := x[i].Offset(smallOffset)
			plus = &m
		}
		v.addScaled(v.dotBytes(w, magnitude, x[i], plus, ones), x[i].Offset(smallScale), d, sums[i])
		if minimum != nil {
			VFMADD231SS(x[i].Offset(smallSum), minimum, low[i])
		}
	}
}

// What prepare stores for a block: the scales times the scales of each row of a, then the minima, then the factors of
// halves. VNNI has the scales of halves in place of factors.
func (v blockISA) aheadBytes() int   { return (v.aheadFactors() + 16 + 63) / 64 * 64 }
func (v blockISA) aheadFactors() int { return v.aheadMinima(2) }
func (v blockISA) aheadMinima(i int) int {
	if v.vnni {
		return 64*v.rows + 32*i
	}
	return 32 * (v.rows + i)
}

func (v blockISA) prepareRow(f *blockFormat, b Mem, x []Mem, ahead Mem) {
	s := f.scales(b)
	scale := s.scales[0]
	switch {
	case f.halves && v.vnni:
		all, twice := ZMM(), ZMM()
		insertUpper(s.scales[0], s.scales[1], all)
		VMOVUPS(words("twiceEach", 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), twice)
		for i := range x {
			t := ZMM()
			VBROADCASTF64X4(x[i].Offset(largeScales), t)
			VPERMPS(t, twice, t)
			VMULPS(all, t, t)
			VMOVUPS(t, ahead.Offset(64*i))
		}
	case f.halves:
		VMOVDQU(s.factors.AsX(), ahead.Offset(v.aheadFactors()))
		scale = s.whole
		fallthrough
	default:
		for i := range x {
			t := YMM()
			VMULPS(x[i].Offset(largeScales), scale, t)
			VMOVUPS(t, ahead.Offset(32*i))
		}
	}
	minima := s.minima
	if minima == nil && f.offset > 0 && !f.signed(v) {
		minima = times(constant(-float32(f.offset)), s.scales...)
	}
	for i, r := range minima {
		VMOVUPS(r, ahead.Offset(v.aheadMinima(i)))
	}
}

// addMinima adds a block's minima times the sums of each row of a.
func (v blockISA) addMinima(f *blockFormat, x []Mem, low []reg.Register, ahead Mem) {
	at, minima := largeSums, 1
	if f.halves {
		at, minima = largeHalvesSums, 2
	}
	for j := range minima {
		if low == nil {
			return
		}
		r := loaded(ahead.Offset(v.aheadMinima(j)))
		for i := range x {
			VFMADD231PS(x[i].Offset(at+32*j), r, low[i])
		}
	}
}

// halvesLanes are which scales the halves of groups 2·p and 2·p+1 are multiplied by.
func halvesLanes(p int) Mem {
	w := make([]uint32, 16)
	for i := range w {
		w[i] = uint32(4*p + i/4)
	}
	return words(fmt.Sprintf("lanesOfHalves%d", p), w...)
}

// wideBlock is largeBlock with two groups in a register.
func (v blockISA) wideBlock(f *blockFormat, b *wideBlock, x []Mem, sums, low []reg.Register, ahead Mem) {
	b.loaded = map[int]reg.VecVirtual{}
	v.addMinima(f, x, low, ahead)
	for p := range 4 {
		w, lanes := f.pair(b, p), b.constant(halvesLanes(p))
		for i := range x {
			r, scale, part := ZMM(), ZMM(), x[i].Offset(64*p)
			VXORPS(r, r, r)
			Instruction(&ir.Instruction{Opcode: "VPDPBUSD", Operands: []Op{part, w, r}, Inputs: []Op{part, w, r}, Outputs: []Op{r}})
			VCVTDQ2PS(r, r)
			VPERMPS(ahead.Offset(64*i), lanes, scale)
			VFMADD231PS(scale, r, sums[i])
		}
	}
}

func (v blockISA) largeBlock(f *blockFormat, b Mem, x []Mem, sums [2][]reg.Register, low []reg.Register, ones reg.VecVirtual, ahead Mem) {
	var allFactors reg.VecVirtual
	if f.halves {
		allFactors = XMM()
		VMOVDQU(ahead.Offset(v.aheadFactors()), allFactors)
	}
	v.addMinima(f, x, low, ahead)
	if v.vnni || len(x) == 1 {
		loadedBytes = map[int]reg.VecVirtual{}
		defer func() { loadedBytes = nil }()
	}
	for g := range 8 {
		w := f.unpack(v, b, g, f.signed(v))
		magnitude := v.magnitude(f, w)
		var factors reg.VecVirtual
		if f.halves {
			factors = halfFactors(allFactors, g)
		}
		for i := range x {
			part := x[i].Offset(32 * g)
			var r reg.VecVirtual
			if f.halves {
				r = YMM()
				VPMADDUBSW(part, w, r)
				VPMADDWD(factors, r, r)
			} else {
				r = v.dotBytes(w, magnitude, part, nil, ones)
			}
			v.addScaled(r, ahead.Offset(32*i+4*g), nil, sums[g%2][i])
		}
	}
}

// emitQuantise writes a row of a as records.
func emitQuantise(layout rowRecord) {
	function(layout.name, "func(dst *byte, src *float32, records, offset int)",
		fmt.Sprintf("%s quantises src [%d·records] to records of %d bytes.", layout.name, 32*layout.groups, layout.bytes))
	dst, src, left := pointer("dst"), pointer("src"), pointer("records")
	var offset reg.VecVirtual
	if layout.offset > 0 {
		offset = XMM()
		VMOVD(parameter("offset"), offset)
		zero := XMM()
		VPXOR(zero, zero, zero)
		VPSUBD(offset, zero, offset)
	}
	Label("record")
	for g := range layout.groups {
		x, largest := make([]reg.VecVirtual, 4), make([]reg.VecVirtual, 4)
		for i := range x {
			x[i], largest[i] = YMM(), YMM()
			VMOVUPS(Mem{Base: src, Disp: 128*g + 32*i}, x[i])
			VPAND(integer(0x7fffffff), x[i], largest[i])
		}
		// As integers, magnitudes are in the same order, with NaN above infinity.
		VPMAXSD(largest[1], largest[0], largest[0])
		VPMAXSD(largest[3], largest[2], largest[2])
		VPMAXSD(largest[2], largest[0], largest[0])
		most, t := largest[0], XMM()
		VEXTRACTI128(Imm(1), most, t)
		VPMAXSD(t, most.AsX(), most.AsX())
		VPSHUFD(Imm(0x4e), most.AsX(), t)
		VPMAXSD(t, most.AsX(), most.AsX())
		VPSHUFD(Imm(0xb1), most.AsX(), t)
		VPMAXSD(t, most.AsX(), most.AsX())
		VPBROADCASTD(most.AsX(), most)
		valid, finite := YMM(), YMM()
		VPCMPGTD(integer(leastQuantised-1), most, valid)
		VMOVDQU(integer(0x7f800000), finite)
		VPCMPGTD(most, finite, finite)
		VPAND(finite, valid, valid)
		inverse := YMM()
		VMOVUPS(constant(127), inverse)
		VDIVPS(most, inverse, inverse)
		s := XMM()
		VDIVSS(constant(127), most.AsX(), s)
		for i := range x {
			VMULPS(inverse, x[i], x[i])
			VCVTPS2DQ(x[i], x[i])
		}
		VPACKSSDW(x[1], x[0], x[0])
		VPACKSSDW(x[3], x[2], x[2])
		VPACKSSWB(x[2], x[0], x[0])
		order := loaded(words("packOrder", 0, 4, 1, 5, 2, 6, 3, 7))
		VPERMD(x[0], order, x[0])
		VPAND(valid, x[0], x[0])
		VMOVDQU(x[0], Mem{Base: dst, Disp: 32 * g})
		VMOVSS(s, Mem{Base: dst, Disp: layout.scales + 4*g})
		// The sums of the halves are in the halves of a register.
		total, other := loaded(byteVector(1)), YMM()
		VPMADDUBSW(x[0], total, total)
		VPMADDWD(integer(0x00010001), total, total)
		VPSHUFD(Imm(0x4e), total, other)
		VPADDD(other, total, total)
		VPSHUFD(Imm(0xb1), total, other)
		VPADDD(other, total, total)
		VEXTRACTI128(Imm(1), total, other.AsX())
		both, f := XMM(), XMM()
		VPADDD(other.AsX(), total.AsX(), both)
		float := func(r reg.VecVirtual, at int) {
			VCVTDQ2PS(r, f)
			VMULSS(s, f, f)
			VMOVSS(f, Mem{Base: dst, Disp: at})
		}
		float(both, layout.sums+4*g)
		halves := []reg.VecVirtual{total.AsX().(reg.VecVirtual), other.AsX().(reg.VecVirtual)}
		if layout.halvesSums > 0 {
			for i, half := range halves {
				float(half, layout.halvesSums+8*g+4*i)
			}
		} else {
			halves = nil
		}
		if layout.offset > 0 {
			for i, r := range append([]reg.VecVirtual{both}, halves...) {
				VPMULLD(offset, r, r)
				VMOVD(r, Mem{Base: dst, Disp: layout.offset + 4*i})
			}
		}
	}
	ADDQ(I32(128*layout.groups), src)
	ADDQ(I32(layout.bytes), dst)
	again(left, "record")
	endFunction()
}

// leastQuantised are the bits of 2⁻¹²⁰: 127 divided by less may be infinite.
const leastQuantised = (127 - 120) << 23
