package formats

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"strings"
)

// Draw fills whole blocks with any codes and with scales of 2⁻⁸ to 2⁻⁶, of both signs: numbers that kernels are checked
// with, and none is NaN.
func (f *Format) Draw(blocks []byte, rng *rand.Rand) {
	for i := range blocks {
		blocks[i] = byte(rng.Uint32())
	}
	codes, scale, _ := strings.Cut(f.Name, "_")
	for ; len(blocks) > 0; blocks = blocks[f.Bytes:] {
		half := func() uint16 { return uint16(rng.Uint32())&0x87ff | 7<<10 }
		if codes == "E4M3" || codes == "MXFP8" {
			for i := f.Bytes - 32; i < f.Bytes; i++ {
				if blocks[i]&0x7f == 0x7f {
					blocks[i] = 0
				}
			}
		}
		switch {
		case scale == "BF16":
			binary.LittleEndian.PutUint16(blocks, F32ToBF16(F16ToF32(half())))
		case scale == "F32":
			binary.LittleEndian.PutUint32(blocks, math.Float32bits(F16ToF32(half())))
		case scale == "F16":
			binary.LittleEndian.PutUint16(blocks, half()&^0xff) // times 8 bits it is exact in F16
		case codes == "MXFP8" || codes == "MXFP4" || codes == "E2M1": // powers of two
			blocks[0] = 117 + byte(rng.IntN(3))
		default: // where ggml has one or two
			for _, at := range []int{0, 2, f.Bytes - 2} {
				binary.LittleEndian.PutUint16(blocks[at:], half())
			}
		}
		if codes == "I4" {
			blocks[2] &= 15 // a zero point
		}
	}
}
