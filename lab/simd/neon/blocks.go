package main

import "fmt"

// A quantised row of a is one record after another, as the generator for amd64 says. The
// bytes of weights are signed here, so that nothing is to be subtracted of their offsets.
const (
	smallRecord = 48 // 32 bytes, their scale, an integer that is not used, the scaled sum
	smallScale  = 32
	smallOffset = 36
	smallSum    = 40
	largeRecord = 384 // 256 bytes, 8 scales, the 8 scaled sums, the 16 halves' sums
	largeScales = 256
	largeSums   = 288
	largeHalves = 320
)

// Registers of the products by blocks.
const (
	blockSums    = 0  // … 7: even and odd groups of each row
	blockLow     = 8  // … 11: what minima add to each row
	rowScales    = 12 // … 19: of large blocks, 8 for each row
	blockMinima  = 12 // … 15: before that
	blockScales  = 20 // … 23: before the next ones, or of blocks that are decoded
	firstHalf    = 20
	secondHalf   = 21
	ofA          = 22 // and 23
	total        = 24 // and 25: also what unpack uses, with spare
	commonScale  = 26 // of a block
	factors      = 27 // 16 bytes, multiples of it; or the minimum of a small block
	constantA    = 28
	constantB    = 29
	spare        = 30
	groupFactors = 31 // 4 words
)

// blockFormat emits what is particular to a format. Pointers to a block are in register b.
type blockFormat struct {
	name         string
	elems, bytes int
	halves       bool // scales are of 16 elements
	minima       bool
	constants    func(s *assembly)
	unpack       func(s *assembly, x, y, group int) // 32 signed bytes
	scales       func(s *assembly, floats bool)
}

const blockPointer = 7

// near is an unaligned load of a block.
func (s *assembly) near(size, v, offset int) {
	code := map[int]uint32{2: 0x7c400000, 4: 0xbc400000, 8: 0xfc400000, 16: 0x3cc00000}[size]
	s.emitWord(code|uint32(offset<<12|blockPointer<<5|v), "ldur %s%d, [x%d, %d]", memory[size].letter, v, blockPointer, offset)
}

// shift bytes right, or left if by is negative.
func (s *assembly) shiftBytes(d, n, by int) {
	switch {
	case by > 0:
		s.emitWord(0x6f000400|uint32((16-by)<<16|n<<5|d), "ushr v%d.16b, v%d.16b, %d", d, n, by)
	case by < 0:
		s.emitWord(0x4f005400|uint32((8-by)<<16|n<<5|d), "shl v%d.16b, v%d.16b, %d", d, n, -by)
	case d != n:
		s.move(d, n)
	}
}

// allBytes sets all bytes to x.
func (s *assembly) allBytes(d int, x uint32) {
	s.emitWord(0x4f00e400|x>>5<<16|x&31<<5|uint32(d), "movi v%d.16b, %d", d, x)
}

// byteConstant sets 16 bytes.
func (s *assembly) byteConstant(d int, at func(i int) int) {
	for half := range 2 {
		var x uint64
		for i := range 8 {
			x |= uint64(byte(at(8*half+i))) << (8 * i)
		}
		s.do("MOVD $0x%016x, R26", x)
		s.do("VMOV R26, V%d.D[%d]", d, half)
	}
}

// nibbles are the low halves of 16 bytes, then the high ones; constantA is 15.
func (s *assembly) nibbles(x, y, offset int) {
	s.near(16, x, offset)
	s.shiftBytes(y, x, 4)
	s.op3("and", x, x, constantA)
}

// bits loads 32 bytes and moves bits of them right.
func (s *assembly) bits(x, y, offset, by, mask int) {
	for i, r := range []int{x, y} {
		s.near(16, r, offset+16*i)
		s.shiftBytes(r, r, by)
		if mask != 0 {
			s.op3("and", r, r, mask)
		}
	}
}

// bothRegisters applies an instruction to two registers.
func (s *assembly) bothRegisters(name string, x, y, by int) {
	s.op3(name, x, x, by)
	s.op3(name, y, y, by)
}

// withFifth adds 16 to bytes whose fifth bit is set or, signed, −16 to the others.
func (s *assembly) withFifth(x, y, offset int, signed bool) {
	const byteOfBit, bitOfByte, sixteen = 12, 14, 15 // 12 and 13
	s.near(4, spare, offset)
	for i, r := range []int{x, y} {
		s.op3("tbl", total, spare, byteOfBit+i)
		s.op3("cmtst", total, total, bitOfByte)
		if signed {
			s.op3("bic", total, sixteen, total)
			s.op3("sub.16b", r, r, total)
		} else {
			s.op3("and", total, sixteen, total)
			s.op3("add.16b", r, r, total)
		}
	}
}

func fifthConstants(s *assembly) {
	s.allBytes(constantA, 15)
	s.byteConstant(12, func(i int) int { return i / 8 })
	s.byteConstant(13, func(i int) int { return 2 + i/8 })
	s.byteConstant(14, func(i int) int { return 1 << (i % 8) })
	s.allBytes(15, 16)
}

// half widens a half-precision number to lane 0.
func (s *assembly) half(v, offset int) {
	s.near(2, v, offset)
	s.op2("fcvtl", v, v)
}

func halfScale(s *assembly, _ bool) { s.half(commonScale, 0) }

func scaleAndMinimum(s *assembly, _ bool) {
	s.half(commonScale, 0)
	s.half(factors, 2)
}

// halfE8M0 is half of 2^(e-127): a float of exponent e−1 or, of e = 0 and 1, the subnormal
// (e+1)·2²¹.
func halfE8M0(s *assembly, _ bool) {
	s.do("MOVBU (R%d), R20", blockPointer)
	s.do("ADD $1, R20, R21")
	s.do("LSL $21, R21")
	s.do("SUB $1, R20, R22")
	s.do("LSL $23, R22")
	s.do("CMP $2, R20")
	s.do("CSEL LT, R21, R22, R20")
	s.do("FMOVS R20, F%d", commonScale)
}

// widenBytes widens 8 signed bytes of v to two registers, the upper ones if upper, times lane 0
// of scale.
func (s *assembly) widenBytes(to, v int, upper bool, scale int) {
	name := "sshll.8h"
	if upper {
		name = "sshll2.8h"
	}
	s.op2(name, total, v)
	s.op2("sshll.4s", to, total)
	s.op2("sshll2.4s", to+1, total)
	for i := range 2 {
		s.op2("scvtf", to+i, to+i)
		s.fmulLane(to+i, to+i, scale, 0)
	}
}

// sixteenFloats are the scales of halves, if they are asked for.
func (s *assembly) sixteenFloats(floats bool) {
	if floats {
		s.widenBytes(blockScales, factors, false, commonScale)
		s.widenBytes(blockScales+2, factors, true, commonScale)
	}
}

func scalesQ2K(s *assembly, floats bool) {
	s.half(commonScale, 80)
	s.half(spare, 82)
	s.op2("fneg", spare, spare)
	s.near(16, factors, 0)
	s.shiftBytes(16, factors, 4)
	s.widenBytes(blockMinima, 16, false, spare)
	s.widenBytes(blockMinima+2, 16, true, spare)
	s.allBytes(16, 15)
	s.op3("and", factors, factors, 16)
	s.sixteenFloats(floats)
}

func scalesQ3K(s *assembly, floats bool) {
	const low, high, t = factors, 16, 17
	s.half(commonScale, 108)
	s.near(8, low, 96)
	s.shiftBytes(t, low, 4)
	s.op3("zip1.2d", low, low, t)
	s.allBytes(t, 15)
	s.op3("and", low, low, t)
	s.near(4, high, 104)
	s.op2("dup", high, high)
	s.byteConstant(t, func(i int) int { return -(i / 4 * 2) })
	s.op3("ushl.16b", high, high, t)
	s.op3("and", high, high, constantA)
	s.shiftBytes(high, high, -4)
	s.op3("orr", low, low, high)
	s.allBytes(t, 32)
	s.op3("sub.16b", low, low, t)
	s.sixteenFloats(floats)
}

// scalesQ4K unpacks as the generator for amd64 says, in words of 8 bytes.
func scalesQ4K(s *assembly, _ bool) {
	s.half(commonScale, 0)
	s.half(spare, 2)
	s.op2("fneg", spare, spare)
	s.do("MOVD 4(R%d), R20", blockPointer)
	s.do("MOVWU 12(R%d), R21", blockPointer)
	s.do("ORR R21<<28, R21, R21")
	s.do("AND $0x0f0f0f0f0f0f0f0f, R21, R21")
	s.do("LSR $2, R20, R22")
	s.do("AND $0x3030303030303030, R22, R22")
	s.do("ORR R22, R21, R21") // the last four scales, then minima
	s.do("AND $0x3f3f3f3f3f3f3f3f, R20, R20")
	s.do("LSR $32, R20, R22")
	s.do("BFI $32, R21, $32, R20")
	s.do("LSR $32, R21, R21")
	s.do("BFI $32, R21, $32, R22")
	s.do("VMOV R20, V16.D[0]")
	s.do("VMOV R22, V17.D[0]")
	s.widenBytes(blockScales, 16, false, commonScale)
	s.widenBytes(blockMinima, 17, false, spare)
}

func scalesQ6K(s *assembly, floats bool) {
	s.half(commonScale, 208)
	s.near(16, factors, 192)
	s.sixteenFloats(floats)
}

func scalesIQ4XS(s *assembly, _ bool) {
	const low, high, t = 16, 17, 18
	s.half(commonScale, 0)
	s.near(4, low, 4)
	s.shiftBytes(t, low, 4)
	s.op3("and", low, low, constantA)
	s.op3("zip1.16b", low, low, t)
	// Bits 2g and 2g+1 of a word of 16 are moved to byte g from their own byte.
	s.near(2, high, 2)
	s.byteConstant(t, func(i int) int { return i / 4 % 2 })
	s.op3("tbl", high, high, t)
	s.byteConstant(t, func(i int) int { return -(i % 4 * 2) })
	s.op3("ushl.16b", high, high, t)
	s.allBytes(t, 3)
	s.op3("and", high, high, t)
	s.shiftBytes(high, high, -4)
	s.op3("orr", low, low, high)
	s.allBytes(t, 32)
	s.op3("sub.16b", low, low, t)
	s.widenBytes(blockScales, low, false, commonScale)
}

func fifteen(s *assembly) { s.allBytes(constantA, 15) }

// table are values by 4 bits.
func table(values ...int) func(s *assembly) {
	return func(s *assembly) {
		fifteen(s)
		s.byteConstant(constantB, func(i int) int { return values[i] })
	}
}

func (s *assembly) lookUp(x, y int) {
	s.op3("tbl", x, constantB, x)
	s.op3("tbl", y, constantB, y)
}

func two(a, b uint32) func(s *assembly) {
	return func(s *assembly) {
		s.allBytes(constantA, a)
		s.allBytes(constantB, b)
	}
}

var (
	iq4  = table(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
	e2m1 = table(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
)

var blockFormats = []blockFormat{
	{"Q4_0", 32, 18, false, false, two(15, 8), func(s *assembly, x, y, _ int) {
		s.nibbles(x, y, 2)
		s.bothRegisters("sub.16b", x, y, constantB)
	}, halfScale},
	{"Q4_1", 32, 20, false, true, fifteen, func(s *assembly, x, y, _ int) { s.nibbles(x, y, 4) }, scaleAndMinimum},
	{"Q5_0", 32, 22, false, false, fifthConstants, func(s *assembly, x, y, _ int) {
		s.nibbles(x, y, 6)
		s.withFifth(x, y, 2, true)
	}, halfScale},
	{"Q5_1", 32, 24, false, true, fifthConstants, func(s *assembly, x, y, _ int) {
		s.nibbles(x, y, 8)
		s.withFifth(x, y, 4, false)
	}, scaleAndMinimum},
	{"Q8_0", 32, 34, false, false, func(*assembly) {}, func(s *assembly, x, y, _ int) { s.bits(x, y, 2, 0, 0) }, halfScale},
	{"IQ4_NL", 32, 18, false, false, iq4, func(s *assembly, x, y, _ int) {
		s.nibbles(x, y, 2)
		s.lookUp(x, y)
	}, halfScale},
	{"MXFP4", 32, 17, false, false, e2m1, func(s *assembly, x, y, _ int) {
		s.nibbles(x, y, 1)
		s.lookUp(x, y)
	}, halfE8M0},
	{"Q2_K", 256, 84, true, true, func(s *assembly) { s.allBytes(constantA, 3) }, func(s *assembly, x, y, g int) {
		s.bits(x, y, 16+g/4*32, g%4*2, constantA)
	}, scalesQ2K},
	{"Q3_K", 256, 110, true, false, two(3, 4), func(s *assembly, x, y, g int) {
		s.bits(x, y, 32+g/4*32, g%4*2, constantA)
		s.bits(total, total+1, 0, g-2, constantB)
		s.op3("orr", x, x, total)
		s.op3("orr", y, y, total+1)
		s.bothRegisters("sub.16b", x, y, constantB)
	}, scalesQ3K},
	{"Q4_K", 256, 144, false, true, fifteen, func(s *assembly, x, y, g int) {
		s.bits(x, y, 16+g/2*32, g%2*4, constantA*(1-g%2))
	}, scalesQ4K},
	{"Q5_K", 256, 176, false, true, two(15, 16), func(s *assembly, x, y, g int) {
		s.bits(x, y, 48+g/2*32, g%2*4, constantA*(1-g%2))
		s.bits(total, total+1, 16, g-4, constantB)
		s.op3("orr", x, x, total)
		s.op3("orr", y, y, total+1)
	}, scalesQ4K},
	{"Q6_K", 256, 210, true, false, two(15, 0x30), func(s *assembly, x, y, g int) {
		n, part := g/4, g%4
		s.bits(x, y, 64*n+part%2*32, part/2*4, constantA*(1-part/2))
		s.bits(total, total+1, 128+32*n, 2*part-4, constantB)
		s.op3("orr", x, x, total)
		s.op3("orr", y, y, total+1)
		s.allBytes(spare, 32)
		s.bothRegisters("sub.16b", x, y, spare)
	}, scalesQ6K},
	{"IQ4_XS", 256, 136, false, false, iq4, func(s *assembly, x, y, g int) {
		s.nibbles(x, y, 8+16*g)
		s.lookUp(x, y)
	}, scalesIQ4XS},
}

func (f *blockFormat) large() bool { return f.elems == 256 }

func emitBlocks(s *assembly) {
	for _, r := range rowRecords {
		s.emitQuantise(r)
	}
	for i := range blockFormats {
		f := &blockFormats[i]
		s.decodeBlocks(f)
		s.multiplyBlocks(f)
		s.unpackBlocks(f)
	}
	for _, halves := range []bool{false, true} {
		s.multiplyBytes(halves, false)
		s.multiplyBytes(halves, true)
	}
}

// decodeBlocks widens with the roundings of the portable code: a product, then a sum.
func (s *assembly) decodeBlocks(f *blockFormat) {
	const dst, left, x, y, wide = 1, 2, 0, 1, 4 // vector registers x, y, wide … wide+3
	name := "decode" + f.name + "NEON"
	s.function(fmt.Sprintf("%s widens blocks of %s, %d elements in %d bytes each.", name, f.name, f.elems, f.bytes),
		"dst", "src *byte", "blocks int")
	s.param("dst", dst)
	s.param("src", blockPointer)
	s.param("blocks", left)
	f.constants(s)
	loop := s.newLabel("block")
	s.placeLabel(loop)
	f.scales(s, true)
	if !f.large() && f.minima {
		s.op2("dup", factors, factors)
	}
	for g := range f.elems / 32 {
		f.unpack(s, x, y, g)
		for i, v := range []int{x, y} {
			scale := g
			if f.halves {
				scale = 2*g + i
			}
			s.op2("sshll.8h", total, v)
			s.op2("sshll2.8h", total+1, v)
			for j := range 4 {
				r := wide + j
				s.op2([]string{"sshll.4s", "sshll2.4s"}[j%2], r, total+j/2)
				s.op2("scvtf", r, r)
				if f.large() {
					s.fmulLane(r, r, blockScales+scale/4, scale%4)
				} else {
					s.fmulLane(r, r, commonScale, 0)
				}
				switch {
				case f.large() && f.minima:
					if j == 0 {
						s.dupLane(spare, blockMinima+scale/4, scale%4)
					}
					s.op3("fadd", r, r, spare)
				case f.minima:
					s.op3("fadd", r, r, factors)
				}
				s.storeRegister(16, r, dst, 128*g+64*i+16*j)
			}
		}
	}
	s.do("ADD $%d, R%d", 4*f.elems, dst)
	s.do("ADD $%d, R%d", f.bytes, blockPointer)
	s.again(left, loop)
	s.ret()
}

// multiplyBlocks multiplies quantised rows of a by rows of blocks: integers within a group,
// float32 across groups, even and odd ones in different sums. A result is the same whatever
// the number of rows. SDOT is of the extension ASIMDDP.
func (s *assembly) multiplyBlocks(f *blockFormat) {
	const m, n, count, rowsOfA, left, c, ldc, beta, at, to, lda = 0, 1, 2, 3, 8, 9, 10, 11, 12, 16, 17 // rowsOfA … 6, at … 15
	name := "multiply" + f.name + "SDOT"
	s.function(name+" sets c [m, n] = alpha·a·bᵀ + beta·c for m in 1 … 4 quantised rows of a, lda bytes apart, and b [n, blocks] of "+f.name+".",
		"m int", "n int", "blocks int", "alpha float32", "a *byte", "lda int", "b *byte", "beta float32", "c", "ldc int")
	s.params(m, "m", "n", "blocks", "a")
	s.param("lda", lda)
	s.param("b", blockPointer)
	s.params(c, "c", "ldc")
	s.do("LSL $2, R%d", ldc)
	s.do("MOVWU beta+%d(FP), R%d", s.offsets["beta"], beta)
	s.do("LSL $33, R%d", beta)
	for i := 1; i < 4; i++ {
		s.do("ADD R%d, R%d, R%d", lda, rowsOfA+i-1, rowsOfA+i)
	}
	f.constants(s)
	for rows := 1; rows <= 4; rows++ {
		skip, row, next := s.newLabel("not"), s.newLabel("row"), s.newLabel("block")
		s.do("CMP $%d, R%d", rows, m)
		s.do("BNE %s", skip)
		s.placeLabel(row)
		for i := range rows {
			s.zero(blockSums + 2*i)
			s.zero(blockSums + 2*i + 1)
			s.zero(blockLow + i)
			s.do("MOVD R%d, R%d", rowsOfA+i, at+i)
		}
		s.do("MOVD R%d, R%d", count, left)
		advance := func(record int) {
			s.do("ADD $%d, R%d", f.bytes, blockPointer)
			for i := range rows {
				s.do("ADD $%d, R%d", record, at+i)
			}
		}
		if f.large() {
			s.placeLabel(next)
			s.largeBlock(f, rows, at)
			advance(largeRecord)
			s.again(left, next)
		} else {
			done := s.newLabel("sum")
			s.placeLabel(next)
			s.smallBlock(f, rows, at, 0)
			advance(smallRecord)
			s.do("SUBS $1, R%d", left)
			s.do("BEQ %s", done)
			s.smallBlock(f, rows, at, 1)
			advance(smallRecord)
			s.again(left, next)
			s.placeLabel(done)
		}
		s.do("MOVD R%d, R%d", c, to)
		for i := range rows {
			r, overwrite := blockSums+2*i, s.newLabel("overwrite")
			s.op3("fadd", r, r, r+1)
			if f.large() && f.minima {
				s.op3("fadd", r, r, blockLow+i)
			}
			s.op3("faddp", r, r, r)
			s.op2("faddp.s", r, r)
			if !f.large() && f.minima {
				s.dupLane(blockLow+i, blockLow+i, 2)
				s.op3("fadd.s", r, r, blockLow+i)
			}
			s.floatParam("alpha", total)
			s.op3("fmul", r, r, total)
			s.do("CBZ R%d, %s", beta, overwrite)
			s.floatParam("beta", total)
			s.loadRegister(4, total+1, to, 0)
			s.op3("fmla", r, total, total+1)
			s.placeLabel(overwrite)
			s.storeRegister(4, r, to, 0)
			if i+1 < rows {
				s.do("ADD R%d, R%d", ldc, to)
			}
		}
		s.do("ADD $4, R%d", c)
		s.again(n, row)
		s.ret()
		s.placeLabel(skip)
	}
	s.ret()
}

func (s *assembly) smallBlock(f *blockFormat, rows, at, set int) {
	f.scales(s, false)
	f.unpack(s, firstHalf, secondHalf, 0)
	for i := range rows {
		s.loadRegister(16, ofA, at+i, 0)
		s.loadRegister(16, ofA+1, at+i, 16)
		s.zero(total)
		s.op3("sdot", total, firstHalf, ofA)
		s.op3("sdot", total, secondHalf, ofA+1)
		s.op2("scvtf", total, total)
		s.loadRegister(16, ofA, at+i, smallScale)
		s.fmulLane(ofA+1, ofA, commonScale, 0)
		s.fmlaLane(blockSums+2*i+set, total, ofA+1, 0)
		if f.minima {
			s.fmlaLane(blockLow+i, ofA, factors, 0) // lane 2 counts
		}
	}
}

func (s *assembly) largeBlock(f *blockFormat, rows, at int) {
	f.scales(s, false)
	if f.minima {
		vectors, offset := 2, largeSums
		if f.halves {
			vectors, offset = 4, largeHalves
		}
		for i := range rows {
			for j := range vectors {
				s.loadRegister(16, total, at+i, offset+16*j)
				s.op3("fmla", blockLow+i, blockMinima+j, total)
			}
		}
	}
	for i := range rows {
		for j := range 2 {
			s.loadRegister(16, total, at+i, largeScales+16*j)
			if f.halves {
				s.fmulLane(rowScales+2*i+j, total, commonScale, 0)
			} else {
				s.op3("fmul", rowScales+2*i+j, total, blockScales+j)
			}
		}
	}
	for g := range 8 {
		if f.halves && g%2 == 0 { // the factors of two groups
			s.op2([]string{"sshll.8h", "sshll2.8h"}[g/4], total, factors)
			s.op2([]string{"sshll.4s", "sshll2.4s"}[g/2%2], groupFactors, total)
		}
		f.unpack(s, firstHalf, secondHalf, g)
		for i := range rows {
			s.loadRegister(16, ofA, at+i, 32*g)
			s.loadRegister(16, ofA+1, at+i, 32*g+16)
			s.zero(total)
			s.op3("sdot", total, firstHalf, ofA)
			if f.halves {
				s.zero(total + 1)
				s.op3("sdot", total+1, secondHalf, ofA+1)
				s.mulLane(total, total, groupFactors, g%2*2)
				s.mlaLane(total, total+1, groupFactors, g%2*2+1)
			} else {
				s.op3("sdot", total, secondHalf, ofA+1)
			}
			s.op2("scvtf", total, total)
			s.fmlaLane(blockSums+2*i+g%2, total, rowScales+2*i+g/4, g%4)
		}
	}
}

// rowRecord says where quantise puts what of a record of groups of 32 elements; sums of halves at 0: nowhere.
type rowRecord struct {
	name                                string
	groups, bytes, scales, sums, halves int
}

var rowRecords = []rowRecord{
	{"quantise32NEON", 1, smallRecord, smallScale, smallSum, 0},
	{"quantise256NEON", 8, largeRecord, largeScales, largeSums, largeHalves},
	{"quantisePanelNEON", 1, panelRecord, panelScale, panelSum, panelHalves},
}

// emitQuantise writes a row of a as records.
func (s *assembly) emitQuantise(record rowRecord) {
	const dst, src, left = 0, 1, 2
	const magnitude, valid, inverse, scale, sums, least, infinity, most, unit = 8, 9, 10, 11, 12, 20, 21, 22, 23
	groups := record.groups
	s.function(fmt.Sprintf("%s quantises src [%d·records] to records of %d bytes.", record.name, 32*groups, record.bytes),
		"dst *byte", "src", "records int")
	s.params(dst, "dst", "src", "records")
	s.constant(least, (127-120)<<23-1) // 127 divided by less than 2⁻¹²⁰ may be infinite
	s.constant(infinity, 0x7f800000)
	s.constant(unit, 127)
	s.op2("scvtf", unit, unit)
	loop := s.newLabel("record")
	s.placeLabel(loop)
	for g := range groups {
		for i := range 8 {
			s.loadRegister(16, i, src, 128*g+16*i)
			s.op2("fabs", magnitude+i, i)
		}
		// As integers, magnitudes are in the same order, with NaN above infinity.
		for step := 4; step > 0; step /= 2 {
			for i := range step {
				s.op3("smax", magnitude+i, magnitude+i, magnitude+i+step)
			}
		}
		s.op2("smaxv", most, magnitude)
		s.op2("dup", most, most)
		s.op3("cmgt", valid, most, least)
		s.op3("cmgt", inverse, infinity, most)
		s.op3("and", valid, valid, inverse)
		s.op3("fdiv", inverse, unit, most)
		s.op3("fdiv", scale, most, unit)
		for i := range 8 {
			s.op3("fmul", i, i, inverse)
			s.op2("fcvtns", i, i)
		}
		for i := range 4 {
			s.op2("sqxtn.4h", i, 2*i)
			s.op2("sqxtn2.8h", i, 2*i+1)
		}
		for i := range 2 {
			s.op2("sqxtn.8b", i, 2*i)
			s.op2("sqxtn2.16b", i, 2*i+1)
			s.op3("and", i, i, valid)
			s.storeRegister(16, i, dst, 32*g+16*i)
			s.op2("saddlp.8h", sums+i, i)
			s.op2("saddlv.s", sums+i, sums+i)
		}
		s.op3("add", sums+2, sums, sums+1)
		for i := range 3 {
			s.op2("scvtf", sums+i, sums+i)
			s.op3("fmul", sums+i, sums+i, scale)
		}
		s.storeRegister(4, scale, dst, record.scales+4*g)
		s.storeRegister(4, sums+2, dst, record.sums+4*g)
		if record.halves > 0 {
			s.storeRegister(4, sums, dst, record.halves+8*g)
			s.storeRegister(4, sums+1, dst, record.halves+8*g+4)
		} else {
			s.do("MOVW ZR, %d(R%d)", smallOffset, dst)
		}
	}
	s.do("ADD $%d, R%d", 128*groups, src)
	s.do("ADD $%d, R%d", record.bytes, dst)
	s.again(left, loop)
	s.ret()
}

// byLane is an instruction with one lane of its last register.
func (s *assembly) byLane(name string, code uint32, d, n, m, lane int) {
	s.emitWord(code|uint32(lane&1<<21|m<<16|lane>>1<<11|n<<5|d), "%s v%d.4s, v%d.4s, v%d.s[%d]", name, d, n, m, lane)
}

func (s *assembly) fmulLane(d, n, m, lane int) { s.byLane("fmul", 0x4f809000, d, n, m, lane) }
func (s *assembly) mulLane(d, n, m, lane int)  { s.byLane("mul", 0x4f808000, d, n, m, lane) }
func (s *assembly) mlaLane(d, n, m, lane int)  { s.byLane("mla", 0x6f800000, d, n, m, lane) }

func (s *assembly) dupLane(d, n, lane int) {
	s.emitWord(0x4e040400|uint32(lane<<19|n<<5|d), "dup v%d.4s, v%d.s[%d]", d, n, lane)
}
