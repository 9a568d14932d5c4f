package formats

import "glimpse/internal/simd"

// K-quants: 256 elements in groups of 16 or 32 with integer scales, which half-precision numbers
// scale. The bits of an element are spread so that a vector of bytes holds the same bits of
// elements that are neighbours.
func init() {
	addBlocks("Q2_K", 256, 84, simd.VectorQ2_K, func(dst []float32, src []byte) {
		scales, d, dmin := src[:16], half(src[80:]), half(src[82:])
		for group := range 16 {
			// Elements 128n + 32s + i are bits 2s of byte 32n + i.
			q, shift := src[16+group/8*32+group%2*16:][:16], group/2%4*2
			x, scale, low := dst[16*group:][:16], d*float32(scales[group]&15), dmin*float32(scales[group]>>4)
			for i, b := range q {
				x[i] = float32(scale*float32(b>>shift&3)) - low
			}
		}
	})
	addBlocks("Q3_K", 256, 110, simd.VectorQ3_K, func(dst []float32, src []byte) {
		packed, d := src[96:108], half(src[108:])
		for group := range 16 {
			// A scale of 6 bits: 4 of the first 8 bytes, 2 of the last 4.
			bits := packed[group%8]>>(group/8*4)&15 | packed[8+group%4]>>(group/4*2)&3<<4
			q, shift := src[32+group/8*32+group%2*16:][:16], group/2%4*2
			high, bit := src[group%2*16:][:16], group/2
			x, scale := dst[16*group:][:16], d*float32(int(bits)-32)
			for i, b := range q {
				x[i] = scale * float32(int(b>>shift&3)+int(high[i]>>bit&1)*4-4)
			}
		}
	})
	addBlocks("Q4_K", 256, 144, simd.VectorQ4_K, func(dst []float32, src []byte) {
		d, dmin := half(src), half(src[2:])
		for pair := range 4 { // the low and the high 4 bits of 32 bytes
			q := src[16+32*pair:][:32]
			scale, low := scaleAndMin(src[4:16], 2*pair, d, dmin)
			scale1, low1 := scaleAndMin(src[4:16], 2*pair+1, d, dmin)
			x, x1 := dst[64*pair:][:32], dst[64*pair+32:][:32]
			for i, b := range q {
				x[i] = float32(scale*float32(b&15)) - low
				x1[i] = float32(scale1*float32(b>>4)) - low1
			}
		}
	})
	addBlocks("Q5_K", 256, 176, simd.VectorQ5_K, func(dst []float32, src []byte) {
		d, dmin, high := half(src), half(src[2:]), src[16:48]
		for pair := range 4 {
			q := src[48+32*pair:][:32]
			scale, low := scaleAndMin(src[4:16], 2*pair, d, dmin)
			scale1, low1 := scaleAndMin(src[4:16], 2*pair+1, d, dmin)
			x, x1 := dst[64*pair:][:32], dst[64*pair+32:][:32]
			for i, b := range q {
				fifths := high[i] >> (2 * pair)
				x[i] = float32(scale*float32(b&15|fifths&1<<4)) - low
				x1[i] = float32(scale1*float32(b>>4|fifths&2<<3)) - low1
			}
		}
	})
	addBlocks("Q6_K", 256, 210, simd.VectorQ6_K, func(dst []float32, src []byte) {
		scales, d := src[192:208], half(src[208:])
		for part := range 4 { // elements 128n + 32s + i0 + i
			n, i0 := part/2, part%2*16
			// 4 bits of element s are in byte 64n + 32(s%2) + i, 2 in byte 32n + i.
			q, q1, high := src[64*n+i0:][:16], src[64*n+32+i0:][:16], src[128+32*n+i0:][:16]
			x := dst[128*n+i0:][:112]
			d0, d1 := d*float32(int8(scales[8*n+part%2])), d*float32(int8(scales[8*n+2+part%2]))
			d2, d3 := d*float32(int8(scales[8*n+4+part%2])), d*float32(int8(scales[8*n+6+part%2]))
			for i, h := range high {
				x[i] = d0 * float32(int(q[i]&15|h&3<<4)-32)
				x[i+32] = d1 * float32(int(q1[i]&15|h>>2&3<<4)-32)
				x[i+64] = d2 * float32(int(q[i]>>4|h>>4&3<<4)-32)
				x[i+96] = d3 * float32(int(q1[i]>>4|h>>6<<4)-32)
			}
		}
	})
}

// scaleAndMin are a group's of 32 in Q4_K and Q5_K, by the 6 bits that each has: the first
// four groups have the low bits of bytes 0 to 7; the last four have 4 bits in bytes 8 to 11
// and the rest above the others'.
func scaleAndMin(packed []byte, group int, d, dmin float32) (scale, low float32) {
	if group < 4 {
		return d * float32(packed[group]&63), dmin * float32(packed[group+4]&63)
	}
	both := packed[group+4]
	return d * float32(both&15|packed[group-4]>>6<<4), dmin * float32(both>>4|packed[group]>>6<<4)
}
