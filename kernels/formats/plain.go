package formats

import (
	"encoding/binary"
	"math"
)

func init() {
	register("F32", 1, 4, 0, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	})
	register("F16", 1, 2, 0, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = half(src[2*i:])
		}
	})
	register("BF16", 1, 2, 0, func(dst []float32, src []byte) {
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	})
}
