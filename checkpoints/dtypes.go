package checkpoints

import (
	"fmt"
	"math"
	"math/bits"
)

// dtypeBits are all element types of the safetensors format and their widths.
// Most cannot be computed with, but a file that holds them beside supported
// tensors (an I64 buffer in an old checkpoint) is still read, which needs their
// sizes.
var dtypeBits = map[string]int{
	"F64": 64, "F32": 32, "BF16": 16, "F16": 16,
	"I64": 64, "I32": 32, "I16": 16, "I8": 8,
	"U64": 64, "U32": 32, "U16": 16, "U8": 8,
	"BOOL": 8, "C64": 64,
	"F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
	"F6_E2M3": 6, "F6_E3M2": 6, "F4": 4,
}

// byteSize is the number of bytes of a tensor, with checked multiplication.
func byteSize(dtype string, shape []int) (int, error) {
	width, ok := dtypeBits[dtype]
	if !ok {
		return 0, Corruptf("unknown dtype %q", dtype)
	}
	n, ok := elementCount(shape)
	if !ok {
		return 0, Corruptf("number of elements of shape %s overflows", ShapeString(shape))
	}
	// Elements narrower than a byte are packed and must fill whole bytes.
	hi, total := bits.Mul64(uint64(n), uint64(width))
	if hi != 0 || total > math.MaxInt {
		return 0, Corruptf("number of bytes of %s %s overflows", dtype, ShapeString(shape))
	}
	if total%8 != 0 {
		return 0, Corruptf("%s %s does not fill whole bytes", dtype, ShapeString(shape))
	}
	return int(total / 8), nil
}

// elementCount multiplies the dimensions, in order, as the reference reader does: a
// zero does not excuse an overflow before it.
func elementCount(shape []int) (n int, ok bool) {
	n = 1
	for _, d := range shape {
		if d < 0 || d > 0 && n > math.MaxInt/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}

// ShapeString renders a shape for an error message; hostile files have shapes
// with millions of dimensions.
func ShapeString(shape []int) string {
	if len(shape) > 8 {
		return fmt.Sprintf("%v… (rank %d)", shape[:8], len(shape))
	}
	return fmt.Sprint(shape)
}
