package simd

var panelsVNNI = [blockVectors]bytePanels{
	VectorQ4_0:      {unpackQ4_0AVX512VNNI, multiplyBytesAVX512VNNI, 8, 1},
	VectorQ4_1:      {unpackQ4_1AVX512VNNI, multiplyBytesMinimaAVX512VNNI, 0, 1},
	VectorQ5_0:      {unpackQ5_0AVX512VNNI, multiplyBytesAVX512VNNI, 16, 1},
	VectorQ5_1:      {unpackQ5_1AVX512VNNI, multiplyBytesMinimaAVX512VNNI, 0, 1},
	VectorQ8_0:      {unpackQ8_0AVX512VNNI, multiplyBytesAVX512VNNI, 128, 1},
	VectorIQ4_NL:    {unpackIQ4_NLAVX512VNNI, multiplyBytesAVX512VNNI, 128, 1},
	VectorMXFP4:     {unpackMXFP4AVX512VNNI, multiplyBytesAVX512VNNI, 12, 1},
	VectorE2M1_E8M0: {unpackMXFP4AVX512VNNI, multiplyBytesAVX512VNNI, 12, 1}, // the signs of zeros count for nothing in sums
	VectorI4_BF16:   {unpackI4_BF16AVX512VNNI, multiplyBytesAVX512VNNI, 16, 1},
	VectorI4_F16:    {unpackI4_F16AVX512VNNI, multiplyBytesAVX512VNNI, 16, 1},
	VectorI8_BF16:   {unpackI8_BF16AVX512VNNI, multiplyBytesAVX512VNNI, 128, 1},
	VectorI8_F16:    {unpackI8_F16AVX512VNNI, multiplyBytesAVX512VNNI, 128, 1},
	VectorI8Z_BF16:  {unpackI8Z_BF16AVX512VNNI, multiplyBytesMinimaAVX512VNNI, 128, 1},
	VectorI8Z_F16:   {unpackI8Z_F16AVX512VNNI, multiplyBytesMinimaAVX512VNNI, 128, 1},
	VectorQ2_K:      {unpackQ2_KAVX512VNNI, multiplyBytesHalvesMinimaAVX512VNNI, 0, 2},
	VectorQ3_K:      {unpackQ3_KAVX512VNNI, multiplyBytesHalvesAVX512VNNI, 4, 2},
	VectorQ4_K:      {unpackQ4_KAVX512VNNI, multiplyBytesMinimaAVX512VNNI, 0, 1},
	VectorQ5_K:      {unpackQ5_KAVX512VNNI, multiplyBytesMinimaAVX512VNNI, 0, 1},
	VectorQ6_K:      {unpackQ6_KAVX512VNNI, multiplyBytesHalvesAVX512VNNI, 32, 2},
	VectorIQ4_XS:    {unpackIQ4_XSAVX512VNNI, multiplyBytesAVX512VNNI, 128, 1},
}

// bytePanels is the assembly for f at the level in use, or nil. Where pairs of bfloat16 are multiplied, panels hold them.
func (f *Blocks) bytePanels() *bytePanels {
	if chosen != avx512vnni || panelsVNNI[f.Vector].unpack == nil {
		return nil
	}
	return &panelsVNNI[f.Vector]
}

// quantisePanel converts part of a row of a to records of 32 elements for panels of bytes with an offset.
func quantisePanel(dst *byte, src *float32, records, offset int) {
	quantisePanelAVX2(dst, src, records, offset)
}
