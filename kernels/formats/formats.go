// Package formats holds the forms in which weights are stored: plain numbers, and blocks of
// quantised ones that share a scale. A block is read as ggml writes it, little-endian; each format
// says what one element is, and [Format.Widen] gives the same bits as the reference in Python
// (gguf.quants.dequantize of PyPI's gguf).
package formats

import (
	"encoding/binary"
	"fmt"

	"glimpse/internal/registry"
	"glimpse/kernels"
)

// Format is the form of a tensor's elements: blocks of Elems elements in Bytes bytes. A row of a
// tensor is whole blocks.
type Format struct {
	Name  string // ggml's: "F16", "Q4_K"
	Elems int    // elements of a block; 1: plain numbers
	Bytes int    // bytes of a block

	// widen decodes blocks.
	widen func(dst []float32, src []byte)
}

// All are the formats by their names.
var All = registry.Registry[Format]{Noun: "tensor format"}

// add registers a format; widen is given whole blocks only.
func add(name string, elems, bytes int, widen func(dst []float32, src []byte)) {
	All.Add(name, Format{Name: name, Elems: elems, Bytes: bytes, widen: widen})
}

// Widen decodes whole blocks of src into dst, Elems elements each. It panics where the lengths are
// not of as many blocks.
func (f Format) Widen(dst []float32, src []byte) {
	if blocks := len(src) / f.Bytes; len(src) != blocks*f.Bytes || len(dst) != blocks*f.Elems {
		panic(fmt.Sprintf("formats: widen %s: %d elements of %d bytes, want blocks of %d of %d", f.Name, len(dst), len(src), f.Elems, f.Bytes))
	}
	f.widen(dst, src)
}

// half is the half-precision number at the start of src.
func half(src []byte) float32 { return kernels.F16ToF32(binary.LittleEndian.Uint16(src)) }
