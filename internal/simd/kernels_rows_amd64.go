package simd

import "golang.org/x/sys/cpu"

// chunkKernels is the assembly for f and m rows at the level in use; ok is false where there is none, or none that is faster.
// By weights with scales of halves of groups, and at AVX2, where a product of bytes is four instructions, it gained nothing.
func (f *Blocks) chunkKernels(m int) (k chunkKernels, ok bool) {
	format := &panelFormats[f.Vector]
	if level < avx512 || !cpu.X86.HasAVX512VNNI || format.unpack == nil {
		return k, false
	}
	large, minima, least := f.Elems == largeBlock, format.kind == bytesMinima, chunkRows
	if !large && format.offset < 128 { // the more a weight takes to unpack
		least = f.kernels().rows + 1
	}
	if m < least || format.kind >= bytesHalves {
		return k, false
	}
	k = chunkKernels{unpack: format.unpack, spread: spreadSmallAVX512, multiply: multiplyChunkSmallAVX512VNNI, bytes: smallChunk, factor: 1}
	switch {
	case large:
		k.spread, k.multiply, k.bytes = spreadLargeAVX512, multiplyChunkLargeAVX512VNNI, largeChunk
	case minima:
		k.multiply = multiplyChunkSmallMinimaAVX512VNNI
	}
	if large && !minima {
		k.factor = -float32(format.offset)
	}
	return k, true
}
