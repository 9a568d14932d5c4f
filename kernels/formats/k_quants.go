package formats

// K-quants: 256 elements in groups of 16 or 32 with integer scales, which half-precision numbers
// scale. The bits of an element are spread so that a vector of bytes holds the same bits of
// elements that are neighbours.
func init() {
	add("Q2_K", 256, 84, func(dst []float32, src []byte) {
		for ; len(dst) >= 256 && len(src) >= 84; dst, src = dst[256:], src[84:] {
			scales, d, dmin := src[:16], half(src[80:]), half(src[82:])
			for group := range 16 {
				// Elements 128n + 32s + i are bits 2s of byte 32n + i.
				q, shift := src[16+group/8*32+group%2*16:][:16], group/2%4*2
				x, scale, low := dst[16*group:][:16], d*float32(scales[group]&15), dmin*float32(scales[group]>>4)
				for i, b := range q {
					x[i] = float32(scale*float32(b>>shift&3)) - low
				}
			}
		}
	})
	add("Q3_K", 256, 110, func(dst []float32, src []byte) {
		for ; len(dst) >= 256 && len(src) >= 110; dst, src = dst[256:], src[110:] {
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
		}
	})
	add("Q4_K", 256, 144, func(dst []float32, src []byte) {
		for ; len(dst) >= 256 && len(src) >= 144; dst, src = dst[256:], src[144:] {
			d, dmin := half(src), half(src[2:])
			for group := range 8 {
				sc, m := scaleAndMin(src[4:16], group)
				q, shift := src[16+group/2*32:][:32], group%2*4
				x, scale, low := dst[32*group:][:32], d*float32(sc), dmin*float32(m)
				for i, b := range q {
					x[i] = float32(scale*float32(b>>shift&15)) - low
				}
			}
		}
	})
	add("Q5_K", 256, 176, func(dst []float32, src []byte) {
		for ; len(dst) >= 256 && len(src) >= 176; dst, src = dst[256:], src[176:] {
			d, dmin, high := half(src), half(src[2:]), src[16:48]
			for group := range 8 {
				sc, m := scaleAndMin(src[4:16], group)
				q, shift := src[48+group/2*32:][:32], group%2*4
				x, scale, low := dst[32*group:][:32], d*float32(sc), dmin*float32(m)
				for i, b := range q {
					x[i] = float32(scale*float32(b>>shift&15|high[i]>>group&1<<4)) - low
				}
			}
		}
	})
	add("Q6_K", 256, 210, func(dst []float32, src []byte) {
		for ; len(dst) >= 256 && len(src) >= 210; dst, src = dst[256:], src[210:] {
			scales, d := src[192:208], half(src[208:])
			for group := range 16 {
				// Elements 128n + 32s + i: 4 bits of byte 64n + 32(s%2) + i, and 2 of byte 32n + i.
				n, s, i0 := group/8, group/2%4, group%2*16
				q, shift := src[64*n+s%2*32+i0:][:16], s/2*4
				high, bit := src[128+32*n+i0:][:16], 2*s
				x, scale := dst[16*group:][:16], d*float32(int8(scales[group]))
				for i, b := range q {
					x[i] = scale * float32(int(b>>shift&15|high[i]>>bit&3<<4)-32)
				}
			}
		}
	})
}

// scaleAndMin are the 6 bits each of a group of 32 in Q4_K and Q5_K: those of the first four groups
// are the low bits of bytes 0 to 7; those of the last four have 4 bits in bytes 8 to 11 and the
// rest above the others'.
func scaleAndMin(packed []byte, group int) (scale, low byte) {
	if group < 4 {
		return packed[group] & 63, packed[group+4] & 63
	}
	both := packed[group+4]
	return both&15 | packed[group-4]>>6<<4, both>>4 | packed[group]>>6<<4
}
