//go:build avo

package main

import (
	"fmt"

	"github.com/mmcloughlin/avo/ir"

	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
	"github.com/mmcloughlin/avo/reg"
)

// panelMinima is the bytes from the scales of a panel to its minima.
const panelMinima = 4096

// parts is the number of parts of a group of 32 that have scales of their own.
func (f *blockFormat) parts() int {
	if f.halves {
		return 2
	}
	return 1
}

// unpackBlocks writes a row of blocks as what panels of bytes are made of.
func unpackBlocks(f *blockFormat) {
	name := "unpack" + f.name + "AVX512VNNI"
	function(name, "func(dst *byte, scales, minima *float32, src *byte, blocks int)",
		fmt.Sprintf("%s writes blocks of %s as bytes, %d above the numbers that are scaled, with the %d scales of each 32 elements and, if it has them, as many minima.",
			name, f.name, f.offset, f.parts()))
	dst, scales, minima, src, left := pointer("dst"), pointer("scales"), pointer("minima"), pointer("src"), pointer("blocks")
	b, v := Mem{Base: src}, blockISAs[1]
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
	step := I32(f.elems / 32 * f.parts() * 4)
	ADDQ(I32(f.elems), dst)
	ADDQ(step, scales)
	ADDQ(step, minima)
	ADDQ(I32(f.bytes), src)
	again(left, "block")
	end()
}

// multiplyBytes multiplies records of a by a panel of bytes of two vectors of columns, four depths of a column in
// a word. A tile of 12, 4, 2 or 1 rows is summed in registers, by integers, within a group of 32 elements or, with halves,
// of 16, and in memory, by float32, across groups.
func multiplyBytes(halves, minima bool) {
	const vectors, maxRows = 2, 12
	v, name, parts := avx512, "multiplyBytes", 1
	if halves {
		name, parts = name+"Halves", 2
	}
	with := ""
	if minima {
		name, with = name+"Minima", fmt.Sprintf(" and, %d bytes on, minima", panelMinima)
	}
	name += "AVX512VNNI"
	function(name, "func(m, width, groups int, alpha float32, a *byte, lda int, panel *byte, scales, sums *float32, beta float32, c *float32, ldc int)",
		fmt.Sprintf("%s sets c [m, width] = alpha·a·panel + beta·c, for records of a [m, groups], lda bytes apart, and panel [groups, 8, 32] words of bytes with scales%s [groups, %d, 32]; sums [%d, 32] is scratch memory.",
			name, with, parts, maxRows))
	m, a, lda := pointer("m"), pointer("a"), pointer("lda")
	c, ldc := pointer("c"), stride("ldc", 4)
	tail := v.masks(pointer("width"), vectors)

	tile := func(rows int) {
		label := fmt.Sprintf("rows%d", rows)
		total := pointer("sums")
		sum := func(i, j int) Mem { return Mem{Base: total, Disp: (i*vectors + j) * v.bytes()} }
		zero := v.zeros(1)[0]
		for i := range rows {
			for j := range vectors {
				VMOVUPS(zero, sum(i, j))
			}
		}
		pointers, row := rowPointers(copyOf(a), lda, rows)
		b, s, left := pointer("panel"), pointer("scales"), pointer("groups")
		load := func(from reg.GPVirtual, at int) []reg.VecVirtual {
			r := v.vecs(vectors)
			for j := range r {
				VMOVUPS(Mem{Base: from, Disp: at + j*v.bytes()}, r[j])
			}
			return r
		}
		var next reg.GPVirtual // rows of the next tile come right after those of this one
		if rows == maxRows {
			next = threeRows(pointers[len(pointers)-1], lda)
		}
		Label(label + "group")
		if rows == maxRows {
			for i := range rows {
				PREFETCHT0(Mem{Base: next, Disp: panelRecord * i})
			}
			ADDQ(I32(panelRecord*rows), next)
		}
		for part := range parts {
			own := func(first int) int { // of the part, in a record
				if halves {
					return first + 4 + 4*part
				}
				return first
			}
			dots := make([][]reg.VecVirtual, rows)
			for i := range dots {
				dots[i] = v.vecs(vectors)
				for _, r := range dots[i] {
					VPBROADCASTD(row(i).Offset(own(panelOffset)), r)
				}
			}
			for word := part * 8 / parts; word < (part+1)*8/parts; word++ {
				w := load(b, word*vectors*v.bytes())
				for i := range dots {
					x := v.vec()
					VPBROADCASTD(row(i).Offset(4*word), x)
					for j, r := range dots[i] {
						// avo does not know the instruction.
						Instruction(&ir.Instruction{Opcode: "VPDPBUSD", Operands: []Op{x, w[j], r}, Inputs: []Op{x, w[j], r}, Outputs: []Op{r}})
					}
				}
			}
			scales := load(s, part*vectors*v.bytes())
			var minimum []reg.VecVirtual
			if minima {
				minimum = load(s, panelMinima+part*vectors*v.bytes())
			}
			for i := range dots {
				scale := v.broadcast(row(i).Offset(panelScale))
				for j, r := range dots[i] {
					VCVTDQ2PS(r, r)
					VMULPS(scales[j], r, r)
					VFMADD213PS(sum(i, j), scale, r)
				}
				if minima {
					of := v.broadcast(row(i).Offset(own(panelSum)))
					for j, r := range dots[i] {
						VFMADD231PS(minimum[j], of, r)
					}
				}
				for j, r := range dots[i] {
					VMOVUPS(r, sum(i, j))
				}
			}
		}
		for _, p := range pointers {
			ADDQ(Imm(panelRecord), p)
		}
		ADDQ(I32(8*vectors*v.bytes()), b)
		ADDQ(I32(parts*vectors*v.bytes()), s)
		again(left, label+"group")
		sums := make([][]reg.VecVirtual, rows)
		for i := range sums {
			sums[i] = load(total, i*vectors*v.bytes())
		}
		storeTile(v, label, sums, c, ldc, func() []mask { return tail })
	}
	// Tiles of every number of rows would be four times as much code.
	for _, rows := range []int{maxRows, 4, 2, 1} {
		label, less := fmt.Sprintf("tiles%d", rows), fmt.Sprintf("less%d", rows)
		Label(label)
		CMPQ(m, Imm(uint64(rows)))
		JLT(LabelRef(less))
		tile(rows)
		advance(a, lda, rows)
		advance(c, ldc, rows)
		SUBQ(Imm(uint64(rows)), m)
		JMP(LabelRef(label))
		Label(less)
	}
	end()
}
