//go:build avo

package main

import (
	"fmt"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

func emitProduct(v isa) {
	emitMultiplyPanel(v, false)
	emitMultiplyPanel(v, true)
	for _, s := range storages {
		multiplyRows(v, s)
		emitMultiplyDots(v, s)
		emitPack(v, s)
		if v == avx2 { // in-lane shuffles of 256 bits have two ports, of 512 bits one
			emitPackTransposed(s)
		}
	}
}

// pointer loads a parameter that is a pointer or an integer.
func pointer(name string) reg.GPVirtual { return Load(Param(name), GP64()).(reg.GPVirtual) }

// stride loads a parameter that counts elements and turns it into bytes.
func stride(name string, size int) reg.GPVirtual {
	r := pointer(name)
	SHLQ(Imm(uint64(size/2)), r) // 2 or 4 bytes
	return r
}

func copyOf(r reg.GPVirtual) reg.GPVirtual {
	c := GP64()
	MOVQ(r, c)
	return c
}

// emitMultiplyPanel multiplies a by a panel of two vectors of columns. A tile of up to 12
// (AVX-512) or 6 (AVX2) rows is summed in registers over all of k: per step two
// vectors of the panel are loaded, and each row's element of a is broadcast.
func emitMultiplyPanel(v isa, transposed bool) {
	const vectors = 2
	maxRows := 6
	if v.wide() {
		maxRows = 12
	}
	name, shape := "multiplyPanel"+v.name, "[m, k]"
	if transposed {
		name, shape = "multiplyPanelT"+v.name, "[k, m]"
	}
	function(name, "func(m, width, k int, alpha float32, a *float32, lda int, panel *float32, stride int, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, width] = alpha·a·panel + beta·c, for a %s and panel [k, %d].", name, shape, vectors*v.lanes))
	m, a, lda := pointer("m"), pointer("a"), stride("lda", 4)
	panel, panelStride := pointer("panel"), stride("stride", 4)
	c, ldc := pointer("c"), stride("ldc", 4)
	var tail []mask
	if v.wide() {
		tail = v.masks(pointer("width"), vectors)
	}

	tile := func(rows int) {
		label := fmt.Sprintf("rows%d", rows)
		sums := make([][]reg.VecVirtual, rows)
		for i := range sums {
			sums[i] = v.zeros(vectors)
		}
		pointers := []reg.GPVirtual{copyOf(a)}
		row := func(i int) Mem { return Mem{Base: pointers[0], Disp: 4 * i} }
		if !transposed {
			pointers, row = rowPointers(pointers[0], lda, rows)
		}
		b, k := copyOf(panel), pointer("k")
		columns := v.vecs(vectors)

		Label(label + "k")
		for j, r := range columns {
			VMOVUPS(Mem{Base: b, Disp: j * v.vectorBytes()}, r)
		}
		ADDQ(panelStride, b)
		for i := range rows {
			x := v.broadcast(row(i))
			for j, r := range columns {
				VFMADD231PS(x, r, sums[i][j])
			}
		}
		for _, p := range pointers {
			if transposed {
				ADDQ(lda, p)
			} else {
				ADDQ(Imm(4), p)
			}
		}
		again(k, label+"k")

		storeTile(v, label, sums, c, ldc, func() []mask {
			if !v.wide() { // these masks are vector registers, free only now
				tail = v.masks(pointer("width"), vectors)
			}
			return tail
		})
	}

	tiles(maxRows, m, tile, func() {
		if transposed {
			ADDQ(Imm(uint64(4*maxRows)), a)
		} else {
			advance(a, lda, maxRows)
		}
		advance(c, ldc, maxRows)
	})
}

// rowVectors is the vectors of columns of b that multiplyRows reads of a row.
const rowVectors = 4

// multiplyRows multiplies a few rows of a by b as it lies, widened on the way: what reads b once needs no panel. The order of
// additions is that of multiplyPanel.
func multiplyRows(v isa, s storage) {
	maxRows := 2 // 8 sums, and AVX2's masks
	if v.wide() {
		maxRows = 4
	}
	name := "multiplyRows" + s.name + v.name
	function(name, "func(m, width, k int, alpha float32, a *float32, lda int, b *byte, ldb int, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, width] = alpha·a [m, k]·b [k, width] + beta·c for m in 1 … %d and a width of %s%d.",
			name, maxRows, map[bool]string{true: "up to "}[v.wide()], rowVectors*v.lanes))
	m := pointer("m")
	for rows := 1; rows <= maxRows; rows++ {
		ifRows(rows, m, func() {
			label := fmt.Sprintf("rows%d", rows)
			a, b, ldb, left := rowAddresses("a", stride("lda", 4), rows), pointer("b"), stride("ldb", s.size), pointer("k")
			ahead := copyOf(ldb) // about 4 KiB of a head of 64
			SHLQ(Imm(map[int]uint64{4: 4, 2: 5}[s.size]), ahead)
			lanes := make([]*mask, rowVectors)
			if v.wide() {
				for i, m := range v.masks(pointer("width"), rowVectors) {
					lanes[i] = &m
				}
			}
			sums := make([][]reg.VecVirtual, rows)
			for i := range sums {
				sums[i] = v.zeros(rowVectors)
			}
			Label(label + "k")
			for line := 0; line < rowVectors*v.lanes*s.size; line += 64 {
				PREFETCHT1(Mem{Base: b, Index: ahead, Scale: 1, Disp: line})
			}
			y := v.vecs(rowVectors)
			for j := range y {
				v.loadWide(s, Mem{Base: b, Disp: j * v.lanes * s.size}, lanes[j], y[j])
			}
			for i := range a {
				x := v.broadcast(Mem{Base: a[i]})
				for j := range y {
					VFMADD231PS(x, y[j], sums[i][j])
				}
				ADDQ(Imm(4), a[i])
			}
			ADDQ(ldb, b)
			again(left, label+"k")
			storeTile(v, label, sums, pointer("c"), stride("ldc", 4), func() []mask { return v.masks(pointer("width"), rowVectors) })
		})
	}
	endFunction()
}

// storeTile sets rows of c to alpha·sums + beta·c; masks are of the columns.
func storeTile(v isa, label string, sums [][]reg.VecVirtual, c, ldc reg.GPVirtual, masks func() []mask) {
	alpha := v.broadcast(parameter("alpha"))
	for i := range sums {
		for _, s := range sums[i] {
			VMULPS(alpha, s, s)
		}
	}
	tail := masks()
	at := copyOf(c)
	betaBits()
	JZ(LabelRef(label + "store"))
	scale := v.broadcast(parameter("beta"))
	for i := range sums {
		for j, s := range sums[i] {
			old := v.vec()
			v.loadLanes(Mem{Base: at, Disp: j * v.vectorBytes()}, &tail[j], old)
			VFMADD231PS(scale, old, s)
			v.storeLanes(s, &tail[j], Mem{Base: at, Disp: j * v.vectorBytes()})
		}
		ADDQ(ldc, at)
	}
	JMP(LabelRef(label + "next"))
	Label(label + "store")
	for i := range sums {
		for j, s := range sums[i] {
			v.storeLanes(s, &tail[j], Mem{Base: at, Disp: j * v.vectorBytes()})
		}
		ADDQ(ldc, at)
	}
	Label(label + "next")
}

// rowAddresses are pointers to rows of a parameter.
func rowAddresses(name string, stride reg.GPVirtual, rows int) []reg.GPVirtual {
	a := []reg.GPVirtual{pointer(name)}
	for i := 1; i < rows; i++ {
		p := GP64()
		LEAQ(Mem{Base: a[i-1], Index: stride, Scale: 1}, p)
		a = append(a, p)
	}
	return a
}

// rowPointers address rows of a by one pointer for three, plus 0, 1 or 2 strides.
func rowPointers(a, lda reg.GPVirtual, rows int) (pointers []reg.GPVirtual, row func(i int) Mem) {
	pointers = []reg.GPVirtual{a}
	for i := 3; i < rows; i += 3 {
		pointers = append(pointers, threeRows(pointers[len(pointers)-1], lda))
	}
	return pointers, func(i int) Mem {
		if i%3 == 0 {
			return Mem{Base: pointers[i/3]}
		}
		return Mem{Base: pointers[i/3], Index: lda, Scale: uint8(i % 3)}
	}
}

// threeRows is a pointer three strides on.
func threeRows(from, stride reg.GPVirtual) reg.GPVirtual {
	p := GP64()
	LEAQ(Mem{Base: from, Index: stride, Scale: 2}, p)
	ADDQ(stride, p)
	return p
}

// advance moves a pointer on by rows.
func advance(p, stride reg.GPVirtual, rows int) {
	step := GP64()
	IMUL3Q(Imm(uint64(rows)), stride, step)
	ADDQ(step, p)
}

// tiles covers m rows by tiles of up to maxRows and ends the function.
func tiles(maxRows int, m reg.GPVirtual, tile func(rows int), next func()) {
	Label("tiles")
	CMPQ(m, Imm(uint64(maxRows)))
	JLT(LabelRef("rest"))
	tile(maxRows)
	next()
	SUBQ(Imm(uint64(maxRows)), m)
	JMP(LabelRef("tiles"))
	Label("rest")
	for rows := maxRows - 1; rows > 0; rows-- {
		ifRows(rows, m, func() { tile(rows) })
	}
	endFunction()
}

// emitMultiplyDots multiplies up to four rows of a by rows of b, four at a time: each
// product of two rows is summed along k in its own register, and the registers are added
// up across at the end. A row has the same bits among any number of rows.
func emitMultiplyDots(v isa, s storage) {
	maxRows := 3 // 12 sums, 3 rows of a and one of b fill 16 registers
	if v.wide() {
		maxRows = 4
	}
	name := "multiplyDots" + s.name + v.name
	function(name, "func(m, n, k int, alpha float32, a *float32, lda int, b *byte, ldb int, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, n] = alpha·a [m, k]·b [n, k]ᵀ + beta·c for m in 1 … %d.", name, maxRows))
	m := pointer("m")
	for rows := 1; rows <= maxRows; rows++ {
		ifRows(rows, m, func() { dotRows(v, s, fmt.Sprintf("m%d", rows), rows) })
	}
	endFunction()
}

// dotColumns is the number of rows of b whose results are stored at once.
const dotColumns = 4

// sumsAlong returns, for each row of a and each of b, the products of their elements along k, added up in
// one register.
func sumsAlong(v isa, s storage, label string, a, b []reg.GPVirtual, k, ldb reg.GPVirtual) [][]reg.VecVirtual {
	rows := len(a)
	sums := make([][]reg.VecVirtual, rows)
	for i := range rows {
		sums[i] = v.zeros(len(b))
	}
	lines := s == bf16 && v.wide() // which are widened from a register
	var widen [2]reg.VecVirtual
	var upper reg.OpmaskVirtual
	if lines {
		for half := range widen {
			lanes := make([]uint32, v.lanes)
			for i := range lanes {
				lanes[i] = uint32(half*v.lanes+i) << 16
			}
			widen[half] = v.vec()
			VMOVUPS(words([]string{"widenLower", "widenUpper"}[half], lanes...), widen[half])
		}
		bits := GP32()
		MOVL(U32(0xaaaaaaaa), bits)
		upper = K()
		KMOVD(bits, upper)
	}
	at, left := GP64(), GP64()
	if lines { // 0: rows begin in the middle of a cache line
		MOVQ(b[0], at)
		XORQ(Imm(32), at)
		ORQ(ldb, at)
		ANDQ(Imm(63), at)
	} else {
		XORQ(at, at)
	}
	MOVQ(k, left)
	ahead := copyOf(ldb) // past these rows: most are followed by the next ones
	SHLQ(Imm(2), ahead)
	ADDQ(I32(4096), ahead)
	step := func(load func(s storage, from Mem, m *mask, to reg.VecVirtual), m *mask, u int) {
		x := v.vecs(rows)
		for i := range x {
			load(f32, Mem{Base: a[i], Index: at, Scale: 4, Disp: u * v.vectorBytes()}, m, x[i])
		}
		for j := range b {
			y := v.vec()
			load(s, Mem{Base: b[j], Index: at, Scale: uint8(s.size), Disp: u * v.lanes * s.size}, m, y)
			for i := range x {
				VFMADD231PS(x[i], y, sums[i][j])
			}
		}
	}
	// wholeLine multiplies a cache line of bfloat16; each half becomes a vector of float32 by one instruction.
	wholeLine := func() {
		var x [2][]reg.VecVirtual
		for half := range x {
			x[half] = v.vecs(rows)
			for i := range rows {
				VMOVUPS(Mem{Base: a[i], Index: at, Scale: 4, Disp: half * v.vectorBytes()}, x[half][i])
			}
		}
		for j := range b {
			y := v.vec()
			VMOVUPS(Mem{Base: b[j], Index: at, Scale: 2}, y)
			for half := range x {
				z := v.vec()
				VPERMW_Z(y, widen[half], upper, z)
				for i := range rows {
					VFMADD231PS(x[half][i], z, sums[i][j])
				}
			}
		}
	}
	if lines {
		// Rows that begin in the middle of a cache line, as in many files, are read by lines after that half.
		TESTQ(at, at)
		JNZ(LabelRef(label + "whole"))
		CMPQ(left, Imm(uint64(v.lanes)))
		JLT(LabelRef(label + "whole"))
		step(v.loadWide, nil, 0)
		ADDQ(I32(v.lanes), at)
		SUBQ(I32(v.lanes), left)
		JMP(LabelRef(label + "line"))
		Label(label + "whole")
		XORQ(at, at)
	}
	line := max(1, 64/(v.lanes*s.size)) // vectors of a row that are a cache line
	Label(label + "line")
	SUBQ(I32(line*v.lanes), left)
	JLT(LabelRef(label + "lineend"))
	next := func(j int) Mem { return Mem{Base: b[0], Index: ahead, Scale: 1, Disp: 64 * j} } // as memory lies
	pastLevel2(label, func() {
		for j := range b {
			PREFETCHNTA(next(j))
		}
	}, func() {
		for j := range b { // into the level-2 cache: more loads can wait there
			PREFETCHT1(next(j))
		}
	})
	if lines {
		wholeLine()
	} else {
		for u := range line {
			step(v.loadWide, nil, u)
		}
	}
	ADDQ(I32(line*v.lanes), at)
	ADDQ(I32(dotColumns*line*v.lanes*s.size), ahead)
	JMP(LabelRef(label + "line"))
	Label(label + "lineend")
	ADDQ(I32(line*v.lanes), left)
	Label(label + "vector")
	SUBQ(I32(v.lanes), left)
	JLT(LabelRef(label + "tail"))
	step(v.loadWide, nil, 0)
	ADDQ(I32(v.lanes), at)
	JMP(LabelRef(label + "vector"))
	Label(label + "tail")
	ADDQ(I32(v.lanes), left)
	JZ(LabelRef(label + "sum"))
	if v.wide() {
		step(v.loadWide, &v.masks(left, 1)[0], 0)
	} else {
		// AVX2 has no masked load of 16-bit elements, and no register is left for a
		// mask: one element in lane 0, the other lanes 0.
		Label(label + "scalar")
		step(func(s storage, from Mem, _ *mask, to reg.VecVirtual) {
			VXORPS(to, to, to)
			if s == f32 {
				VMOVSS(from, to.AsX())
				return
			}
			bits := GP32()
			MOVWLZX(from, bits)
			if s == bf16 {
				SHLL(Imm(16), bits)
			}
			VMOVD(bits, to.AsX())
			if s == f16 {
				VCVTPH2PS(to.AsX(), to.AsX())
			}
		}, nil, 0)
		INCQ(at)
		again(left, label+"scalar")
	}
	Label(label + "sum")
	return sums
}

// dotRows multiplies rows of a by rows of b, dotColumns of them side by side.
func dotRows(v isa, s storage, label string, rows int) {
	n, k, c := pointer("n"), pointer("k"), pointer("c")
	a := rowAddresses("a", stride("lda", 4), rows)
	next := pointer("b")

	Label(label + "columns")
	b := make([]reg.GPVirtual, dotColumns)
	ldb := stride("ldb", s.size)
	for j := range b {
		b[j] = copyOf(next)
		ADDQ(ldb, next)
	}
	// Past the last row the first one is read again; its results are not stored.
	for j := 1; j < dotColumns; j++ {
		CMPQ(n, Imm(uint64(j)))
		CMOVQLE(b[0], b[j])
	}
	sums := sumsAlong(v, s, label, a, b, k, ldb)
	// n may exceed the lanes of a mask.
	width := GP64()
	four := GP64()
	MOVQ(n, width)
	MOVQ(U32(dotColumns), four)
	CMPQ(width, four)
	CMOVQGT(four, width)
	lanes := &v.masks(width, 1)[0]
	if !v.wide() {
		lanes.y = lanes.y.AsX().(reg.VecVirtual)
	}
	alpha, beta, bits := XMM(), XMM(), GP32()
	VBROADCASTSS(parameter("alpha"), alpha)
	VBROADCASTSS(parameter("beta"), beta)
	MOVL(parameter("beta"), bits)
	ldc := stride("ldc", 4)
	row := copyOf(c)
	results := make([]reg.VecVirtual, rows)
	for i := range rows {
		results[i] = v.sumAcross(sums[i])
		VMULPS(alpha, results[i], results[i])
	}
	ADDL(bits, bits)
	JZ(LabelRef(label + "store"))
	for i := range rows {
		old := XMM()
		v.loadLanes(Mem{Base: row}, lanes, old)
		VFMADD231PS(beta, old, results[i])
		if i+1 < rows {
			ADDQ(ldc, row)
		}
	}
	MOVQ(c, row)
	Label(label + "store")
	for i := range rows {
		v.storeLanes(results[i], lanes, Mem{Base: row})
		if i+1 < rows {
			ADDQ(ldc, row)
		}
	}
	ADDQ(Imm(4*dotColumns), c)
	SUBQ(Imm(dotColumns), n)
	JGT(LabelRef(label + "columns"))
}

// sumAcross returns the sums of the lanes of four registers in one.
func (v isa) sumAcross(r []reg.VecVirtual) reg.VecVirtual {
	y := make([]reg.Register, len(r))
	for i := range r {
		y[i] = r[i].AsY()
		if v.wide() {
			upper := YMM()
			VEXTRACTF64X4(Imm(1), r[i], upper)
			VADDPS(upper, r[i].AsY(), r[i].AsY())
		}
	}
	VHADDPS(y[1], y[0], y[0])
	VHADDPS(y[3], y[2], y[2])
	VHADDPS(y[2], y[0], y[0])
	upper, sum := XMM(), XMM()
	VEXTRACTF128(Imm(1), y[0], upper)
	VADDPS(upper, r[0].AsX(), sum)
	return sum
}

// emitPack copies rows of two vectors, widened; of AVX2 with 16-bit elements only whole
// ones.
func emitPack(v isa, s storage) {
	name := "pack" + s.name + v.name
	function(name, "func(dst *float32, b *byte, ldb, width, k int)",
		fmt.Sprintf("%s copies b [k, width] to dst [k, %d] as float32.", name, 2*v.lanes))
	dst, b, ldb, k := pointer("dst"), pointer("b"), stride("ldb", s.size), pointer("k")
	var lanes [2]*mask
	if v.wide() || s == f32 {
		masks := v.masks(pointer("width"), 2)
		lanes = [2]*mask{&masks[0], &masks[1]}
	}
	Label("row")
	PREFETCHT1(Mem{Base: b, Disp: 4 * v.lanes * s.size}) // a panel that comes later
	for j := range 2 {
		x := v.vec()
		v.loadWide(s, Mem{Base: b, Disp: j * v.lanes * s.size}, lanes[j], x)
		VMOVUPS(x, Mem{Base: dst, Disp: j * v.vectorBytes()})
	}
	ADDQ(ldb, b)
	ADDQ(I32(2*v.vectorBytes()), dst)
	again(k, "row")
	endFunction()
}

// emitPackTransposed transposes blocks of 16 rows by 32 bytes.
func emitPackTransposed(s storage) {
	v := avx2
	depth := 8 // elements of a row in a block
	if s == bf16 {
		depth = 16
	}
	name := "packTransposed" + s.name
	function(name, "func(dst *float32, columns int, b *byte, ldb, blocks int)",
		fmt.Sprintf("%s copies b [16, %d·blocks] to dst [%d·blocks, 16] with row stride columns, transposed, as float32.",
			name, depth, depth))
	dst, columns := pointer("dst"), stride("columns", 4)
	ldb, blocks := stride("ldb", s.size), pointer("blocks")
	ldb3 := GP64()
	LEAQ(Mem{Base: ldb, Index: ldb, Scale: 2}, ldb3)
	rows := []reg.GPVirtual{pointer("b")} // of rows 0, 4, 8 and 12
	for i := range 3 {
		r := GP64()
		LEAQ(Mem{Base: rows[i], Index: ldb, Scale: 4}, r)
		rows = append(rows, r)
	}
	source := func(i int) Mem {
		switch i % 4 {
		case 0:
			return Mem{Base: rows[i/4]}
		case 3:
			return Mem{Base: rows[i/4], Index: ldb3, Scale: 1}
		}
		return Mem{Base: rows[i/4], Index: ldb, Scale: uint8(i % 4)}
	}
	var upper reg.VecVirtual
	if s == bf16 {
		upper = v.vec()
		VPCMPEQD(upper, upper, upper)
		VPSLLD(Imm(16), upper, upper)
	}
	// A word is an element, or a pair of bfloat16. Of four words of each of the rows
	// 8h … 8h+7 at a time, out[i] gets word i; at is where the first one goes.
	words := func(h, word int, at reg.GPVirtual) {
		x := v.vecs(4) // rows 8h+i and 8h+i+4
		for i := range x {
			low, high := source(8*h+i), source(8*h+i+4)
			if s == f16 {
				VXORPS(x[i], x[i], x[i])
				VCVTPH2PS(low.Offset(2*word), x[i].AsX())
				r := v.vec()
				VCVTPH2PS(high.Offset(2*word), r.AsX())
				VINSERTF128(Imm(1), r.AsX(), x[i], x[i])
				continue
			}
			VBROADCASTF128(low.Offset(4*word), x[i]) // a plain load, that defines the whole register
			VINSERTF128(Imm(1), high.Offset(4*word), x[i], x[i])
		}
		// The integer forms of these shuffles run on two ports of recent processors, the
		// floating-point forms on one.
		t := v.vecs(4)
		VPUNPCKLDQ(x[1], x[0], t[0]) // 0₀ 1₀ 0₁ 1₁
		VPUNPCKHDQ(x[1], x[0], t[1]) // 0₂ 1₂ 0₃ 1₃
		VPUNPCKLDQ(x[3], x[2], t[2])
		VPUNPCKHDQ(x[3], x[2], t[3])
		out := v.vecs(4)
		VPUNPCKLQDQ(t[2], t[0], out[0])
		VPUNPCKHQDQ(t[2], t[0], out[1])
		VPUNPCKLQDQ(t[3], t[1], out[2])
		VPUNPCKHQDQ(t[3], t[1], out[3])
		for _, y := range out {
			if s == bf16 {
				first := v.vec()
				VPSLLD(Imm(16), y, first)
				VMOVUPS(first, Mem{Base: at, Disp: 32 * h})
				ADDQ(columns, at)
				VPAND(upper, y, y)
			}
			VMOVUPS(y, Mem{Base: at, Disp: 32 * h})
			ADDQ(columns, at)
		}
	}
	// Rows are often a power of two apart and then share one set of the level-1 cache:
	// of no more than 8 rows at a time, whole cache lines are taken. The same lines of
	// the 16 rows that come next are on their way to the level-2 cache meanwhile.
	take := func(blocks int) {
		var at reg.GPVirtual
		for h := range 2 {
			at = copyOf(dst)
			for word := 0; word < 8*blocks; word += 4 {
				words(h, word, at)
			}
		}
		MOVQ(at, dst)
		for _, r := range rows {
			ADDQ(I32(blocks*depth*s.size), r)
		}
	}
	next := copyOf(ldb)
	SHLQ(Imm(4), next)
	Label("line")
	SUBQ(Imm(2), blocks)
	JLT(LabelRef("last"))
	for i := range 4 {
		ahead := GP64()
		LEAQ(Mem{Base: rows[i], Index: next, Scale: 1}, ahead)
		PREFETCHT1(Mem{Base: ahead})
		PREFETCHT1(Mem{Base: ahead, Index: ldb, Scale: 1})
		PREFETCHT1(Mem{Base: ahead, Index: ldb, Scale: 2})
		PREFETCHT1(Mem{Base: ahead, Index: ldb3, Scale: 1})
	}
	take(2)
	JMP(LabelRef("line"))
	Label("last")
	ADDQ(Imm(2), blocks)
	JZ(LabelRef("done"))
	take(1)
	Label("done")
	endFunction()
}
