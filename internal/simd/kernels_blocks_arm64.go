package simd

import "golang.org/x/sys/cpu"

var (
	noBlocks blockKernels

	blocksNEON = [blockVectors]blockKernels{
		VectorQ4_0:   {decodeQ4_0NEON, multiplyQ4_0SDOT, 4, 0},
		VectorQ4_1:   {decodeQ4_1NEON, multiplyQ4_1SDOT, 4, 0},
		VectorQ5_0:   {decodeQ5_0NEON, multiplyQ5_0SDOT, 4, 0},
		VectorQ5_1:   {decodeQ5_1NEON, multiplyQ5_1SDOT, 4, 0},
		VectorQ8_0:   {decodeQ8_0NEON, multiplyQ8_0SDOT, 4, 0},
		VectorIQ4_NL: {decodeIQ4_NLNEON, multiplyIQ4_NLSDOT, 4, 0},
		VectorMXFP4:  {decodeMXFP4NEON, multiplyMXFP4SDOT, 4, 0},
		VectorQ2_K:   {decodeQ2_KNEON, multiplyQ2_KSDOT, 4, 0},
		VectorQ3_K:   {decodeQ3_KNEON, multiplyQ3_KSDOT, 4, 0},
		VectorQ4_K:   {decodeQ4_KNEON, multiplyQ4_KSDOT, 4, 0},
		VectorQ5_K:   {decodeQ5_KNEON, multiplyQ5_KSDOT, 4, 0},
		VectorQ6_K:   {decodeQ6_KNEON, multiplyQ6_KSDOT, 4, 0},
		VectorIQ4_XS: {decodeIQ4_XSNEON, multiplyIQ4_XSSDOT, 4, 0},
	}
	decodesNEON = func() (without [blockVectors]blockKernels) { // without products
		for i, k := range blocksNEON {
			without[i].decode = k.decode
		}
		return without
	}()
)

// kernels is the assembly for f at the level in use.
func (f *Blocks) kernels() *blockKernels {
	switch {
	case level == portable:
		return &noBlocks
	case cpu.ARM64.HasASIMDDP:
		return &blocksNEON[f.Vector]
	}
	return &decodesNEON[f.Vector]
}

// quantise converts part of a row of a to records of f.Elems elements.
func quantise(dst *byte, src *float32, records int, f *Blocks) {
	if f.Elems == largeBlock {
		quantise256NEON(dst, src, records)
	} else {
		quantise32NEON(dst, src, records)
	}
}
