package main

import "fmt"

// storage is a type of elements of b.
type storage struct {
	name string
	size int
}

var storages = []storage{{"F32", 4}, {"BF16", 2}, {"F16", 2}}

// widenElements loads 1, 4 or 8 elements as float32 to register v, the upper four of 8 to w.
func (s *assembly) widenElements(t storage, elements, v, w, base int) {
	s.loadRegister(min(t.size*elements, 16), v, base, 0)
	if t.size == 4 {
		if elements == 8 {
			s.loadRegister(16, w, base, 16)
		}
		return
	}
	op := map[string]string{"BF16": "shll16", "F16": "fcvtl"}[t.name]
	if elements == 8 {
		s.op2(op+".2", w, v)
	}
	s.op2(op, v, v)
}

func emitProduct(s *assembly) {
	emitMultiplyPanel(s, false)
	emitMultiplyPanel(s, true)
	for _, t := range storages {
		emitMultiplyDots(s, t)
		emitPackTransposed(s, t)
		emitPack(s, t)
	}
}

// emitMultiplyPanel multiplies a by a panel of 16 columns. A tile of up to six rows is
// summed in 24 registers over all of k; elements of a are taken from the lanes of
// registers, four depths of a row or four rows of a depth in each.
func emitMultiplyPanel(s *assembly, transposed bool) {
	const (
		maxRows = 6
		m       = 0 // general registers
		a       = 1
		lda     = 2
		panel   = 3
		stride  = 4
		c       = 5
		ldc     = 6
		k       = 7
		b       = 8
		left    = 9
		rowsOfA = 10 // … 15
		at      = 16
		beta    = 17
		pa      = 19
		sums    = 0  // vector registers: 0 … 23
		x       = 24 // … 29, elements of a
		y       = 30 // and 31, of the panel
	)
	name, shape := "multiplyPanelNEON", "[m, k]"
	if transposed {
		name, shape = "multiplyPanelTNEON", "[k, m]"
	}
	s.function(fmt.Sprintf("%s sets c [m, 16] = alpha·a·panel + beta·c, for a %s and panel [k, 16].", name, shape),
		"m int", "k int", "alpha float32", "a", "lda int", "panel", "stride int", "beta float32", "c", "ldc int")
	s.param("m", m)
	s.param("k", k)
	s.params(a, "a", "lda", "panel", "stride", "c", "ldc")
	for _, r := range []int{lda, stride, ldc} {
		s.do("LSL $2, R%d", r)
	}
	s.do("MOVWU beta+%d(FP), R%d", s.offsets["beta"], beta)
	s.do("LSL $33, R%d", beta) // without its sign

	tile := func(rows int) {
		for i := range 4 * rows {
			s.zero(sums + i)
		}
		s.do("MOVD R%d, R%d", panel, b)
		s.do("MOVD R%d, R%d", k, left)
		depth := func(element func(row int) (register, lane int)) {
			for j := range 4 {
				s.loadRegister(16, y+j%2, b, 16*j)
				for i := range rows {
					r, lane := element(i)
					s.fmlaLane(sums+4*i+j, y+j%2, r, lane)
				}
			}
			s.do("ADD R%d, R%d", stride, b)
		}
		if transposed {
			loop := s.newLabel("depth")
			s.do("MOVD R%d, R%d", a, pa)
			s.placeLabel(loop)
			s.loadLanes(rows, x, pa)
			s.do("ADD R%d, R%d", lda, pa)
			depth(func(row int) (int, int) {
				register, lane := laneOf(rows, row)
				return x + register, lane
			})
			s.again(left, loop)
		} else {
			four, single, done := s.newLabel("four"), s.newLabel("single"), s.newLabel("summed")
			s.do("MOVD R%d, R%d", a, rowsOfA)
			for i := 1; i < rows; i++ {
				s.do("ADD R%d, R%d, R%d", lda, rowsOfA+i-1, rowsOfA+i)
			}
			s.do("SUBS $4, R%d", left)
			s.do("BLT %s", single)
			s.placeLabel(four)
			for i := range rows {
				s.loadRegister(16, x+i, rowsOfA+i, 0)
				s.do("ADD $16, R%d", rowsOfA+i)
			}
			for lane := range 4 {
				depth(func(row int) (int, int) { return x + row, lane })
			}
			s.do("SUBS $4, R%d", left)
			s.do("BGE %s", four)
			s.placeLabel(single)
			s.do("ADDS $4, R%d", left)
			s.do("BEQ %s", done)
			one := s.newLabel("one")
			s.placeLabel(one)
			for i := range rows {
				s.loadRegister(4, x+i, rowsOfA+i, 0)
				s.do("ADD $4, R%d", rowsOfA+i)
			}
			depth(func(row int) (int, int) { return x + row, 0 })
			s.again(left, one)
			s.placeLabel(done)
		}
		overwrite, next := s.newLabel("overwrite"), s.newLabel("next")
		s.floatParam("alpha", x)
		for i := range 4 * rows {
			s.op3("fmul", sums+i, sums+i, x)
		}
		s.do("MOVD R%d, R%d", c, at)
		s.do("CBZ R%d, %s", beta, overwrite)
		s.floatParam("beta", x)
		for i := range rows {
			for j := range 4 {
				s.loadRegister(16, y+j%2, at, 16*j)
				s.op3("fmla", sums+4*i+j, y+j%2, x)
				s.storeRegister(16, sums+4*i+j, at, 16*j)
			}
			s.do("ADD R%d, R%d", ldc, at)
		}
		s.do("JMP %s", next)
		s.placeLabel(overwrite)
		for i := range rows {
			for j := range 4 {
				s.storeRegister(16, sums+4*i+j, at, 16*j)
			}
			s.do("ADD R%d, R%d", ldc, at)
		}
		s.placeLabel(next)
	}

	s.placeLabel("tiles")
	s.do("CMP $%d, R%d", maxRows, m)
	s.do("BLT rest")
	tile(maxRows)
	s.do("MOVD R%d, R%d", at, c)
	if transposed {
		s.do("ADD $%d, R%d", 4*maxRows, a)
	} else {
		s.do("ADD R%d<<1, R%d", lda, a) // six strides
		s.do("ADD R%d<<2, R%d", lda, a)
	}
	s.do("SUB $%d, R%d", maxRows, m)
	s.do("JMP tiles")
	s.rest(maxRows, m, tile)
}

// loadLanes loads an element of each of up to six rows, which follow each other, from general register from on: four into
// register v, the others into v + 4, and of less than four rows two into v and the third into v + 2.
func (s *assembly) loadLanes(rows, v, from int) {
	for i := 0; i < rows; {
		size := 4
		switch {
		case rows-i >= 4:
			size = 16
		case rows-i >= 2:
			size = 8
		}
		s.loadRegister(size, v+i, from, 0)
		i += size / 4
		if i < rows {
			s.do("ADD $%d, R%d", size, from)
		}
	}
	if rest := map[int]int{1: 0, 2: 0, 3: 8, 4: 0, 5: 16, 6: 16}[rows]; rest > 0 {
		s.do("SUB $%d, R%d", rest, from)
	}
}

// laneOf is where loadLanes puts a row's element, as registers after the first.
func laneOf(rows, row int) (register, lane int) {
	switch {
	case rows >= 4 && row < 4:
		return 0, row
	case rows >= 4:
		return 4, row - 4
	case row < 2:
		return 0, row
	}
	return 2, 0
}

// emitMultiplyDots multiplies up to four rows of a by rows of b, four at a time. Each
// product of two rows is summed along k in its own register.
func emitMultiplyDots(s *assembly, t storage) {
	const (
		columns = 4
		m       = 0 // general registers
		n       = 1
		k       = 2
		a       = 3 // … 6: rows
		next    = 7
		b       = 8 // … 11: rows
		left    = 12
		c       = 13
		ldc     = 14
		beta    = 15
		at      = 16
		ldb     = 17
		back    = 19
		sums    = 0  // vector registers: 0 … 15
		x       = 16 // … 19
		y       = 20 // … 27
	)
	name := "multiplyDots" + t.name + "NEON"
	s.function(name+" sets c [m, n] = alpha·a [m, k]·b [n, k]ᵀ + beta·c for m in 1 … 4 and n a multiple of 4.",
		"m int", "n int", "k int", "alpha float32", "a", "lda int", "b *byte", "ldb int", "beta float32", "c", "ldc int")
	s.params(m, "m", "n", "k")
	s.param("b", next)
	s.param("ldb", ldb)
	s.params(c, "c", "ldc")
	s.do("LSL $%d, R%d", t.size/2, ldb)
	s.do("LSL $2, R%d", ldc)
	s.do("MOVWU beta+%d(FP), R%d", s.offsets["beta"], beta)
	s.do("LSL $33, R%d", beta)
	for rows := 1; rows <= 4; rows++ {
		skip, column := s.newLabel("not"), s.newLabel("columns")
		s.do("CMP $%d, R%d", rows, m)
		s.do("BNE %s", skip)
		s.param("a", a)
		s.param("lda", at)
		s.do("LSL $2, R%d", at)
		for i := 1; i < rows; i++ {
			s.do("ADD R%d, R%d, R%d", at, a+i-1, a+i)
		}
		s.placeLabel(column)
		for j := range columns {
			s.do("MOVD R%d, R%d", next, b+j)
			s.do("ADD R%d, R%d", ldb, next)
		}
		for i := range rows * columns {
			s.zero(sums + i)
		}
		step := func(elements int) {
			for i := range rows {
				s.loadRegister(min(4*elements, 16), x+i, a+i, 0)
				if elements == 8 {
					s.loadRegister(16, x+1, a, 16)
				}
				s.do("ADD $%d, R%d", 4*elements, a+i)
			}
			for j := range columns {
				s.widenElements(t, elements, y+j, y+columns+j, b+j)
				s.do("ADD $%d, R%d", elements*t.size, b+j)
			}
			for j := range columns {
				for i := range rows {
					s.op3("fmla", sums+i*columns+j, y+j, x+i)
				}
			}
			if elements == 8 { // of one row
				for j := range columns {
					s.op3("fmla", sums+j, y+columns+j, x+1)
				}
			}
		}
		s.do("MOVD R%d, R%d", k, left)
		steps := []int{4, 1}
		if rows == 1 {
			steps = []int{8, 4, 1}
		}
		for _, elements := range steps {
			s.repeatSteps("step", elements, left, func() { step(elements) })
			s.do("ADD $%d, R%d", elements, left)
		}
		// Back to the starts of the rows of a.
		s.do("LSL $2, R%d, R%d", k, back)
		for i := range rows {
			s.do("SUB R%d, R%d", back, a+i)
		}
		s.floatParam("alpha", x)
		for i := range rows {
			r := sums + i*columns
			s.op3("faddp", r, r, r+1)
			s.op3("faddp", r+2, r+2, r+3)
			s.op3("faddp", r, r, r+2)
			s.op3("fmul", r, r, x)
		}
		overwrite := s.newLabel("overwrite")
		s.do("CBZ R%d, %s", beta, overwrite)
		s.floatParam("beta", x)
		s.do("MOVD R%d, R%d", c, at)
		for i := range rows {
			s.loadRegister(16, y, at, 0)
			s.op3("fmla", sums+i*columns, y, x)
			s.do("ADD R%d, R%d", ldc, at)
		}
		s.placeLabel(overwrite)
		s.do("MOVD R%d, R%d", c, at)
		for i := range rows {
			s.storeRegister(16, sums+i*columns, at, 0)
			s.do("ADD R%d, R%d", ldc, at)
		}
		s.do("ADD $%d, R%d", 4*columns, c)
		s.do("SUBS $%d, R%d", columns, n)
		s.do("BGT %s", column)
		s.ret()
		s.placeLabel(skip)
	}
	s.ret()
}

// emitPackTransposed transposes blocks of 16 rows by 4 elements.
func emitPackTransposed(s *assembly, t storage) {
	const (
		dst, columns, b, ldb, blocks = 0, 1, 2, 3, 4
		row, at                      = 5, 6
		x, y, z                      = 0, 4, 16 // vector registers
	)
	name := "packTransposed" + t.name + "NEON"
	s.function(name+" copies b [16, 4·blocks] to dst [4·blocks, 16] with row stride columns, transposed, as float32.",
		"dst", "columns int", "b *byte", "ldb int", "blocks int")
	s.params(dst, "dst", "columns", "b", "ldb", "blocks")
	s.do("LSL $2, R%d", columns)
	s.do("LSL $%d, R%d", t.size/2, ldb)
	s.placeLabel("block")
	s.do("MOVD R%d, R%d", b, row)
	for group := range 4 { // of four rows
		for i := range 4 {
			s.widenElements(t, 4, x+i, 0, row)
			s.do("ADD R%d, R%d", ldb, row)
		}
		s.op3("trn1", y, x, x+1)   // 0₀ 1₀ 0₂ 1₂
		s.op3("trn2", y+1, x, x+1) // 0₁ 1₁ 0₃ 1₃
		s.op3("trn1", y+2, x+2, x+3)
		s.op3("trn2", y+3, x+2, x+3)
		s.op3("zip1.2d", z+group, y, y+2)
		s.op3("zip1.2d", z+4+group, y+1, y+3)
		s.op3("zip2.2d", z+8+group, y, y+2)
		s.op3("zip2.2d", z+12+group, y+1, y+3)
	}
	for depth := range 4 {
		for group := range 4 {
			s.storeRegister(16, z+4*depth+group, dst, 16*group)
		}
		s.do("ADD R%d, R%d", columns, dst)
	}
	s.do("ADD $%d, R%d", 4*t.size, b)
	s.again(blocks, "block")
	s.ret()
}

// emitPack copies rows of 16 elements, widened.
func emitPack(s *assembly, t storage) {
	const dst, b, ldb, k, at = 0, 1, 2, 3, 4
	name := "pack" + t.name + "NEON"
	s.function(name+" copies b [k, 16] to dst [k, 16] as float32.", "dst", "b *byte", "ldb int", "k int")
	s.params(dst, "dst", "b", "ldb", "k")
	s.do("LSL $%d, R%d", t.size/2, ldb)
	s.placeLabel("row")
	s.do("MOVD R%d, R%d", b, at)
	for half := range 2 {
		s.widenElements(t, 8, 2*half, 2*half+1, at)
		s.do("ADD $%d, R%d", 8*t.size, at)
		s.storeRegister(16, 2*half, dst, 32*half)
		s.storeRegister(16, 2*half+1, dst, 32*half+16)
	}
	s.do("ADD R%d, R%d", ldb, b)
	s.do("ADD $64, R%d", dst)
	s.again(k, "row")
	s.ret()
}
