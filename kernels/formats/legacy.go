package formats

import (
	"encoding/binary"

	"glimpse/internal/simd"
)

// q4 are the values of 4 bits in Q4_0. To look a number up takes half the time of converting it.
var q4 = [16]float32{-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7}

// Formats of 32 elements with one half-precision scale d, and in those that end in _1 a minimum m.
// The low 4 bits of elements i and i+16 share byte i, and a fifth bit of all is a word before them.
func init() {
	addBlocks("Q4_0", 32, 18, simd.VectorQ4_0, func(dst []float32, src []byte) { widenTable(dst[:32], src[2:18], half(src), &q4) }).Narrow = narrowOffset(16, 18, putNibbles)
	addBlocks("Q4_1", 32, 20, simd.VectorQ4_1, func(dst []float32, src []byte) {
		d, m, x, q := half(src), half(src[2:]), dst[:32], src[4:20]
		for i, b := range q {
			x[i] = float32(d*float32(b&15)) + m
			x[i+16] = float32(d*float32(b>>4)) + m
		}
	}).Narrow = narrowRange(16, 20, putNibbles)
	addBlocks("Q5_0", 32, 22, simd.VectorQ5_0, func(dst []float32, src []byte) {
		d, high, x, q := half(src), binary.LittleEndian.Uint32(src[2:]), dst[:32], src[6:22]
		for i, b := range q {
			x[i] = d * float32(int(b&15|fifth(high, i))-16)
			x[i+16] = d * float32(int(b>>4|fifth(high, i+16))-16)
		}
	}).Narrow = narrowOffset(32, 22, putFifths)
	addBlocks("Q5_1", 32, 24, simd.VectorQ5_1, func(dst []float32, src []byte) {
		d, m, high, x, q := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:]), dst[:32], src[8:24]
		for i, b := range q {
			x[i] = float32(d*float32(b&15|fifth(high, i))) + m
			x[i+16] = float32(d*float32(b>>4|fifth(high, i+16))) + m
		}
	}).Narrow = narrowRange(32, 24, putFifths)
	addBlocks("Q8_0", 32, 34, simd.VectorQ8_0, func(dst []float32, src []byte) {
		d, x, q := half(src), dst[:32], src[2:34]
		for i, b := range q {
			x[i] = d * float32(int8(b))
		}
	}).Narrow = narrowQ8_0
}

// fifth is the fifth bit of element i.
func fifth(high uint32, i int) byte { return byte(high>>i&1) << 4 }
