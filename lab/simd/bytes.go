//go:build avo

package main

import (
	"fmt"
	"slices"

	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelMinima is the bytes from the scales of a panel to its minima.
const panelMinima = 4096

// scaleParts is the number of parts of a group of 32 that have scales of their own.
func (f *blockFormat) scaleParts() int {
	if f.halves {
		return 2
	}
	return 1
}

// unpackBlocks writes a row of blocks as what panels of bytes are made of.
func unpackBlocks(f *blockFormat) {
	name := "unpack" + f.name + "AVX2"
	function(name, "func(dst *byte, scales, minima *float32, src *byte, blocks int)",
		fmt.Sprintf("%s writes blocks of %s as bytes, %d above the numbers that are scaled, with the %d scales of each 32 elements and, if it has them, as many minima.",
			name, f.name, f.offset, f.scaleParts()))
	dst, scales, minima, src, left := pointer("dst"), pointer("scales"), pointer("minima"), pointer("src"), pointer("blocks")
	b, v := Mem{Base: src}, blockISAs[0]
	Label("block")
	PREFETCHT0(b.Offset(1024))
	write := func(x []reg.VecVirtual, to reg.GPVirtual) {
		for i, r := range x {
			VMOVUPS(r, Mem{Base: to, Disp: 32 * i})
		}
	}
	if f.large() {
		s := f.scales(b)
		write(s.scales, scales)
		write(s.minima, minima)
	} else {
		scale, minimum := f.scale(b)
		VMOVSS(scale.AsX(), Mem{Base: scales})
		if minimum != nil {
			VMOVSS(minimum, Mem{Base: minima})
		}
	}
	for g := range f.elems / 32 {
		VMOVDQU(f.unpack(v, b, g, false), Mem{Base: dst, Disp: 32 * g})
	}
	step := I32(f.elems / 32 * f.scaleParts() * 4)
	ADDQ(I32(f.elems), dst)
	ADDQ(step, scales)
	ADDQ(step, minima)
	ADDQ(I32(f.bytes), src)
	again(left, "block")
	endFunction()
}

// byteISA is what multiplies panels of bytes: VPDPBUSD of AVX512_VNNI or of AVX_VNNI, or VPMADDUBSW of AVX2.
type byteISA struct {
	name string
	v    isa
	vnni bool
	rows []int // of tiles, the most first
}

var byteISAs = []byteISA{
	{"AVX512VNNI", avx512, true, []int{12, 4, 2, 1}},
	{"AVXVNNI", avx2, true, []int{6, 3, 1}},
	{"AVX2", avx2, false, []int{6, 3, 1}},
}

// bytePanel is a kind of panels: scales of halves of groups, minima and, which AVX2 asks for, the largest byte. Of bytes up to
// 15, the products of eight words with 127 are added up in 16 bits, up to 31 of four, and up to 128 of one. Larger ones are 128
// above signed numbers; AVX2 multiplies their magnitudes by numbers that have taken their signs.
type bytePanel struct {
	halves, minima bool
	most           int
}

// words is the number of them whose products are added up in 16 bits.
func (k bytePanel) words() int { return map[int]int{15: 8, 31: 4, 128: 1, 255: 1}[k.most] }

// bytePanels are those that there are formats for.
func bytePanels(v byteISA) (kinds []bytePanel) {
	for _, halves := range []bool{false, true} {
		for _, minima := range []bool{false, true} {
			kinds = append(kinds, bytePanel{halves, minima, 15})
		}
	}
	if !v.vnni {
		kinds = append(kinds, bytePanel{most: 31}, bytePanel{most: 128}, bytePanel{minima: true, most: 128}, bytePanel{halves: true, most: 128},
			bytePanel{most: 255}, bytePanel{minima: true, most: 255})
	}
	return kinds
}

// ymm are the registers of dots and their operands, which VEX VPDPBUSD is written as bytes with.
var ymm = []reg.VecPhysical{
	reg.Y0, reg.Y1, reg.Y2, reg.Y3, reg.Y4, reg.Y5, reg.Y6, reg.Y7,
	reg.Y8, reg.Y9, reg.Y10, reg.Y11, reg.Y12, reg.Y13, reg.Y14, reg.Y15,
}

// dot adds to the words of d the products of the unsigned bytes of w and the bytes of x, of AVX2 in 16 bits unless wide, with a free t.
func (v byteISA) dot(d, w, x, t reg.Register, first, wide bool) {
	switch {
	case wide:
		VPMADDUBSW(x, w, t)
		VPMADDWD(integer(0x00010001), t, t)
		VPADDD(t, d, d)
	case !v.vnni && first:
		VPMADDUBSW(x, w, d)
	case !v.vnni:
		VPMADDUBSW(x, w, t)
		VPADDW(t, d, d)
	case v.v.wide():
		// avo does not know the instruction.
		Instruction(&ir.Instruction{Opcode: "VPDPBUSD", Operands: []Op{x, w, d}, Inputs: []Op{x, w, d}, Outputs: []Op{d}})
	default:
		// Go's assembler does not know it as VEX.256.66.0F38.W0 50 /r.
		number := func(r reg.Register) int { return slices.Index(ymm, r.(reg.VecPhysical)) }
		to, first, second := number(d), number(w), number(x)
		code := []int{0xc4, (^to>>3&1)<<7 | 0x40 | (^second>>3&1)<<5 | 2, ^first&15<<3 | 5, 0x50, 0xc0 | to&7<<3 | second&7}
		for _, b := range code {
			Instruction(&ir.Instruction{Opcode: "BYTE", Operands: []Op{Imm(uint64(b))}, Inputs: []Op{x, w, d}, Outputs: []Op{d}})
		}
	}
}

// byteProduct is a function that multiplies records of a by a panel of bytes of two vectors of columns, four depths of a column
// in a word.
type byteProduct struct {
	byteISA
	kind  bytePanel
	of    string // the function's name
	parts int    // of a group of 32 elements, that have scales of their own
	words int    // of a part
	spans int    // of a part, that have sums of their own
	line  int    // bytes of a word's columns

	wide   bool // products are added up in 32 bits
	signed bool // bytes are 128 above signed numbers

	m, a, lda, c, ldc reg.GPVirtual
	tail              []mask
}

// byteVectors are those of a panel's columns.
const byteVectors = 2

func newByteProduct(isa byteISA, kind bytePanel) *byteProduct {
	p := &byteProduct{byteISA: isa, kind: kind, of: "multiplyBytes", parts: 1, spans: 1, line: byteVectors * isa.v.vectorBytes()}
	if kind.halves {
		p.of, p.parts = p.of+"Halves", 2
	}
	if kind.minima {
		p.of += "Minima"
	}
	p.words = 8 / p.parts
	p.wide, p.signed = !isa.vnni && kind.words() == 1, kind.most > 128
	if p.signed {
		p.rows = []int{4, 2, 1} // magnitudes take two registers
	}
	if kind.most > 15 {
		p.of += fmt.Sprint("UpTo", kind.most)
	}
	if !p.wide && kind.words() < p.words {
		p.spans = p.words / kind.words() // each half has its sum
	}
	p.of += isa.name
	return p
}

// multiplyBytes writes the function. A tile of rows is summed in registers, by integers, within a group of 32 elements or, with
// halves, of 16, and in memory, by float32, across groups.
func multiplyBytes(isa byteISA, kind bytePanel) {
	p := newByteProduct(isa, kind)
	with, columns := "", byteVectors*p.v.lanes
	if kind.minima {
		with = fmt.Sprintf(" and, %d bytes on, minima", panelMinima)
	}
	function(p.of, "func(m, width, groups int, alpha float32, a *byte, lda int, panel *byte, scales, sums *float32, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, width] = alpha·a·panel + beta·c, for records of a [m, groups], lda bytes apart, and panel [groups, 8, %d] words of bytes with scales%s [groups, %d, %d]; sums [%d, %d] is scratch memory.",
			p.of, columns, with, p.parts, columns, p.rows[0], columns))
	p.m, p.a, p.lda = pointer("m"), pointer("a"), pointer("lda")
	p.c, p.ldc = pointer("c"), stride("ldc", 4)
	if p.v.wide() {
		p.tail = p.v.masks(pointer("width"), byteVectors)
	}
	// Tiles of every number of rows would be four times as much code.
	for _, rows := range p.rows {
		label, less := fmt.Sprintf("tiles%d", rows), fmt.Sprintf("less%d", rows)
		Label(label)
		CMPQ(p.m, Imm(uint64(rows)))
		JLT(LabelRef(less))
		p.tile(rows)
		advance(p.a, p.lda, rows)
		advance(p.c, p.ldc, rows)
		SUBQ(Imm(uint64(rows)), p.m)
		JMP(LabelRef(label))
		Label(less)
	}
	endFunction()
}

// registers are n new ones, of YMM those from a number on.
func (v byteISA) registers(from, n int) []reg.Register {
	r := make([]reg.Register, n)
	for i := range r {
		if v.v.wide() {
			r[i] = ZMM()
		} else {
			r[i] = ymm[from+i]
		}
	}
	return r
}

// tile multiplies so many rows.
func (p *byteProduct) tile(rows int) {
	label := fmt.Sprintf("rows%d", rows)
	total := pointer("sums")
	sum := func(i, j int) Mem { return Mem{Base: total, Disp: i*p.line + j*p.v.vectorBytes()} }
	zero := p.registers(0, 1)[0]
	VXORPS(zero, zero, zero)
	for i := range rows {
		for j := range byteVectors {
			VMOVUPS(zero, sum(i, j))
		}
	}
	pointers, row := rowPointers(copyOf(p.a), p.lda, rows)
	b, s, left := pointer("panel"), pointer("scales"), pointer("groups")
	most := rows == p.rows[0]
	var next reg.GPVirtual // rows of the next tile come right after this one's
	if most {
		next = threeRows(pointers[len(pointers)-1], p.lda)
	}
	Label(label + "group")
	if most {
		for i := range rows {
			PREFETCHT0(Mem{Base: next, Disp: panelRecord * i})
		}
		ADDQ(I32(panelRecord*rows), next)
	}
	for part := range p.parts {
		for span := range p.spans {
			own := func(first int) int { // of the part, in a record
				if p.kind.halves || p.spans > 1 {
					return first + 4 + 4*max(part, span)
				}
				return first
			}
			dots := p.multiplySpan(rows, row, b, part*p.words+span*p.words/p.spans, own)
			p.addDots(dots, row, s, part*p.line, own, p.kind.minima, !p.vnni && !p.wide, sum)
		}
	}
	for _, r := range pointers {
		ADDQ(Imm(panelRecord), r)
	}
	ADDQ(I32(8*p.line), b)
	ADDQ(I32(p.parts*p.line), s)
	again(left, label+"group")
	sums := make([][]reg.VecVirtual, rows)
	for i := range sums {
		sums[i] = p.v.vecs(byteVectors)
		for j, r := range sums[i] {
			VMOVUPS(sum(i, j), r)
		}
	}
	storeTile(p.v, label, sums, p.c, p.ldc, func() []mask {
		if !p.v.wide() { // these masks are vector registers, free only now
			p.tail = p.v.masks(pointer("width"), byteVectors)
		}
		return p.tail
	})
}

// multiplySpan multiplies the words of a span of the panel at b, from the word first on. It returns the registers of the products' sums.
func (p *byteProduct) multiplySpan(rows int, row func(i int) Mem, b reg.GPVirtual, first int, own func(first int) int) [][]reg.Register {
	dots := make([][]reg.Register, rows)
	for i := range dots {
		dots[i] = p.registers(byteVectors*i, byteVectors)
		for _, r := range dots[i] {
			if p.vnni || p.wide {
				VPBROADCASTD(row(i).Offset(own(panelOffset)), r)
			}
		}
	}
	for word := range p.words / p.spans {
		at := first + word
		w := p.registers(12, byteVectors)
		var magnitudes []reg.Register
		if p.signed {
			magnitudes = p.registers(10, byteVectors)
		}
		for j, r := range w {
			VMOVUPS(Mem{Base: b, Disp: at*p.line + j*p.v.vectorBytes()}, r)
			if p.signed {
				VPXOR(integer(0x80808080), r, r)
				VPABSB(r, magnitudes[j])
			}
		}
		for i := range dots {
			x := p.registers(14, 1)[0]
			VPBROADCASTD(row(i).Offset(4*at), x)
			for j, r := range dots[i] {
				if t := ymm[15]; p.signed {
					VPSIGNB(w[j], x, t)
					p.dot(r, magnitudes[j], t, t, false, p.wide)
				} else {
					p.dot(r, w[j], x, t, word == 0, p.wide)
				}
			}
		}
	}
	return dots
}

// addDots scales the dots of a tile's rows, narrow if of 16 bits, by the scales at s + at and adds them, and minima, to sums in memory.
func (v byteISA) addDots(dots [][]reg.Register, row func(i int) Mem, s reg.GPVirtual, at int, own func(first int) int, minima, narrow bool,
	sum func(i, j int) Mem) {
	of := func(at, j int) Mem { return Mem{Base: s, Disp: at + j*v.v.vectorBytes()} }
	scales := make([]Op, 2)
	for j := range scales {
		scales[j] = of(at, j)
	}
	if v.v.wide() {
		for j, r := range v.registers(0, 2) {
			VMOVUPS(scales[j], r)
			scales[j] = r
		}
	}
	for i := range dots {
		if narrow {
			t := ymm[15]
			VPBROADCASTD(row(i).Offset(own(panelOffset)), t)
			for _, r := range dots[i] {
				VPMADDWD(integer(0x00010001), r, r)
				VPADDD(t, r, r)
			}
		}
		scale := v.registers(14, 1)[0]
		VBROADCASTSS(row(i).Offset(panelScale), scale)
		for j, r := range dots[i] {
			VCVTDQ2PS(r, r)
			VMULPS(scales[j], r, r)
			VFMADD213PS(sum(i, j), scale, r)
		}
		if minima {
			x := v.registers(15, 1)[0]
			VBROADCASTSS(row(i).Offset(own(panelSum)), x)
			for j, r := range dots[i] {
				VFMADD231PS(of(panelMinima+at, j), x, r)
			}
		}
		for j, r := range dots[i] {
			VMOVUPS(r, sum(i, j))
		}
	}
}
