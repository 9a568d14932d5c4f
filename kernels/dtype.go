package kernels

import (
	"fmt"

	"glimpse/kernels/formats"
)

// DType is the form in which a tensor stores its elements: numbers, or blocks of quantised
// numbers; a row of the tensor is whole blocks.
type DType uint8

// Numbers. BF16 and F16 are storage only, as all blocks are: every backend computes in F32
// or F64. I32 holds token ids and positions.
const (
	Invalid DType = iota
	F64
	F32
	BF16
	F16
	I32
	firstBlocks // the first of the formats of blocks, in the order of their names
)

var dtypeNames = [...]string{"invalid", "F64", "F32", "BF16", "F16", "I32"}
var dtypeSizes = [...]int{0, 8, 4, 2, 2, 4}

var blockFormats = formats.OfBlocks()

// Format is the format of a type of blocks; false for numbers.
func (d DType) Format() (*formats.Format, bool) {
	if d < firstBlocks || int(d-firstBlocks) >= len(blockFormats) {
		return nil, false
	}
	return blockFormats[d-firstBlocks], true
}

// Numbers is BF16 of blocks, the type that they are widened to and rounded, and d of numbers.
func (d DType) Numbers() DType {
	if _, ok := d.Format(); ok || d.Grouped() {
		return BF16
	}
	return d
}

// String returns the safetensors name of the type, ggml's of blocks.
func (d DType) String() string {
	if f, ok := d.Format(); ok {
		return f.Name
	}
	switch {
	case int(d) < len(dtypeNames):
		return dtypeNames[d]
	case d == KIVIKeys:
		return "KIVI4-K"
	case d == KIVIValues:
		return "KIVI4-V"
	}
	return fmt.Sprintf("DType(%d)", uint8(d))
}

// Size is the number of bytes of one element; it panics for blocks.
func (d DType) Size() int { return dtypeSizes[d] }

// StoredBytes is the memory of a tensor.
func StoredBytes(d DType, shape ...int) int {
	if d.Grouped() {
		return groupedBytes(shape[0], ShapeLen(shape[1:]))
	}
	return d.Bytes(ShapeLen(shape))
}

// Bytes is the size of n elements, which are whole blocks; of rows in groups, of so many that all are in one.
func (d DType) Bytes(n int) int {
	f, ok := d.Format()
	if d.Grouped() {
		f, ok = groupBlock, true
	}
	if !ok {
		return n * d.Size()
	}
	if n%f.Elems != 0 {
		panic(fmt.Sprintf("kernels: %d elements of %s, want whole blocks of %d", n, d, f.Elems))
	}
	return n / f.Elems * f.Bytes
}

// ParseDType reads a safetensors type name.
func ParseDType(s string) (DType, error) {
	for d := F64; int(d) < len(dtypeNames); d++ {
		if dtypeNames[d] == s {
			return d, nil
		}
	}
	return Invalid, fmt.Errorf("unsupported dtype %q, want one of: F64, F32, BF16, F16, I32", s)
}

// ParseStored is ParseDType, and reads ggml's names of blocks.
func ParseStored(s string) (DType, error) {
	for i, f := range blockFormats {
		if f.Name == s {
			return firstBlocks + DType(i), nil
		}
	}
	return ParseDType(s)
}
