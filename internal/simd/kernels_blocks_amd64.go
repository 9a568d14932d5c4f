package simd

import "golang.org/x/sys/cpu"

var (
	noBlocks blockKernels

	blocksAVX2, blocksVNNI [blockVectors]blockKernels
)

func init() {
	type product = func(m, n, blocks int, alpha float32, a *byte, lda int, b *byte, beta float32, c *float32, ldc int)
	for v, f := range [blockVectors]struct {
		decode                 func(dst *float32, src *byte, blocks int)
		avx2, vnni             product
		offsetAVX2, offsetVNNI int
	}{
		VectorQ4_0:      {decodeQ4_0AVX2, multiplyQ4_0AVX2, multiplyQ4_0AVX512VNNI, 8, 8},
		VectorQ4_1:      {decodeQ4_1AVX2, multiplyQ4_1AVX2, multiplyQ4_1AVX512VNNI, 0, 0},
		VectorQ5_0:      {decodeQ5_0AVX2, multiplyQ5_0AVX2, multiplyQ5_0AVX512VNNI, 16, 16},
		VectorQ5_1:      {decodeQ5_1AVX2, multiplyQ5_1AVX2, multiplyQ5_1AVX512VNNI, 0, 0},
		VectorQ8_0:      {decodeQ8_0AVX2, multiplyQ8_0AVX2, multiplyQ8_0AVX512VNNI, 0, 128},
		VectorIQ4_NL:    {decodeIQ4_NLAVX2, multiplyIQ4_NLAVX2, multiplyIQ4_NLAVX512VNNI, 0, 128},
		VectorMXFP4:     {decodeMXFP4AVX2, multiplyMXFP4AVX2, multiplyMXFP4AVX512VNNI, 12, 12},
		VectorE2M1_E8M0: {decodeE2M1_E8M0AVX2, multiplyMXFP4AVX2, multiplyMXFP4AVX512VNNI, 12, 12}, // the signs of zeros count for nothing in sums
		VectorMXFP8:     {decode: decodeMXFP8AVX2},
		VectorE4M3_BF16: {decodeE4M3_BF16AVX2, multiplyE4M3_BF16AVX2, multiplyE4M3_BF16AVX512, unrounded, unrounded},
		VectorE4M3_F32:  {decodeE4M3_F32AVX2, multiplyE4M3_F32AVX2, multiplyE4M3_F32AVX512, unrounded, unrounded},
		VectorI4_BF16:   {decodeI4_BF16AVX2, multiplyI4_BF16AVX2, multiplyI4_BF16AVX512VNNI, 16, 16},
		VectorI4_F16:    {decodeI4_F16AVX2, multiplyI4_F16AVX2, multiplyI4_F16AVX512VNNI, 16, 16},
		VectorI8_BF16:   {decodeI8_BF16AVX2, multiplyI8_BF16AVX2, multiplyI8_BF16AVX512VNNI, 0, 128},
		VectorI8_F16:    {decodeI8_F16AVX2, multiplyI8_F16AVX2, multiplyI8_F16AVX512VNNI, 0, 128},
		VectorI8Z_BF16:  {decodeI8Z_BF16AVX2, multiplyI8Z_BF16AVX2, multiplyI8Z_BF16AVX512VNNI, 0, 128},
		VectorI8Z_F16:   {decodeI8Z_F16AVX2, multiplyI8Z_F16AVX2, multiplyI8Z_F16AVX512VNNI, 0, 128},
		VectorQ2_K:      {decodeQ2_KAVX2, multiplyQ2_KAVX2, multiplyQ2_KAVX512VNNI, 0, 0},
		VectorQ3_K:      {decodeQ3_KAVX2, multiplyQ3_KAVX2, multiplyQ3_KAVX512VNNI, 0, 0},
		VectorQ4_K:      {decodeQ4_KAVX2, multiplyQ4_KAVX2, multiplyQ4_KAVX512VNNI, 0, 0},
		VectorQ5_K:      {decodeQ5_KAVX2, multiplyQ5_KAVX2, multiplyQ5_KAVX512VNNI, 0, 0},
		VectorQ6_K:      {decodeQ6_KAVX2, multiplyQ6_KAVX2, multiplyQ6_KAVX512VNNI, 0, 0},
		VectorIQ4_XS:    {decodeIQ4_XSAVX2, multiplyIQ4_XSAVX2, multiplyIQ4_XSAVX512VNNI, 0, 0},
	} {
		blocksAVX2[v] = blockKernels{f.decode, f.avx2, 3, f.offsetAVX2}
		blocksVNNI[v] = blockKernels{f.decode, f.vnni, 4, f.offsetVNNI}
		if f.offsetAVX2 == unrounded {
			blocksAVX2[v].rows = 4
		}
	}
}

// kernels is the assembly for f at the level in use.
func (f *Blocks) kernels() *blockKernels {
	switch {
	case level == portable:
		return &noBlocks
	case level >= avx512 && cpu.X86.HasAVX512VNNI:
		return &blocksVNNI[f.Vector]
	}
	return &blocksAVX2[f.Vector]
}

// quantise converts part of a row of a to records of f.Elems elements.
func quantise(dst *byte, src *float32, records int, f *Blocks) {
	if f.Elems == largeBlock {
		quantise256AVX2(dst, src, records, 0)
	} else {
		quantise32AVX2(dst, src, records, f.kernels().offset)
	}
}
