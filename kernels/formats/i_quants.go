package formats

import (
	"encoding/binary"

	"glimpse/internal/simd"
)

// iq4 are the values of 4 bits in IQ4_NL and IQ4_XS, close together about zero.
var iq4 = [16]float32{-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113}

func init() {
	addBlocks("IQ4_NL", 32, 18, simd.VectorIQ4_NL, func(dst []float32, src []byte) { widenTable(dst[:32], src[2:18], half(src), &iq4) })
	// 256 elements, whose groups of 32 have a scale of 6 bits each.
	addBlocks("IQ4_XS", 256, 136, simd.VectorIQ4_XS, func(dst []float32, src []byte) {
		d, high := half(src), binary.LittleEndian.Uint16(src[2:])
		for group := range 8 {
			bits := int(src[4+group/2]>>(group%2*4)&15) | int(high>>(2*group)&3)<<4
			widenTable(dst[32*group:][:32], src[8+16*group:][:16], d*float32(bits-32), &iq4)
		}
	})
}

// widenTable decodes two elements of a byte, a table's values times the scale: the low 4 bits belong
// to the first half of dst.
func widenTable(dst []float32, q []byte, scale float32, table *[16]float32) {
	low, high := dst[:len(q)], dst[len(q):][:len(q)]
	for i, b := range q {
		low[i] = scale * table[b&15]
		high[i] = scale * table[b>>4]
	}
}
