// Package formats holds the forms in which weights are stored: plain numbers, and blocks of
// quantised ones that share a scale. A block is read as ggml writes it, little-endian; each format
// says what one element is, and [Format.Decode] gives the same bits as the reference in Python
// (gguf.quants.dequantize of PyPI's gguf).
package formats

import (
	"encoding/binary"
	"sync"

	"glimpse/internal/registry"
	"glimpse/internal/simd"
)

// Format is the form of a tensor's elements. A row of a tensor is whole blocks; a block of plain
// numbers has one element.
type Format struct {
	Name string // ggml's: "F16", "Q4_K"
	simd.Blocks
	// Narrow writes elements as whole blocks; nil where a format is for reading alone.
	Narrow func(dst []byte, src []float32)
}

// All are the formats by their names.
var All = registry.Registry[*Format]{Noun: "tensor format"}

// OfBlocks are the formats of blocks, by name.
func OfBlocks() (of []*Format) {
	for _, name := range All.Names() {
		if f, _ := All.Lookup(name); f.Elems > 1 {
			of = append(of, f)
		}
	}
	return of
}

// register registers a format; widen is given whole blocks only, and there may be assembly that reads
// them, too.
func register(name string, elems, bytes int, vector simd.BlockVector, widen func(dst []float32, src []byte)) *Format {
	f := &Format{Name: name, Blocks: simd.Blocks{Elems: elems, Bytes: bytes, Widen: widen, Vector: vector}}
	All.Add(name, f)
	return f
}

// addBlocks registers a format by the function that widens one block.
func addBlocks(name string, elems, bytes int, vector simd.BlockVector, widen func(dst []float32, src []byte)) *Format {
	return register(name, elems, bytes, vector, func(dst []float32, src []byte) {
		for ; len(dst) >= elems && len(src) >= bytes; dst, src = dst[elems:], src[bytes:] {
			widen(dst[:elems], src[:bytes])
		}
	})
}

// rounding has room for whole blocks of every format.
var rounding = sync.Pool{New: func() any { return new([1024]float32) }}

// Round widens whole blocks of src and rounds them by narrow, [simd.NarrowBF16] or
// [simd.NarrowF16].
func (f *Format) Round(dst []uint16, src []byte, narrow func(dst []uint16, src []float32)) {
	wide := rounding.Get().(*[1024]float32)
	defer rounding.Put(wide)
	for step := len(wide) / f.Elems; len(dst) > 0; {
		blocks := min(step, len(src)/f.Bytes)
		n := blocks * f.Elems
		f.Decode(wide[:n], src[:blocks*f.Bytes])
		narrow(dst[:n], wide[:n])
		dst, src = dst[n:], src[blocks*f.Bytes:]
	}
}

// half is the half-precision number at the start of src.
func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }
