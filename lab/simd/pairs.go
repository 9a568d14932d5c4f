//go:build avo

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// Neither avo nor Go's assembler knows the instructions of AVX512_BF16: they are
// written as bytes, which need registers by number.
var zmm = []reg.VecPhysical{
	reg.Z0, reg.Z1, reg.Z2, reg.Z3, reg.Z4, reg.Z5, reg.Z6, reg.Z7,
	reg.Z8, reg.Z9, reg.Z10, reg.Z11, reg.Z12, reg.Z13, reg.Z14, reg.Z15,
	reg.Z16, reg.Z17, reg.Z18, reg.Z19, reg.Z20, reg.Z21, reg.Z22, reg.Z23,
	reg.Z24, reg.Z25, reg.Z26, reg.Z27, reg.Z28, reg.Z29, reg.Z30, reg.Z31,
}

// evex emits an instruction EVEX.512.F3.0F38.W0 on registers.
func evex(opcode byte, to, first, second int) { evexWith(2, opcode, to, first, second) }

// evexWith emits one of another prefix: 2 is F3, 3 is F2. It holds the upper bits of register numbers inverted.
func evexWith(prefix, opcode byte, to, first, second int) {
	not := func(register, bit, at int) byte { return byte(^register>>bit&1) << at }
	code := []byte{
		0x62,
		not(to, 3, 7) | not(second, 4, 6) | not(second, 3, 5) | not(to, 4, 4) | 2,
		byte(^first&15)<<3 | 4 | prefix,
		0x40 | not(first, 4, 3),
		opcode,
		byte(0xc0 | to&7<<3 | second&7),
	}
	raw := func(name string, word int32) { Instruction(&ir.Instruction{Opcode: name, Operands: []Op{I32(word)}}) }
	raw("LONG", int32(uint32(code[0])|uint32(code[1])<<8|uint32(code[2])<<16|uint32(code[3])<<24))
	raw("WORD", int32(code[4])|int32(code[5])<<8)
}

// dotPairs adds to every lane of sum the dot product of two bfloat16 of x and of y
// (VDPBF16PS).
func dotPairs(sum, x, y int) { evex(0x52, sum, x, y) }

// narrow converts to bfloat16 in the lower half of a register (VCVTNEPS2BF16).
func narrow(to, from int) { evex(0x72, to, 0, from) }

// multiplyPairs is multiplyPanel for bfloat16, a pair of depths at a time.
func multiplyPairs() {
	const vectors, maxRows = 2, 12
	v := avx512
	function("multiplyPairsAVX512BF16", "func(m, width, pairs int, alpha float32, a *float32, lda int, panel *float32, beta float32, c *float32, ldc int)",
		"multiplyPairsAVX512BF16 sets c [m, width] = alpha·a·panel + beta·c, for pairs of bfloat16, a [m, pairs] and panel [pairs, 32].")
	m, a, lda := pointer("m"), pointer("a"), stride("lda", 4)
	panel, c, ldc := pointer("panel"), pointer("c"), stride("ldc", 4)
	tail := v.masks(pointer("width"), vectors)
	const columns, element = vectors * maxRows, vectors*maxRows + vectors // numbers of registers

	tile := func(rows int) {
		label := fmt.Sprintf("rows%d", rows)
		for i := range vectors * rows {
			VXORPS(zmm[i], zmm[i], zmm[i])
		}
		pointers, row := rowPointers(copyOf(a), lda, rows)
		b, k := copyOf(panel), pointer("pairs")
		// The rows of the next tile come right after this one's, which no
		// prefetcher guesses from rows that are read side by side.
		var next reg.GPVirtual
		if rows == maxRows {
			next = threeRows(pointers[len(pointers)-1], lda)
		}
		Label(label + "k")
		if rows == maxRows {
			PREFETCHT0(Mem{Base: next})
			ADDQ(I32(64), next)
		}
		for j := range vectors {
			VMOVUPS(Mem{Base: b, Disp: j * v.vectorBytes()}, zmm[columns+j])
		}
		ADDQ(I32(vectors*v.vectorBytes()), b)
		for i := range rows {
			x := element + i%4
			VBROADCASTSS(row(i), zmm[x])
			for j := range vectors {
				dotPairs(vectors*i+j, columns+j, x)
			}
		}
		for _, p := range pointers {
			ADDQ(Imm(4), p)
		}
		again(k, label+"k")

		VBROADCASTSS(parameter("alpha"), zmm[element])
		for i := range vectors * rows {
			VMULPS(zmm[element], zmm[i], zmm[i])
		}
		at := copyOf(c)
		betaBits()
		JZ(LabelRef(label + "store"))
		VBROADCASTSS(parameter("beta"), zmm[element])
		for i := range rows {
			for j := range vectors {
				old, sum, to := zmm[columns+j], zmm[vectors*i+j], Mem{Base: at, Disp: j * v.vectorBytes()}
				VMOVUPS_Z(to, tail[j].k, old)
				VFMADD231PS(zmm[element], old, sum)
				VMOVUPS(sum, tail[j].k, to)
			}
			ADDQ(ldc, at)
		}
		JMP(LabelRef(label + "next"))
		Label(label + "store")
		for i := range rows {
			for j := range vectors {
				VMOVUPS(zmm[vectors*i+j], tail[j].k, Mem{Base: at, Disp: j * v.vectorBytes()})
			}
			ADDQ(ldc, at)
		}
		Label(label + "next")
	}
	tiles(maxRows, m, tile, func() {
		advance(a, lda, maxRows)
		advance(c, ldc, maxRows)
	})
}

// narrowRow writes a row of a as bfloat16.
func narrowRow() {
	v := avx512
	function("narrowRowAVX512BF16", "func(dst *float32, src *float32, n int)",
		"narrowRowAVX512BF16 writes src [n] to dst as bfloat16, numbers below 2⁻¹²⁶ as 0.")
	dst, src, n := pointer("dst"), pointer("src"), pointer("n")
	half := func(i int) Mem { return Mem{Base: dst, Disp: i * v.vectorBytes() / 2} }
	Label("four")
	SUBQ(I32(4*v.lanes), n)
	JLT(LabelRef("rest"))
	for i := range 4 {
		VMOVUPS(Mem{Base: src, Disp: i * v.vectorBytes()}, zmm[i])
		narrow(i, i)
		VMOVUPS(zmm[i].AsY(), half(i))
	}
	ADDQ(I32(4*v.vectorBytes()), src)
	ADDQ(I32(2*v.vectorBytes()), dst)
	JMP(LabelRef("four"))
	Label("rest")
	ADDQ(I32(4*v.lanes), n)
	for i, m := range v.masks(n, 4) {
		VMOVUPS_Z(Mem{Base: src, Disp: i * v.vectorBytes()}, m.k, zmm[i])
		narrow(i, i)
		VMOVDQU16(zmm[i].AsY(), m.k, half(i))
	}
	endFunction()
}

// narrowTwo converts two registers to bfloat16, the first in the lower half (VCVTNE2PS2BF16).
func narrowTwo(to, first, second int) { evexWith(3, 0x72, to, second, first) }

// splitRow writes a row of a as two of bfloat16 whose sum it nearly is, two vectors at a time.
func splitRow() {
	v := avx512
	function("splitRowAVX512BF16", "func(high, low, src *float32, n int)",
		"splitRowAVX512BF16 writes src [n] to high as bfloat16, and what is left of each number to low.")
	high, low, src, n := pointer("high"), pointer("low"), pointer("src"), pointer("n")
	split := func(load func(from Mem, j int), store func(to Mem)) {
		for j := range 2 {
			load(Mem{Base: src, Disp: j * v.vectorBytes()}, j)
		}
		narrowTwo(2, 0, 1)
		store(Mem{Base: high})
		VPMOVZXWD(zmm[2].AsY(), zmm[3])
		VEXTRACTI64X4(Imm(1), zmm[2], zmm[4].AsY())
		VPMOVZXWD(zmm[4].AsY(), zmm[4])
		for j := range 2 {
			VPSLLD(Imm(16), zmm[3+j], zmm[3+j])
			VSUBPS(zmm[3+j], zmm[j], zmm[j])
		}
		narrowTwo(2, 0, 1)
		store(Mem{Base: low})
	}
	Label("two")
	SUBQ(I32(2*v.lanes), n)
	JLT(LabelRef("rest"))
	split(func(from Mem, j int) { VMOVUPS(from, zmm[j]) }, func(to Mem) { VMOVUPS(zmm[2], to) })
	ADDQ(I32(2*v.vectorBytes()), src)
	ADDQ(I32(v.vectorBytes()), high)
	ADDQ(I32(v.vectorBytes()), low)
	JMP(LabelRef("two"))
	Label("rest")
	ADDQ(I32(2*v.lanes), n)
	JZ(LabelRef("end"))
	tail, words, both := v.masks(n, 2), GP64(), K()
	MOVQ(I32(-1), words)
	BZHIQ(n, words, words)
	KMOVD(words.As32(), both)
	split(func(from Mem, j int) { VMOVUPS_Z(from, tail[j].k, zmm[j]) }, func(to Mem) { VMOVDQU16(zmm[2], both, to) })
	Label("end")
	endFunction()
}

// packPairs copies pairs of rows of two vectors, the elements of a column next to
// each other.
func packPairs() {
	v := avx512
	function("packPairsAVX512BF16", "func(dst *float32, b *byte, ldb, width, pairs int)",
		"packPairsAVX512BF16 copies bfloat16 b [2·pairs, width] to dst [pairs, 32], two of a column in one word.")
	dst, b, ldb, k := pointer("dst"), pointer("b"), stride("ldb", 2), pointer("pairs")
	lanes := v.masks(pointer("width"), 2)
	Label("pair")
	// The columns that come next are another cache line of each row.
	PREFETCHT1(Mem{Base: b, Disp: 128})
	PREFETCHT1(Mem{Base: b, Index: ldb, Scale: 1, Disp: 128})
	for j := range 2 {
		low, high := ZMM(), ZMM()
		VPMOVZXWD_Z(Mem{Base: b, Disp: j * v.lanes * 2}, lanes[j].k, low)
		VPMOVZXWD_Z(Mem{Base: b, Index: ldb, Scale: 1, Disp: j * v.lanes * 2}, lanes[j].k, high)
		VPSLLD(Imm(16), high, high)
		VPORD(low, high, high)
		VMOVUPS(high, Mem{Base: dst, Disp: j * v.vectorBytes()})
	}
	LEAQ(Mem{Base: b, Index: ldb, Scale: 2}, b)
	ADDQ(I32(2*v.vectorBytes()), dst)
	again(k, "pair")
	endFunction()
}
