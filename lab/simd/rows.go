//go:build avo

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Up to 16 rows of a are multiplied by rows of b that were unpacked once for all of them, up to 8 rows at a time and two
// rows of b, with the sums of a single row in its order. What a chunk of rows holds of two groups of 32 elements, or of a
// block of 256, lies together: the bytes of each row, 64 of two groups, and behind those of 8 rows what their sums are
// scaled by. Words of the two groups, even and odd, lie side by side, so that what belongs to both is broadcast to all of a
// register; of 16 bytes, the words are of
//
//	even group, first half · odd, first · even, second · odd, second
const (
	chunkRows, leastChunkRows = 8, 4
	chunkPair                 = 64 * chunkRows // bytes of all rows

	// Of small blocks: scales, offsets [8, 2], and sums of the even and of the odd blocks [2, 8].
	smallChunk, smallChunkScales, smallChunkOffsets, smallChunkSums = chunkPair + 192, chunkPair, chunkPair + 64, chunkPair + 128
	// Of large blocks: scales [8, 8] and sums [8, 16].
	largeChunkScales           = 4 * chunkPair
	largeChunkSums, largeChunk = largeChunkScales + 32*chunkRows, largeChunkScales + 96*chunkRows
)

// rowsKind is what rows of b differ by once they are unpacked.
type rowsKind struct {
	large  bool
	minima bool // large ones have them anyway, or offsets in their place
}

var rowsKinds = []rowsKind{{}, {minima: true}, {large: true}}

func (k rowsKind) name() string {
	name := "Small"
	if k.large {
		name = "Large"
	}
	if k.minima {
		name += "Minima"
	}
	return name
}

func emitRows() {
	for _, k := range rowsKinds {
		if !k.minima {
			emitSpread(k)
		}
		emitMultiplyChunk(k)
	}
}

// wordsOf is a constant of 16 words.
func wordsOf(name string, at func(i int) int) Mem {
	w := make([]uint32, 16)
	for i := range w {
		w[i] = uint32(at(i))
	}
	return words(name, w...)
}

// pairOrder are the words of two groups as they lie side by side.
func pairOrder() Mem { return wordsOf("pairOrder", func(i int) int { return i%2*8 + i/2%2*4 + i/4 }) }

// loadedZ is a constant in a register of 64 bytes.
func loadedZ(m Mem) reg.VecVirtual {
	r := ZMM()
	VMOVDQU32(m, r)
	return r
}

// emitSpread writes the function that copies the records of a row to its place in a chunk.
func emitSpread(k rowsKind) {
	name := "spread" + k.name() + "AVX512"
	function(name, "func(dst, src *byte, row, records int)",
		fmt.Sprintf("%s copies records of a row of a to their places for a row of a chunk.", name))
	dst, src, row, left := pointer("dst"), pointer("src"), pointer("row"), pointer("records")
	order := loadedZ(pairOrder())
	bytes, eight, four := copyOf(row), copyOf(row), copyOf(row)
	SHLQ(Imm(6), bytes)
	SHLQ(Imm(3), eight)
	SHLQ(Imm(2), four)
	at := func(index reg.GPVirtual, disp int) Mem { return Mem{Base: dst, Index: index, Scale: 1, Disp: disp} }
	if !k.large {
		word := func(from, to Mem) {
			t := GP32()
			MOVL(from, t)
			MOVL(t, to)
		}
		group := func(u int) {
			from := Mem{Base: src, Disp: u * smallRecord}
			word(from.Offset(smallScale), at(eight, smallChunkScales+4*u))
			word(from.Offset(smallOffset), at(eight, smallChunkOffsets+4*u))
			word(from.Offset(smallSum), at(four, smallChunkSums+32*u))
		}
		Label("pair")
		CMPQ(left, Imm(2))
		JLT(LabelRef("last"))
		first, both := YMM(), ZMM()
		VMOVDQU(Mem{Base: src}, first)
		Instruction(&ir.Instruction{Opcode: "VINSERTI64X4", Operands: []Op{Imm(1), Mem{Base: src, Disp: smallRecord}, first.AsZ(), both},
			Inputs: []Op{Mem{Base: src, Disp: smallRecord}, first}, Outputs: []Op{both}})
		VPERMD(both, order, both)
		VMOVDQU32(both, at(bytes, 0))
		group(0)
		group(1)
		ADDQ(I32(2*smallRecord), src)
		ADDQ(I32(smallChunk), dst)
		SUBQ(Imm(2), left)
		JNZ(LabelRef("pair"))
		endFunction()
		// The odd group behind the last is of zeros.
		Label("last")
		VMOVDQU(Mem{Base: src}, first)
		Instruction(&ir.Instruction{Opcode: "VPERMD", Operands: []Op{first.AsZ(), order, both}, Inputs: []Op{first, order}, Outputs: []Op{both}})
		VMOVDQU32(both, at(bytes, 0))
		group(0)
		zero := GP32()
		XORL(zero, zero)
		MOVL(zero, at(eight, smallChunkScales+4))
		MOVL(zero, at(eight, smallChunkOffsets+4))
		MOVL(zero, at(four, smallChunkSums+32))
		endFunction()
		return
	}
	scale := copyOf(row)
	SHLQ(Imm(5), scale)
	sum := loadedZ(sumOrder())
	Label("record")
	for p := range 4 {
		r := ZMM()
		VPERMD(Mem{Base: src, Disp: 64 * p}, order, r)
		VMOVDQU32(r, at(bytes, p*chunkPair))
	}
	y, r := YMM(), ZMM()
	VMOVUPS(Mem{Base: src, Disp: largeScales}, y)
	VMOVUPS(y, at(scale, largeChunkScales))
	VBROADCASTF64X4(Mem{Base: src, Disp: largeSums}, r)
	VPERMPS(r, sum, r)
	VMOVUPS(r, at(bytes, largeChunkSums))
	ADDQ(I32(largeRecord), src)
	ADDQ(I32(largeChunk), dst)
	again(left, "record")
	endFunction()
}

// sumOrder is where the sums of two rows of b have what is added to them, lane by lane: of 16 bytes, a lane of the first
// half and of the second, of the first row, then of the second.
func sumOrder() Mem {
	return wordsOf("sumOrder", func(i int) int { return i/2%2*8 + i%2*4 + i/4 })
}

// rowsProduct is a function that multiplies a chunk.
type rowsProduct struct {
	rowsKind
	rows  int
	label string

	a, left, gap reg.GPVirtual
	fetch        reg.GPVirtual    // what is fetched next
	b, s         [2]reg.GPVirtual // bytes and scales of two rows of b
	local        Mem              // from a multiple of 64 on
	sums         [2][]reg.Register
	order        reg.Register
}

const (
	// The memory of its own: what sums are multiplied by, of two rows of b, and what is added to them at the end.
	localScales = 0
	localLow    = 64 * chunkRows
	localBytes  = localLow + chunkPair + 64
)

func emitMultiplyChunk(k rowsKind) {
	name := "multiplyChunk" + k.name() + "AVX512VNNI"
	functionOf(0, name, "func(m, n, blocks int, alpha float32, a, b *byte, stride, scales, minima int, factor, beta float32, c *float32, ldc int, next uintptr, step int)",
		fmt.Sprintf("%s sets c [m, n] = alpha·a·bᵀ + beta·c for a chunk of m in %d … %d rows of a and n unpacked rows of b, stride bytes apart, with scales and minima so many bytes behind their bytes, minima times factor. Meanwhile memory from next on is fetched, step bytes with every two groups.", name, leastChunkRows, chunkRows))
	local := AllocLocal(localBytes)
	m := pointer("m")
	for rows := chunkRows; rows >= leastChunkRows; rows-- {
		ifRows(rows, m, func() {
			p := &rowsProduct{rowsKind: k, rows: rows, label: fmt.Sprintf("m%d", rows)}
			p.emit(local)
		})
	}
	endFunction()
}

func (p *rowsProduct) emit(local Mem) {
	n, c, ldc := pointer("n"), pointer("c"), stride("ldc", 4)
	next := pointer("b")
	p.fetch = pointer("next")
	base := GP64()
	LEAQ(local.Offset(63), base)
	ANDQ(I32(-64), base)
	p.local = Mem{Base: base}
	for i := range p.rows {
		p.sums[0] = append(p.sums[0], upperZ[2*i])
		p.sums[1] = append(p.sums[1], upperZ[2*i+1])
	}

	Label(p.label + "columns")
	for j := range p.b {
		p.b[j] = copyOf(next)
		if j > 0 {
			ADDQ(parameter("stride"), p.b[j])
			CMPQ(n, Imm(1)) // behind the last row it is read again
			CMOVQEQ(p.b[0], p.b[j])
		}
	}
	if p.large {
		p.largeMinima()
	}
	for j := range p.s {
		p.s[j] = copyOf(p.b[j])
		ADDQ(parameter("scales"), p.s[j])
	}
	for _, sums := range p.sums {
		for _, r := range sums {
			VXORPS(r, r, r)
		}
	}
	p.a, p.left = pointer("a"), pointer("blocks")
	p.order = loadedZ(pairOrder())
	if p.large {
		p.largeBlocks()
	} else {
		p.smallBlocks()
	}

	totals := p.totals()
	alpha, beta, bits := XMM(), XMM(), betaBits()
	VBROADCASTSS(parameter("alpha"), alpha)
	VBROADCASTSS(parameter("beta"), beta)
	columns := GP32()
	MOVL(U32(3), columns)
	one := GP32()
	MOVL(U32(1), one)
	CMPQ(n, Imm(1))
	CMOVLEQ(one, columns)
	k := K()
	KMOVW(columns, k)
	to := copyOf(c)
	for i := range p.rows {
		x := XMM()
		if i%2 == 0 {
			x = totals[i/2]
			VMULPS(alpha, x, x)
		} else {
			VPERMILPD(Imm(1), totals[i/2], x)
		}
		label := fmt.Sprintf("%sstore%d", p.label, i)
		CMPL(bits, Imm(0))
		JEQ(LabelRef(label))
		old := XMM()
		VMOVUPS_Z(Mem{Base: to}, k, old)
		if i%2 == 0 { // the other half is of the next row
			VFMADD231PS(old, beta, k, x)
		} else {
			VFMADD231PS(old, beta, x)
		}
		Label(label)
		VMOVUPS(x, k, Mem{Base: to})
		if i+1 < p.rows {
			ADDQ(ldc, to)
		}
	}
	ADDQ(Imm(8), c)
	MOVQ(parameter("stride"), p.left)
	LEAQ(Mem{Base: next, Index: p.left, Scale: 2}, next)
	SUBQ(Imm(2), n)
	JGT(LabelRef(p.label + "columns"))
}

// dot is a sum of products that adds to r.
func dotVNNI(x, w Op, r reg.Register) {
	Instruction(&ir.Instruction{Opcode: "VPDPBUSD", Operands: []Op{x, w, r}, Inputs: []Op{x, w, r}, Outputs: []Op{r}})
}

// pair multiplies two groups of all rows, whose bytes are at x, by those at w of two rows of b. Sums begin with the offsets of
// the rows, or 0, and are scaled by two numbers at scale, for even and odd groups.
func (p *rowsProduct) pair(x func(i int) Mem, w [2]Mem, offset func(i int) Mem, scale func(i, j int) Mem) {
	// More loads can wait in the level-2 cache.
	PREFETCHT1(Mem{Base: p.fetch})
	PREFETCHT1(Mem{Base: p.fetch, Disp: 64})
	ADDQ(parameter("step"), p.fetch)
	var weights [2]reg.VecVirtual
	for j := range weights {
		weights[j] = ZMM()
		VPERMD(w[j], p.order, weights[j])
	}
	for i := range p.rows {
		bytes := loadedZ(x(i))
		for j, weight := range weights {
			r, by := ZMM(), ZMM()
			if offset != nil {
				Instruction(&ir.Instruction{Opcode: "VMOVQ", Operands: []Op{offset(i), r.AsX()}, Inputs: []Op{offset(i)}, Outputs: []Op{r}})
			} else {
				VXORPS(r, r, r)
			}
			dotVNNI(bytes, weight, r)
			VCVTDQ2PS(r, r)
			VPBROADCASTQ(scale(i, j), by) // as of floats it takes longer on Zen 4
			VFMADD231PS(by, r, p.sums[j][i])
		}
	}
}

func (p *rowsProduct) smallBlocks() {
	var low [2]reg.VecVirtual
	if p.minima {
		p.gap = pointer("minima")
		SUBQ(parameter("scales"), p.gap)
		for j := range low {
			low[j] = YMM()
			VXORPS(low[j], low[j], low[j])
		}
	}
	INCQ(p.left)
	SHRQ(Imm(1), p.left)
	Label(p.label + "pair")
	for j := range p.s {
		r := ZMM()
		VBROADCASTSD(Mem{Base: p.s[j]}, r)
		VMULPS(Mem{Base: p.a, Disp: smallChunkScales}, r, r)
		VMOVUPS(r, p.local.Offset(localScales+64*j))
	}
	if p.minima {
		for u := range 2 {
			x := loaded(Mem{Base: p.a, Disp: smallChunkSums + 32*u})
			for j := range low {
				VFMADD231PS_BCST(Mem{Base: p.s[j], Index: p.gap, Scale: 1, Disp: 4 * u}, x, low[j])
			}
		}
	}
	p.pair(func(i int) Mem { return Mem{Base: p.a, Disp: 64 * i} }, [2]Mem{{Base: p.b[0]}, {Base: p.b[1]}},
		func(i int) Mem { return Mem{Base: p.a, Disp: smallChunkOffsets + 8*i} },
		func(i, j int) Mem { return p.local.Offset(localScales + 64*j + 8*i) })
	ADDQ(I32(smallChunk), p.a)
	for j := range p.b {
		ADDQ(Imm(64), p.b[j])
		ADDQ(Imm(8), p.s[j])
	}
	again(p.left, p.label+"pair")
	if p.minima { // of a row by both rows of b, then of the next
		order := loadedZ(wordsOf("alternate", func(i int) int { return i%2*16 + i/2 }))
		Instruction(&ir.Instruction{Opcode: "VPERMI2PS", Operands: []Op{low[1].AsZ(), low[0].AsZ(), order}, Inputs: []Op{low[1], low[0], order}, Outputs: []Op{order}})
		VMOVUPS(order, p.local.Offset(localLow))
	}
}

// largeMinima leaves what minima add to the sums in memory.
func (p *rowsProduct) largeMinima() {
	low := upperZ[:p.rows]
	for _, r := range low {
		VXORPS(r, r, r)
	}
	a, left, factor, order := pointer("a"), pointer("blocks"), YMM(), loadedZ(sumOrder())
	VBROADCASTSS(parameter("factor"), factor)
	for j := range p.s {
		p.s[j] = copyOf(p.b[j])
		ADDQ(parameter("minima"), p.s[j])
	}
	Label(p.label + "minima")
	first, second, both := YMM(), YMM(), ZMM()
	VMULPS(Mem{Base: p.s[0]}, factor, first)
	VMULPS(Mem{Base: p.s[1]}, factor, second)
	insertUpper(first, second, both)
	VPERMPS(both, order, both)
	for i, r := range low {
		VFMADD231PS(Mem{Base: a, Disp: largeChunkSums + 64*i}, both, r)
	}
	ADDQ(I32(largeChunk), a)
	for j := range p.s {
		ADDQ(Imm(32), p.s[j])
	}
	again(left, p.label+"minima")
	for i, r := range low {
		VMOVUPS(r, p.local.Offset(localLow+64*i))
	}
}

func (p *rowsProduct) largeBlocks() {
	Label(p.label + "block")
	for j := range p.s {
		r := ZMM()
		VBROADCASTF64X4(Mem{Base: p.s[j]}, r)
		for i := 0; i < p.rows; i += 2 {
			from, to := Mem{Base: p.a, Disp: largeChunkScales + 32*i}, p.local.Offset(localScales+32*(chunkRows*j+i))
			if i+1 == p.rows {
				t := YMM()
				VMULPS(from, r.AsY(), t)
				VMOVUPS(t, to)
				continue
			}
			t := ZMM()
			VMULPS(from, r, t)
			VMOVUPS(t, to)
		}
	}
	for q := range 4 {
		p.pair(func(i int) Mem { return Mem{Base: p.a, Disp: q*chunkPair + 64*i} },
			[2]Mem{{Base: p.b[0], Disp: 64 * q}, {Base: p.b[1], Disp: 64 * q}}, nil,
			func(i, j int) Mem { return p.local.Offset(localScales + 32*(chunkRows*j+i) + 8*q) })
	}
	ADDQ(I32(largeChunk), p.a)
	for j := range p.b {
		ADDQ(I32(256), p.b[j])
		ADDQ(Imm(32), p.s[j])
	}
	again(p.left, p.label+"block")
}

// totals are the sums of two rows at a time by both rows of b: the first row's, then the second's.
func (p *rowsProduct) totals() []reg.VecVirtual {
	// added adds what lies side by side in x, then in y: of 16 bytes, two sums of x and two of y.
	added := func(x, y reg.Register) reg.VecVirtual {
		even, odd := ZMM(), ZMM()
		VSHUFPS(Imm(0x88), y, x, even)
		VSHUFPS(Imm(0xdd), y, x, odd)
		VADDPS(even, odd, odd)
		return odd
	}
	var totals []reg.VecVirtual
	for i := 0; i < p.rows; i += 2 {
		var both [2]reg.VecVirtual
		for u := range both {
			row := min(i+u, p.rows-1)
			if u > 0 && row == i {
				both[u] = both[0]
				continue
			}
			both[u] = added(p.sums[0][row], p.sums[1][row])
			if p.large {
				VADDPS(p.local.Offset(localLow+64*row), both[u], both[u])
			}
		}
		x, y := added(both[0], both[1]), YMM()
		VEXTRACTF64X4(Imm(1), x, y)
		sum := YMM()
		VADDPS(y, x.AsY(), sum)
		t, total := XMM(), XMM()
		VEXTRACTF128(Imm(1), sum, t)
		VADDPS(t, sum.AsX(), total)
		if p.minima {
			VADDPS(p.local.Offset(localLow+8*i), total, total)
		}
		totals = append(totals, total)
	}
	return totals
}
