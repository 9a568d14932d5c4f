// Package formats holds the forms in which weights are stored: plain numbers, and blocks of
// quantised ones that share a scale. A block is read as ggml writes it, little-endian; each format
// says what one element is, and [Format.Widen] gives the same bits as the reference in Python
// (gguf.quants.dequantize of PyPI's gguf).
package formats

import (
	"encoding/binary"
	"fmt"
	"sync"

	"glimpse/internal/registry"
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

// add registers a format; widen is given whole blocks only.
func add(name string, elems, bytes int, widen func(dst []float32, src []byte)) {
	All.Add(name, &Format{Name: name, Elems: elems, Bytes: bytes, widen: widen})
}

// Widen decodes whole blocks of src into dst, Elems elements each. It panics where the lengths are
// not of as many blocks.
func (f *Format) Widen(dst []float32, src []byte) {
	if blocks := len(src) / f.Bytes; len(src) != blocks*f.Bytes || len(dst) != blocks*f.Elems {
		panic(fmt.Sprintf("formats: widen %s: %d elements of %d bytes, want blocks of %d of %d", f.Name, len(dst), len(src), f.Elems, f.Bytes))
	}
	f.widen(dst, src)
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
		f.Widen(wide[:n], src[:blocks*f.Bytes])
		narrow(dst[:n], wide[:n])
		dst, src = dst[n:], src[blocks*f.Bytes:]
	}
}

// half is the half-precision number at the start of src.
func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }
