package main

import "fmt"

// Records of a and panels of bytes, as in the generator for amd64: 32 bytes, their scale, the scaled sum, the sums of
// the halves. Bytes are signed, so that offsets are not used.
const (
	panelRecord = 64
	panelScale  = 32
	panelSum    = 36
	panelHalves = 40
	panelMinima = 4096 // bytes after the scales
)

// unpackBlocks writes a row of blocks as what panels of bytes are made of.
func (s *assembly) unpackBlocks(f *blockFormat) {
	const dst, scales, minima, left = 1, 2, 3, 4
	const x, y = 0, 1 // vector registers
	parts := 1
	if f.halves {
		parts = 2
	}
	name := "unpack" + f.name + "NEON"
	s.function(fmt.Sprintf("%s writes blocks of %s as signed bytes, with the %d scales of each 32 elements and, if it has them, as many minima.",
		name, f.name, parts), "dst *byte", "scales", "minima", "src *byte", "blocks int")
	s.params(dst, "dst", "scales", "minima")
	s.param("src", blockPointer)
	s.param("blocks", left)
	f.constants(s)
	loop := s.newLabel("block")
	s.placeLabel(loop)
	f.scales(s, true)
	groups := f.elems / 32
	write := func(v, to int) {
		for i := range (groups*parts + 3) / 4 {
			s.storeRegister(min(4*groups*parts, 16), v+i, to, 16*i)
		}
		s.do("ADD $%d, R%d", 4*groups*parts, to)
	}
	first, low := commonScale, factors
	if f.large() {
		first, low = blockScales, blockMinima
	}
	write(first, scales)
	if f.minima {
		write(low, minima)
	}
	for g := range groups {
		f.unpack(s, x, y, g)
		s.storeRegister(16, x, dst, 32*g)
		s.storeRegister(16, y, dst, 32*g+16)
	}
	s.do("ADD $%d, R%d", f.elems, dst)
	s.do("ADD $%d, R%d", f.bytes, blockPointer)
	s.again(left, loop)
	s.ret()
}

// multiplyBytes multiplies records of a by a panel of bytes of 16 columns, four depths of a column in a word.
// A tile of up to three rows is summed in registers: by integers within a group of 32 elements or, with halves, of
// 16, by float32 across groups. A load of 16 bytes of a row serves four words of the panel.
func (s *assembly) multiplyBytes(halves, minima bool) {
	const (
		maxRows = 3
		m       = 0 // general registers
		width   = 1
		groups  = 2
		panel   = 3
		scales  = 4
		scratch = 5
		a       = 6
		lda     = 7
		c       = 8
		ldc     = 9
		rowsOfA = 10 // … 12
		b       = 13
		scale   = 14
		left    = 15
		at      = 16
		beta    = 17
		from    = 19
		to      = 20
		columns = 21
		sums    = 0  // vector registers: 0 … 11
		dots    = 12 // … 23
		y       = 24 // … 27, of the panel or its scales
		x       = 28 // … 30, of rows
	)
	name, parts, with := "multiplyBytes", 1, ""
	if halves {
		name, parts = name+"Halves", 2
	}
	if minima {
		name, with = name+"Minima", fmt.Sprintf(" and, %d bytes on, minima", panelMinima)
	}
	name += "SDOT"
	s.function(fmt.Sprintf("%s sets c [m, width] = alpha·a·panel + beta·c, for records of a [m, groups], lda bytes apart, and panel [groups, 8, 16] words of bytes with scales%s [groups, %d, 16]; sums [16] is scratch memory.",
		name, with, parts),
		"m int", "width int", "groups int", "alpha float32", "a *byte", "lda int", "panel *byte", "scales", "sums", "beta float32", "c", "ldc int")
	s.params(m, "m", "width", "groups", "panel", "scales", "sums", "a", "lda", "c", "ldc")
	s.do("LSL $2, R%d", ldc)
	s.do("MOVWU beta+%d(FP), R%d", s.offsets["beta"], beta)
	s.do("LSL $33, R%d", beta) // without its sign

	tile := func(rows int) {
		each := func(do func(i, j, r int)) { // sums, and dots as far from them
			for i := range rows {
				for j := range 4 {
					do(i, j, 4*i+j)
				}
			}
		}
		each(func(_, _, r int) { s.zero(sums + r) })
		s.do("MOVD R%d, R%d", a, rowsOfA)
		for i := 1; i < rows; i++ {
			s.do("ADD R%d, R%d, R%d", lda, rowsOfA+i-1, rowsOfA+i)
		}
		s.do("MOVD R%d, R%d", panel, b)
		s.do("MOVD R%d, R%d", scales, scale)
		s.do("MOVD R%d, R%d", groups, left)
		loop := s.newLabel("group")
		s.placeLabel(loop)
		for half := range 2 {
			part := half * (parts - 1)
			if half < parts {
				each(func(_, _, r int) { s.zero(dots + r) })
			}
			for i := range rows {
				s.loadRegister(16, x+i, rowsOfA+i, 16*half)
			}
			for word := range 4 {
				for j := range 4 {
					s.loadRegister(16, y+j, b, 64*(4*half+word)+16*j)
				}
				each(func(i, j, r int) { s.sdotLane(dots+r, y+j, x+i, word) })
			}
			if !halves && half == 0 {
				continue
			}
			sum := (panelSum - panelScale) / 4
			if halves {
				sum = (panelHalves-panelScale)/4 + part
			}
			for j := range 4 {
				s.loadRegister(16, y+j, scale, 64*part+16*j)
			}
			for i := range rows {
				s.loadRegister(16, x+i, rowsOfA+i, panelScale)
			}
			each(func(_, j, r int) {
				s.op2("scvtf", dots+r, dots+r)
				s.op3("fmul", dots+r, dots+r, y+j)
			})
			each(func(i, _, r int) { s.fmlaLane(sums+r, dots+r, x+i, 0) })
			if minima {
				for j := range 4 {
					s.loadRegister(16, y+j, scale, panelMinima+64*part+16*j)
				}
				each(func(i, j, r int) { s.fmlaLane(sums+r, y+j, x+i, sum) })
			}
		}
		for i := range rows {
			s.do("ADD $%d, R%d", panelRecord, rowsOfA+i)
		}
		s.do("ADD $512, R%d", b)
		s.do("ADD $%d, R%d", 64*parts, scale)
		s.again(left, loop)

		s.floatParam("alpha", x)
		s.floatParam("beta", x+1)
		each(func(_, _, r int) { s.op3("fmul", sums+r, sums+r, x) })
		s.do("MOVD R%d, R%d", c, at)
		for i := range rows {
			narrow, overwrite, element, set, next := s.newLabel("narrow"), s.newLabel("overwrite"), s.newLabel("element"), s.newLabel("set"), s.newLabel("next")
			s.do("CMP $16, R%d", width)
			s.do("BLT %s", narrow)
			s.do("CBZ R%d, %s", beta, overwrite)
			for j := range 4 {
				s.loadRegister(16, y, at, 16*j)
				s.op3("fmla", sums+4*i+j, y, x+1)
			}
			s.placeLabel(overwrite)
			for j := range 4 {
				s.storeRegister(16, sums+4*i+j, at, 16*j)
			}
			s.do("JMP %s", next)
			s.placeLabel(narrow)
			for j := range 4 {
				s.storeRegister(16, sums+4*i+j, scratch, 16*j)
			}
			s.do("MOVD R%d, R%d", scratch, from)
			s.do("MOVD R%d, R%d", at, to)
			s.do("MOVD R%d, R%d", width, columns)
			s.placeLabel(element)
			s.loadRegister(4, y, from, 0)
			s.do("CBZ R%d, %s", beta, set)
			s.loadRegister(4, y+1, to, 0)
			s.op3("fmla", y, y+1, x+1)
			s.placeLabel(set)
			s.storeRegister(4, y, to, 0)
			s.do("ADD $4, R%d", from)
			s.do("ADD $4, R%d", to)
			s.again(columns, element)
			s.placeLabel(next)
			s.do("ADD R%d, R%d", ldc, at)
		}
	}
	s.placeLabel("tiles")
	s.do("CMP $%d, R%d", maxRows, m)
	s.do("BLT rest")
	tile(maxRows)
	s.do("MOVD R%d, R%d", at, c)
	s.do("ADD R%d, R%d", lda, a)
	s.do("ADD R%d<<1, R%d", lda, a)
	s.do("SUB $%d, R%d", maxRows, m)
	s.do("JMP tiles")
	s.rest(maxRows, m, tile)
}

// sdotLane adds to the words of d the products of the bytes of n and the four of a word of m.
func (s *assembly) sdotLane(d, n, m, lane int) {
	s.emitWord(0x4f80e000|uint32(lane&1<<21|m<<16|lane>>1<<11|n<<5|d), "sdot v%d.4s, v%d.16b, v%d.4b[%d]", d, n, m, lane)
}
