package simd

import "golang.org/x/sys/cpu"

// avxVNNI tells whether AVX2 has VPDPBUSD, which tests change.
var avxVNNI = cpu.X86.HasAVXVNNI

// bytesExtension is the extension that multiplies bytes at the level in use, as part of a name.
func bytesExtension() string {
	if level >= avx512 && cpu.X86.HasAVX512VNNI || level == avx2 && avxVNNI {
		return "+vnni"
	}
	return ""
}

// kindOfPanel is what panels of bytes differ by: scales of halves of groups, and minima.
type kindOfPanel uint8

const (
	bytesAlone kindOfPanel = iota
	bytesMinima
	bytesHalves
	bytesHalvesMinima
	kindsOfPanel
)

var (
	panelsVNNI = [kindsOfPanel]multiplyBytes{
		multiplyBytesAVX512VNNI, multiplyBytesMinimaAVX512VNNI, multiplyBytesHalvesAVX512VNNI, multiplyBytesHalvesMinimaAVX512VNNI}
	panelsAVXVNNI = [kindsOfPanel]multiplyBytes{
		multiplyBytesAVXVNNI, multiplyBytesMinimaAVXVNNI, multiplyBytesHalvesAVXVNNI, multiplyBytesHalvesMinimaAVXVNNI}
)

// panelFormats are the formats as panels of bytes have them, and what multiplies these without VNNI, by products where AVX2
// has 16 bits for two.
var panelFormats = [blockVectors]struct {
	unpack unpackBlocks
	offset int
	kind   kindOfPanel
	avx2   multiplyBytes
}{
	VectorQ4_0:      {unpackQ4_0AVX2, 8, bytesAlone, multiplyBytesAVX2},
	VectorQ4_1:      {unpackQ4_1AVX2, 0, bytesMinima, multiplyBytesMinimaAVX2},
	VectorQ5_0:      {unpackQ5_0AVX2, 16, bytesAlone, multiplyBytesUpTo128AVX2},
	VectorQ5_1:      {unpackQ5_1AVX2, 0, bytesMinima, multiplyBytesMinimaUpTo128AVX2},
	VectorQ8_0:      {unpackQ8_0AVX2, 128, bytesAlone, multiplyBytesUpTo255AVX2},
	VectorIQ4_NL:    {unpackIQ4_NLAVX2, 128, bytesAlone, multiplyBytesUpTo255AVX2},
	VectorMXFP4:     {unpackMXFP4AVX2, 12, bytesAlone, multiplyBytesUpTo31AVX2},
	VectorE2M1_E8M0: {unpackMXFP4AVX2, 12, bytesAlone, multiplyBytesUpTo31AVX2}, // the signs of zeros count for nothing in sums
	VectorI4_BF16:   {unpackI4_BF16AVX2, 16, bytesAlone, multiplyBytesUpTo31AVX2},
	VectorI4_F16:    {unpackI4_F16AVX2, 16, bytesAlone, multiplyBytesUpTo31AVX2},
	VectorI8_BF16:   {unpackI8_BF16AVX2, 128, bytesAlone, multiplyBytesUpTo255AVX2},
	VectorI8_F16:    {unpackI8_F16AVX2, 128, bytesAlone, multiplyBytesUpTo255AVX2},
	VectorI8Z_BF16:  {unpackI8Z_BF16AVX2, 128, bytesMinima, multiplyBytesMinimaUpTo255AVX2},
	VectorI8Z_F16:   {unpackI8Z_F16AVX2, 128, bytesMinima, multiplyBytesMinimaUpTo255AVX2},
	VectorQ2_K:      {unpackQ2_KAVX2, 0, bytesHalvesMinima, multiplyBytesHalvesMinimaAVX2},
	VectorQ3_K:      {unpackQ3_KAVX2, 4, bytesHalves, multiplyBytesHalvesAVX2},
	VectorQ4_K:      {unpackQ4_KAVX2, 0, bytesMinima, multiplyBytesMinimaAVX2},
	VectorQ5_K:      {unpackQ5_KAVX2, 0, bytesMinima, multiplyBytesMinimaUpTo128AVX2},
	VectorQ6_K:      {unpackQ6_KAVX2, 32, bytesHalves, multiplyBytesHalvesUpTo128AVX2},
	VectorIQ4_XS:    {unpackIQ4_XSAVX2, 128, bytesAlone, multiplyBytesUpTo255AVX2},
}

// bytePanels is the assembly for f at the level in use; ok is false without any. Tiles of pairs of bfloat16 are faster.
func (f *Blocks) bytePanels() (format bytePanels, ok bool) {
	x := &panelFormats[f.Vector]
	format = bytePanels{x.unpack, x.avx2, 16, x.offset, 1}
	switch {
	case level == portable || tiles || x.unpack == nil:
		return format, false
	case level >= avx512 && cpu.X86.HasAVX512VNNI:
		format.multiply, format.columns = panelsVNNI[x.kind], 32
	case level >= avx512: // float32 is as fast as AVX2's bytes
		return format, false
	case avxVNNI:
		format.multiply = panelsAVXVNNI[x.kind]
	case x.offset == 128: // AVX2 multiplies numbers with their signs
		format.offset = 0
	}
	if x.kind >= bytesHalves {
		format.parts = 2
	}
	return format, format.multiply != nil
}

// quantisePanel converts part of a row of a to records of 32 elements for panels of bytes with an offset.
func quantisePanel(dst *byte, src *float32, records, offset int) {
	quantisePanelAVX2(dst, src, records, offset)
}
