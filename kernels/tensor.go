package kernels

import (
	"fmt"
	"slices"
	"unsafe"
)

// Tensor is a dense row-major array in the memory of one backend. Host backends
// hold it in exactly one of the typed slices; others in a block of their own, whose
// elements the host reads and writes only by Convert, At and the copies
// Float32s and Float64s, each of which waits for the device. A Tensor never changes
// its shape; views made by Rows and Reshape share its memory.
type Tensor struct {
	DType DType
	Shape []int

	f32 []float32
	f64 []float64
	u16 []uint16 // BF16 and F16 bit patterns
	i32 []int32

	bare bool // a shape without memory

	block  block // of an accelerator; nil on the host
	offset int   // of the first element in block, in bytes
}

// block is memory of an accelerator. It is freed once no tensor refers to it.
type block interface {
	// address is that of the first byte; the host must not follow it.
	address() uintptr
	// read copies len(dst) bytes at offset to the host, after all work queued so far.
	read(dst []byte, offset int)
	// write copies src to offset, in the order of the device's work.
	write(offset int, src []byte)
}

// NewShape returns a tensor without memory, of which only type and extents can be
// used: what a model would take, without loading it.
func NewShape(d DType, shape ...int) *Tensor {
	elements(shape)
	return &Tensor{DType: d, Shape: slices.Clone(shape), bare: true}
}

// NewTensor allocates a zeroed host tensor.
func NewTensor(d DType, shape ...int) *Tensor {
	n := elements(shape)
	t := &Tensor{DType: d, Shape: slices.Clone(shape)}
	switch d {
	case F32:
		t.f32 = make([]float32, n)
	case F64:
		t.f64 = make([]float64, n)
	case BF16, F16:
		t.u16 = make([]uint16, n)
	case I32:
		t.i32 = make([]int32, n)
	default:
		panic("kernels: NewTensor of " + d.String())
	}
	return t
}

// FromF32 wraps data without copying.
func FromF32(data []float32, shape ...int) *Tensor {
	mustFit(len(data), shape)
	return &Tensor{DType: F32, Shape: slices.Clone(shape), f32: data}
}

// FromF64 wraps data without copying.
func FromF64(data []float64, shape ...int) *Tensor {
	mustFit(len(data), shape)
	return &Tensor{DType: F64, Shape: slices.Clone(shape), f64: data}
}

// FromBytes views little-endian stored elements, for example a tensor of a
// memory-mapped checkpoint, without copying where the data is aligned to its
// element size and with one copy where it is not.
func FromBytes(d DType, data []byte, shape ...int) (*Tensor, error) {
	n := elements(shape)
	if len(data) != n*d.Size() {
		return nil, fmt.Errorf("%s tensor %v: %d bytes, want %d", d, shape, len(data), n*d.Size())
	}
	t := &Tensor{DType: d, Shape: slices.Clone(shape)}
	if n == 0 {
		return NewTensor(d, shape...), nil
	}
	if uintptr(unsafe.Pointer(&data[0]))%uintptr(d.Size()) != 0 {
		t := NewTensor(d, shape...)
		copy(t.bytes(), data)
		return t, nil
	}
	p := unsafe.Pointer(&data[0])
	switch d {
	case F32:
		t.f32 = unsafe.Slice((*float32)(p), n)
	case F64:
		t.f64 = unsafe.Slice((*float64)(p), n)
	case BF16, F16:
		t.u16 = unsafe.Slice((*uint16)(p), n)
	case I32:
		t.i32 = unsafe.Slice((*int32)(p), n)
	default:
		return nil, fmt.Errorf("tensor of %s", d)
	}
	return t, nil
}

func (t *Tensor) bytes() []byte {
	t.mustHost()
	switch n := t.Bytes(); {
	case n == 0:
		return nil
	case t.DType == F32:
		return unsafe.Slice((*byte)(unsafe.Pointer(&t.f32[0])), n)
	case t.DType == F64:
		return unsafe.Slice((*byte)(unsafe.Pointer(&t.f64[0])), n)
	case t.DType == I32:
		return unsafe.Slice((*byte)(unsafe.Pointer(&t.i32[0])), n)
	default:
		return unsafe.Slice((*byte)(unsafe.Pointer(&t.u16[0])), n)
	}
}

// Len is the number of elements.
func (t *Tensor) Len() int { return elements(t.Shape) }

// Bytes is the size of the elements in memory.
func (t *Tensor) Bytes() int { return t.Len() * t.DType.Size() }

// Dim0 is the first extent, the number of rows.
func (t *Tensor) Dim0() int { return t.Shape[0] }

// Width is the number of elements of one row: the product of all extents but
// the first.
func (t *Tensor) Width() int { return elements(t.Shape[1:]) }

// F32 is the memory of an F32 host tensor.
func (t *Tensor) F32() []float32 { t.must(F32); return t.f32 }

// F64 is the memory of an F64 host tensor.
func (t *Tensor) F64() []float64 { t.must(F64); return t.f64 }

// U16 is the memory of a BF16 or F16 host tensor.
func (t *Tensor) U16() []uint16 {
	if t.DType != BF16 && t.DType != F16 {
		t.must(BF16)
	}
	t.mustHost()
	return t.u16
}

// I32 is the memory of an I32 host tensor.
func (t *Tensor) I32() []int32 { t.must(I32); return t.i32 }

func (t *Tensor) must(d DType) {
	if t.DType != d {
		panic(fmt.Sprintf("kernels: %s view of a %s tensor", d, t.DType))
	}
	t.mustHost()
}

func (t *Tensor) mustHost() {
	if t.block != nil {
		panic(fmt.Sprintf("kernels: host access to a %s tensor %v in device memory", t.DType, t.Shape))
	}
}

// OnHost is t itself where it is a host tensor, and otherwise a copy that is one.
func (t *Tensor) OnHost() *Tensor {
	if t.block == nil {
		return t
	}
	h := NewTensor(t.DType, t.Shape...)
	if b := h.bytes(); len(b) > 0 {
		t.block.read(b, t.offset)
	}
	return h
}

// Rows is the view of rows [from, to).
func (t *Tensor) Rows(from, to int) *Tensor {
	w := t.Width()
	v := t.view(from*w, to*w)
	v.Shape = slices.Clone(t.Shape) // one allocation: decoding makes many views
	v.Shape[0] = to - from
	return v
}

// Reshape is the same memory under another shape of equal length.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	mustFit(t.Len(), shape)
	v := *t
	v.Shape = slices.Clone(shape)
	return &v
}

func (t *Tensor) view(from, to int) *Tensor {
	v := &Tensor{DType: t.DType, bare: t.bare}
	if t.block != nil {
		if from < 0 || from > to || to > t.Len() {
			panic(fmt.Sprintf("kernels: elements %d to %d of %v", from, to, t.Shape))
		}
		v.block, v.offset = t.block, t.offset+from*t.DType.Size()
	}
	if t.bare || t.block != nil {
		return v
	}
	switch t.DType {
	case F32:
		v.f32 = t.f32[from:to:to]
	case F64:
		v.f64 = t.f64[from:to:to]
	case I32:
		v.i32 = t.i32[from:to:to]
	default:
		v.u16 = t.u16[from:to:to]
	}
	return v
}

// At reads one element as float64, whatever its storage type.
func (t *Tensor) At(i int) float64 {
	if t.block != nil {
		return t.view(i, i+1).withShape(1).OnHost().At(0)
	}
	switch t.DType {
	case F32:
		return float64(t.f32[i])
	case F64:
		return t.f64[i]
	case BF16:
		return float64(BF16ToF32(t.u16[i]))
	case F16:
		return float64(F16ToF32(t.u16[i]))
	default:
		return float64(t.i32[i])
	}
}

func (t *Tensor) withShape(shape ...int) *Tensor {
	t.Shape = shape
	return t
}

// set rounds x to the storage type of a floating-point tensor.
func (t *Tensor) set(i int, x float64) {
	switch t.DType {
	case F32:
		t.f32[i] = float32(x)
	case F64:
		t.f64[i] = x
	case BF16:
		t.u16[i] = F32ToBF16(float32(x))
	default:
		panic("kernels: store into a " + t.DType.String() + " tensor")
	}
}

// Convert copies src into dst element by element, rounding to dst's type. Either
// may lie in device memory.
func Convert(dst, src *Tensor) {
	if dst.Len() != src.Len() {
		panic(fmt.Sprintf("kernels: Convert %v into %v", src.Shape, dst.Shape))
	}
	src = src.OnHost()
	if dst.block != nil {
		if dst.DType != src.DType {
			host := NewTensor(dst.DType, dst.Shape...)
			Convert(host, src)
			src = host
		}
		if b := src.bytes(); len(b) > 0 {
			dst.block.write(dst.offset, b)
		}
		return
	}
	if dst.DType == src.DType {
		copy(dst.bytes(), src.bytes())
		return
	}
	for i := range src.Len() {
		dst.set(i, src.At(i))
	}
}

// Place returns host tensor t as b's operations take it: t itself where b computes
// on host memory, a copy in b's memory otherwise.
func Place(b Backend, t *Tensor) *Tensor {
	if p, ok := b.(placer); ok {
		return p.place(t)
	}
	return t
}

// placer is a Backend with memory of its own.
type placer interface{ place(host *Tensor) *Tensor }

// Float32s copies the elements to the host, converted.
func (t *Tensor) Float32s() []float32 {
	out := make([]float32, t.Len())
	Convert(FromF32(out, t.Len()), t)
	return out
}

// Float64s copies the elements to the host, converted.
func (t *Tensor) Float64s() []float64 {
	out := make([]float64, t.Len())
	Convert(FromF64(out, t.Len()), t)
	return out
}

// Addr is the address of the first element, for code that keys on memory
// identity; 0 for an empty tensor.
func (t *Tensor) Addr() uintptr {
	if t.block != nil {
		if t.Len() == 0 {
			return 0
		}
		return t.block.address() + uintptr(t.offset)
	}
	if b := t.bytes(); b != nil {
		return uintptr(unsafe.Pointer(&b[0]))
	}
	return 0
}

func elements(shape []int) int {
	n := 1
	for _, s := range shape {
		if s < 0 {
			panic(fmt.Sprintf("kernels: shape %v", shape))
		}
		n *= s
	}
	return n
}

func mustFit(n int, shape []int) {
	if elements(shape) != n {
		panic(fmt.Sprintf("kernels: %d elements under shape %v", n, shape))
	}
}
