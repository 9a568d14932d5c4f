package simd

import "golang.org/x/sys/cpu"

// bytesExtension is the extension that multiplies bytes at the level in use, as part of a name.
func bytesExtension() string {
	if level != portable && cpu.ARM64.HasASIMDDP {
		return "+asimddp"
	}
	return ""
}

// panelFormats are the formats as panels of signed bytes have them.
var panelFormats = [blockVectors]bytePanels{
	VectorQ4_0:   {unpackQ4_0NEON, multiplyBytesSDOT, neonColumns, 0, 1},
	VectorQ4_1:   {unpackQ4_1NEON, multiplyBytesMinimaSDOT, neonColumns, 0, 1},
	VectorQ5_0:   {unpackQ5_0NEON, multiplyBytesSDOT, neonColumns, 0, 1},
	VectorQ5_1:   {unpackQ5_1NEON, multiplyBytesMinimaSDOT, neonColumns, 0, 1},
	VectorQ8_0:   {unpackQ8_0NEON, multiplyBytesSDOT, neonColumns, 0, 1},
	VectorIQ4_NL: {unpackIQ4_NLNEON, multiplyBytesSDOT, neonColumns, 0, 1},
	VectorMXFP4:  {unpackMXFP4NEON, multiplyBytesSDOT, neonColumns, 0, 1},
	VectorQ2_K:   {unpackQ2_KNEON, multiplyBytesHalvesMinimaSDOT, neonColumns, 0, 2},
	VectorQ3_K:   {unpackQ3_KNEON, multiplyBytesHalvesSDOT, neonColumns, 0, 2},
	VectorQ4_K:   {unpackQ4_KNEON, multiplyBytesMinimaSDOT, neonColumns, 0, 1},
	VectorQ5_K:   {unpackQ5_KNEON, multiplyBytesMinimaSDOT, neonColumns, 0, 1},
	VectorQ6_K:   {unpackQ6_KNEON, multiplyBytesHalvesSDOT, neonColumns, 0, 2},
	VectorIQ4_XS: {unpackIQ4_XSNEON, multiplyBytesSDOT, neonColumns, 0, 1},
}

// bytePanels is the assembly for f at the level in use; ok is false without any.
func (f *Blocks) bytePanels() (format bytePanels, ok bool) {
	format = panelFormats[f.Vector]
	return format, level != portable && cpu.ARM64.HasASIMDDP && format.multiply != nil
}

// quantisePanel converts part of a row of a to records of 32 elements for panels of bytes, which have no offset here.
func quantisePanel(dst *byte, src *float32, records, _ int) { quantisePanelNEON(dst, src, records) }
