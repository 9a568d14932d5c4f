package formats

import (
	"encoding/binary"
	"math"

	"glimpse/internal/simd"
)

// What Hugging Face checkpoints store of a linear layer, in blocks of 32 elements of a row: the scale that they share
// with others, in the type that the checkpoint has it in, and their codes. An element is the product of both, which
// is rounded to F16 where the scale is.
func init() {
	// Floats of 8 bits.
	addBlocks("E4M3_BF16", 32, 34, simd.VectorE4M3_BF16, func(dst []float32, src []byte) { widenE4M3(dst, src[2:], bf16(src)) })
	addBlocks("E4M3_F32", 32, 36, simd.VectorE4M3_F32, func(dst []float32, src []byte) {
		widenE4M3(dst, src[4:], math.Float32frombits(binary.LittleEndian.Uint32(src)))
	})
	// A zero point, and codes of 4 bits above it, elements i and i+16 in one byte.
	addBlocks("I4_BF16", 32, 19, simd.VectorI4_BF16, func(dst []float32, src []byte) { widenI4(dst, src[2:], bf16(src)) })
	addBlocks("I4_F16", 32, 19, simd.VectorI4_F16, func(dst []float32, src []byte) {
		widenI4(dst, src[2:], half(src))
		roundF16(dst)
	})
	// Signed bytes.
	addBlocks("I8_BF16", 32, 34, simd.VectorI8_BF16, func(dst []float32, src []byte) { widenI8(dst, src[2:], bf16(src)) })
	addBlocks("I8_F16", 32, 34, simd.VectorI8_F16, func(dst []float32, src []byte) {
		widenI8(dst, src[2:], half(src))
		roundF16(dst)
	})
	// A zero point and bytes above it, all signed.
	addBlocks("I8Z_BF16", 32, 35, simd.VectorI8Z_BF16, func(dst []float32, src []byte) { widenI8Z(dst, src[2:], bf16(src)) })
	addBlocks("I8Z_F16", 32, 35, simd.VectorI8Z_F16, func(dst []float32, src []byte) {
		widenI8Z(dst, src[2:], half(src))
		roundF16(dst)
	})
}

func widenE4M3(dst []float32, src []byte, scale float32) {
	for i, b := range src {
		dst[i] = E4M3[b] * scale
	}
}

func widenI4(dst []float32, src []byte, scale float32) {
	zero := src[0] // at most 16
	for i, b := range src[1:] {
		dst[i], dst[i+16] = float32(int8(b&15-zero))*scale, float32(int8(b>>4-zero))*scale
	}
}

func widenI8(dst []float32, src []byte, scale float32) {
	for i, b := range src {
		dst[i] = float32(int8(b)) * scale
	}
}

func widenI8Z(dst []float32, src []byte, scale float32) {
	zero := int(int8(src[0]))
	for i, b := range src[1:] {
		dst[i] = float32(int(int8(b))-zero) * scale
	}
}

func roundF16(x []float32) {
	var h [32]uint16
	simd.NarrowF16(h[:], x)
	simd.WidenF16(x, h[:])
}

func bf16(src []byte) float32 { return BF16ToF32(binary.LittleEndian.Uint16(src)) }
