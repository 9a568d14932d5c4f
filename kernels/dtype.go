package kernels

import (
	"fmt"
	"math"
)

// DType is the storage type of one tensor element.
type DType uint8

// Storage types. BF16 and F16 are storage only: every backend computes in F32
// or F64. I32 holds token ids and positions.
const (
	Invalid DType = iota
	F64
	F32
	BF16
	F16
	I32
)

var dtypeNames = [...]string{"invalid", "F64", "F32", "BF16", "F16", "I32"}
var dtypeSizes = [...]int{0, 8, 4, 2, 2, 4}

// String returns the safetensors name of the type.
func (d DType) String() string {
	if int(d) < len(dtypeNames) {
		return dtypeNames[d]
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Size is the number of bytes of one element.
func (d DType) Size() int { return dtypeSizes[d] }

// ParseDType reads a safetensors type name.
func ParseDType(s string) (DType, error) {
	for d := F64; int(d) < len(dtypeNames); d++ {
		if dtypeNames[d] == s {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("unsupported dtype %q, want one of: F64, F32, BF16, F16, I32", s)
}

// BF16ToF32 widens a bfloat16 bit pattern; exact.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; NaN stays NaN.
func F32ToBF16(f float32) uint16 {
	b := math.Float32bits(f)
	if b&0x7fffffff > 0x7f800000 {
		return uint16(b>>16) | 0x40
	}
	return uint16((b + 0x7fff + (b>>16)&1) >> 16)
}

// F16ToF32 widens an IEEE half-precision bit pattern; exact.
func F16ToF32(h uint16) float32 {
	sign, exp, man := uint32(h>>15)<<31, uint32(h>>10)&0x1f, uint32(h)&0x3ff
	switch exp {
	case 0: // zero and subnormals: man · 2⁻²⁴
		f := float32(man) * (1.0 / (1 << 24))
		return math.Float32frombits(math.Float32bits(f) | sign)
	case 31:
		return math.Float32frombits(sign | 0x7f800000 | man<<13)
	}
	return math.Float32frombits(sign | (exp+112)<<23 | man<<13)
}
