package formats

import (
	"encoding/binary"
	"strings"

	"glimpse/internal/simd"
)

// What can be written, too: formats of 32 elements, of ggml's to the bits of gguf.quants.quantize. A block
// that holds NaN or an infinity holds NaN or infinities afterwards.

// CacheName is what a cache in the format is called: as llama.cpp names it, and MXFP8 "fp8".
func (f *Format) CacheName() string { return strings.TrimPrefix(strings.ToLower(f.Name), "mx") }

// Cached are the formats that a cache of keys and values can have, by name.
func Cached() (of []*Format) {
	for _, f := range OfBlocks() {
		if f.Narrow != nil {
			of = append(of, f)
		}
	}
	return of
}

// narrowQ8_0: d is the largest magnitude over 127, elements are rounded half away from zero.
func narrowQ8_0(dst []byte, src []float32) {
	for ; len(src) >= 32; dst, src = dst[34:], src[32:] {
		var top float32
		for _, x := range src[:32] {
			top = max(top, max(x, -x))
		}
		d, inverse := scaleOf(top / 127)
		putHalf(dst, d)
		for i, x := range src[:32] {
			x = float32(x * inverse)
			if x < 0 {
				dst[2+i] = byte(-int8(-x + 0.5))
			} else {
				dst[2+i] = byte(int8(x + 0.5))
			}
		}
	}
}

// narrowOffset writes numbers of -levels/2 to levels/2-1 times d. The one of the largest
// magnitude is the least: Q4_0 and Q5_0.
func narrowOffset(levels, bytes int, put func(dst []byte, q *[32]byte)) func(dst []byte, src []float32) {
	return func(dst []byte, src []float32) {
		for ; len(src) >= 32; dst, src = dst[bytes:], src[32:] {
			var top, signed float32
			for _, x := range src[:32] {
				if a := max(x, -x); a > top || a != a {
					top, signed = a, x
				}
			}
			d, inverse := scaleOf(signed / float32(-levels/2))
			putHalf(dst, d)
			var q [32]byte
			for i, x := range src[:32] {
				q[i] = byte(min(int(float32(x*inverse)+float32(levels/2)+0.5), levels-1))
			}
			put(dst[2:bytes], &q)
		}
	}
}

// narrowRange writes numbers of 0 to levels-1 times d above the least: Q4_1 and Q5_1.
func narrowRange(levels, bytes int, put func(dst []byte, q *[32]byte)) func(dst []byte, src []float32) {
	return func(dst []byte, src []float32) {
		for ; len(src) >= 32; dst, src = dst[bytes:], src[32:] {
			least, most := src[0], src[0]
			for _, x := range src[1:32] {
				least, most = min(least, x), max(most, x)
			}
			d, inverse := scaleOf((most - least) / float32(levels-1))
			putHalf(dst, d)
			putHalf(dst[2:], least)
			var q [32]byte
			for i, x := range src[:32] {
				q[i] = byte(min(int(float32((x-least)*inverse)+0.5), levels-1))
			}
			put(dst[4:bytes], &q)
		}
	}
}

func scaleOf(d float32) (scale, inverse float32) {
	if d == 0 {
		return d, 0
	}
	return d, 1 / d
}

// putNibbles writes the low 4 bits of elements i and i+16 to byte i.
func putNibbles(dst []byte, q *[32]byte) {
	for i := range 16 {
		dst[i] = q[i]&15 | q[i+16]<<4
	}
}

// putFifths writes a word of the fifth bits before the others.
func putFifths(dst []byte, q *[32]byte) {
	var high uint32
	for i, x := range q {
		high |= uint32(x>>4) << i
	}
	binary.LittleEndian.PutUint32(dst, high)
	putNibbles(dst[4:], q)
}

func putHalf(dst []byte, x float32) {
	wide, narrow := [1]float32{x}, [1]uint16{}
	simd.NarrowF16(narrow[:], wide[:])
	binary.LittleEndian.PutUint16(dst, narrow[0])
}
