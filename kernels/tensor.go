package kernels

import (
	"fmt"
	"slices"
	"unsafe"

	"glimpse/kernels/formats"
)

// Tensor is a dense row-major array in the memory of one backend. Host backends
// hold it in the process's own memory; others in a block of their own, whose
// elements the host reads and writes only by Convert, At and the copies
// Float32s and Float64s, which wait for the device. A Tensor never changes
// its shape; views made by Rows and Reshape share its memory. Tensors are handled by
// pointer and not copied.
type Tensor struct {
	DType DType
	Shape []int

	// Decoding makes many views of little memory: a Tensor is small, and its shape
	// is part of it up to four extents.
	data    unsafe.Pointer // of the first element on the host; nil where there is none
	extents [4]int
	n       int // elements

	bare bool // a shape without memory

	block  Block // of an accelerator; nil on the host
	offset int   // of the first element in block, in bytes; of the first row in groups

	groups *groups      // of a type that has them
	order  *columnOrder // of columns in memory; nil: as they are numbered
}

// Block is memory of an accelerator. It is freed once no tensor refers to it.
type Block interface {
	// Address is that of the first byte; the host must not follow it.
	Address() uintptr
	// Read copies len(dst) bytes at offset to the host, after all work queued so far.
	Read(dst []byte, offset int)
	// Write copies src to offset, in the order of the device's work.
	Write(offset int, src []byte)
}

// NewInBlock returns a tensor whose elements begin a block.
func NewInBlock(d DType, b Block, shape ...int) *Tensor {
	return (&Tensor{DType: d, block: b}).withShape(shape)
}

// Block is the memory in which t's elements lie and the offset of the first, in bytes; nil
// on the host.
func (t *Tensor) Block() (b Block, offset int) { return t.block, t.offset }

// NewShape returns a tensor without memory; only its type and extents can be
// used: what a model would take, without loading it.
func NewShape(d DType, shape ...int) *Tensor {
	ShapeLen(shape)
	return (&Tensor{DType: d, bare: true}).withShape(shape)
}

// NewTensor allocates a zeroed host tensor.
func NewTensor(d DType, shape ...int) *Tensor {
	n := ShapeLen(shape)
	t := (&Tensor{DType: d}).withShape(shape)
	switch {
	case !stored(d):
		panic("kernels: NewTensor of " + d.String())
	case d.Grouped():
		t.groups = newGroups(d, shape[0], shape[1])
	case n == 0:
	case d >= firstBlocks:
		t.data = unsafe.Pointer(unsafe.SliceData(make([]byte, d.Bytes(n))))
	case d.Size() == 8: // in words, so that memory is aligned as its elements are
		t.data = unsafe.Pointer(unsafe.SliceData(make([]float64, n)))
	case d.Size() == 4:
		t.data = unsafe.Pointer(unsafe.SliceData(make([]float32, n)))
	default:
		t.data = unsafe.Pointer(unsafe.SliceData(make([]uint16, n)))
	}
	return t
}

// FromF32 wraps data without copying.
func FromF32(data []float32, shape ...int) *Tensor { return wrap(F32, data, shape) }

// FromF64 wraps data without copying.
func FromF64(data []float64, shape ...int) *Tensor { return wrap(F64, data, shape) }

func wrap[E float32 | float64](d DType, data []E, shape []int) *Tensor {
	MustFit(len(data), shape)
	t := (&Tensor{DType: d}).withShape(shape)
	if len(data) > 0 {
		t.data = unsafe.Pointer(&data[0])
	}
	return t
}

// stored reports whether tensors hold elements of the type.
func stored(d DType) bool {
	_, blocks := d.Format()
	return blocks || d.Grouped() || d > Invalid && d < firstBlocks
}

// FromBytes views little-endian stored elements, for example a tensor of a
// memory-mapped checkpoint, without copying where the data is aligned to its
// element size and with one copy where it is not.
func FromBytes(d DType, data []byte, shape ...int) (*Tensor, error) {
	if !stored(d) {
		return nil, fmt.Errorf("tensor of %s", d)
	}
	n, element := ShapeLen(shape), 1 // of alignment
	if f, ok := d.Format(); !ok {
		element = d.Size()
	} else if len(shape) == 0 || n > 0 && (n/shape[0])%f.Elems != 0 {
		return nil, fmt.Errorf("%s tensor %v: want rows of whole blocks of %d elements", d, shape, f.Elems)
	}
	if len(data) != d.Bytes(n) {
		return nil, fmt.Errorf("%s tensor %v: %d bytes, want %d", d, shape, len(data), d.Bytes(n))
	}
	switch {
	case n == 0:
		return NewTensor(d, shape...), nil
	case uintptr(unsafe.Pointer(&data[0]))%uintptr(element) != 0:
		t := NewTensor(d, shape...)
		copy(t.Memory(), data)
		return t, nil
	}
	t := (&Tensor{DType: d}).withShape(shape)
	t.data = unsafe.Pointer(&data[0])
	return t, nil
}

// Memory is the memory of a host tensor.
func (t *Tensor) Memory() []byte {
	t.mustHost()
	if t.groups != nil {
		panic("kernels: memory of a " + t.DType.String() + " tensor, whose rows are in groups")
	}
	return unsafe.Slice((*byte)(t.data), t.Bytes())
}

// Len is the number of elements.
func (t *Tensor) Len() int { return t.n }

// Bytes is the size of the elements in memory; of rows in groups, of all that are stored with them.
func (t *Tensor) Bytes() int {
	if t.groups != nil {
		return t.groups.groupBytes()
	}
	return StoredBytes(t.DType, t.Shape...)
}

// Dim0 is the first extent, the number of rows.
func (t *Tensor) Dim0() int { return t.Shape[0] }

// Width is the number of elements of one row: the product of all extents but
// the first.
func (t *Tensor) Width() int { return ShapeLen(t.Shape[1:]) }

// F32 is the memory of an F32 host tensor.
func (t *Tensor) F32() []float32 { t.must(F32); return view[float32](t) }

// F64 is the memory of an F64 host tensor.
func (t *Tensor) F64() []float64 { t.must(F64); return view[float64](t) }

// U16 is the memory of a BF16 or F16 host tensor.
func (t *Tensor) U16() []uint16 {
	if t.DType != BF16 && t.DType != F16 {
		t.must(BF16)
	}
	t.mustHost()
	return view[uint16](t)
}

// Blocks is the memory of a host tensor of blocks, and their format.
func (t *Tensor) Blocks() ([]byte, *formats.Format) {
	f, ok := t.DType.Format()
	if !ok {
		panic(fmt.Sprintf("kernels: blocks of a %s tensor", t.DType))
	}
	return t.Memory(), f
}

// I32 is the memory of an I32 host tensor.
func (t *Tensor) I32() []int32 { t.must(I32); return view[int32](t) }

func view[E float32 | float64 | int32 | uint16](t *Tensor) []E {
	if t.bare {
		return nil
	}
	return unsafe.Slice((*E)(t.data), t.Len())
}

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
	if b := h.Memory(); len(b) > 0 {
		t.block.Read(b, t.offset)
	}
	return h.InOrder(t.Order())
}

// Rows is the view of rows [from, to).
func (t *Tensor) Rows(from, to int) *Tensor { return t.RowsInto(new(Tensor), from, to) }

// RowsInto makes v the view that Rows returns, for callers that need one after the
// other and allocate none: nothing may still refer to v as what it was.
func (t *Tensor) RowsInto(v *Tensor, from, to int) *Tensor {
	w := t.Width()
	t.viewInto(v, from*w, to*w).withShape(t.Shape)
	v.Shape[0], v.n = to-from, (to-from)*w
	return v
}

// Reshape is the same memory under another shape of equal length.
func (t *Tensor) Reshape(shape ...int) *Tensor {
	MustFit(t.Len(), shape)
	v := t.view(0, t.Len()).withShape(shape)
	if t.order != nil && v.Width() != t.Width() {
		panic(fmt.Sprintf("kernels: shape %v of a tensor %v whose columns are out of order", shape, t.Shape))
	}
	return v
}

// view is a tensor of elements [from, to), which has yet to get its shape.
func (t *Tensor) view(from, to int) *Tensor { return t.viewInto(new(Tensor), from, to) }

func (t *Tensor) viewInto(v *Tensor, from, to int) *Tensor {
	if from < 0 || from > to || to > t.Len() {
		panic(fmt.Sprintf("kernels: elements %d to %d of %v", from, to, t.Shape))
	}
	v.DType, v.bare, v.block, v.groups, v.order = t.DType, t.bare, t.block, t.groups, t.order
	v.data, v.offset = nil, 0
	if t.groups != nil {
		v.offset = t.offset + from/t.groups.dim
		return v
	}
	at := t.DType.Bytes(from)
	switch {
	case t.block != nil:
		v.offset = t.offset + at
	case to > from && t.data != nil: // a pointer past the end would be one to other memory
		v.data = unsafe.Add(t.data, at)
	}
	return v
}

// At reads one element as float64, whatever its storage type.
func (t *Tensor) At(i int) float64 {
	if t.block != nil {
		each := 1 // that are read
		if f, ok := t.DType.Format(); ok {
			each = f.Elems
		}
		from := i / each * each
		return t.view(from, from+each).withShape([]int{each}).OnHost().At(i - from)
	}
	var x [1]float64
	Read(x[:], t, i)
	return x[0]
}

// Read converts the elements of a host tensor from the given one on, as many as dst has.
func Read[T Float](dst []T, t *Tensor, from int) {
	t.mustHost()
	to := from + len(dst)
	if t.groups != nil {
		readGroups(dst, t, from)
		return
	}
	switch t.DType {
	case F32:
		for i, v := range view[float32](t)[from:to] {
			dst[i] = T(v)
		}
	case F64:
		for i, v := range view[float64](t)[from:to] {
			dst[i] = T(v)
		}
	case BF16:
		for i, v := range view[uint16](t)[from:to] {
			dst[i] = T(formats.BF16ToF32(v))
		}
	case F16:
		for i, v := range view[uint16](t)[from:to] {
			dst[i] = T(formats.F16ToF32(v))
		}
	case I32:
		for i, v := range view[int32](t)[from:to] {
			dst[i] = T(v)
		}
	default:
		if t.order != nil {
			readOrdered(dst, t, from)
			return
		}
		readBlocks(dst, t, from)
	}
}

// readGroups widens the rows in which the elements lie.
func readGroups[T Float](dst []T, t *Tensor, from int) {
	dim := t.groups.dim
	first := from / dim
	if whole, ok := any(dst).([]float32); ok && from%dim == 0 && len(dst)%dim == 0 {
		t.groups.readRows(whole, t.offset+first)
		return
	}
	wide := make([]float32, ((from+len(dst)+dim-1)/dim-first)*dim)
	t.groups.readRows(wide, t.offset+first)
	for i := range dst {
		dst[i] = T(wide[from-first*dim+i])
	}
}

// readBlocks widens the blocks in which the elements lie.
func readBlocks[T Float](dst []T, t *Tensor, from int) {
	blocks, f := t.Blocks()
	wide := make([]float32, f.Elems)
	for len(dst) > 0 {
		first := from / f.Elems
		f.Decode(wide, blocks[first*f.Bytes:][:f.Bytes])
		n := 0
		for ; n < len(dst) && from < (first+1)*f.Elems; n, from = n+1, from+1 {
			dst[n] = T(wide[from-first*f.Elems])
		}
		dst = dst[n:]
	}
}

// withShape gives a new tensor a copy of its shape.
func (t *Tensor) withShape(shape []int) *Tensor {
	if len(shape) <= len(t.extents) {
		t.Shape = t.extents[:len(shape):len(shape)]
		copy(t.Shape, shape)
	} else {
		t.Shape = slices.Clone(shape)
	}
	t.n = ShapeLen(shape)
	return t
}

// Set rounds x to the storage type of a floating-point tensor.
func (t *Tensor) Set(i int, x float64) {
	values := [1]float64{x}
	t.writeFrom(i, values[:])
}

// writeFrom is Set of the elements from one on.
func (t *Tensor) writeFrom(from int, values []float64) {
	to := from + len(values)
	switch t.DType {
	case F32:
		for i, dst := 0, view[float32](t)[from:to]; i < len(dst); i++ {
			dst[i] = float32(values[i])
		}
	case F64:
		copy(view[float64](t)[from:to], values)
	case BF16:
		for i, dst := 0, view[uint16](t)[from:to]; i < len(dst); i++ {
			dst[i] = formats.F32ToBF16(float32(values[i]))
		}
	default:
		panic("kernels: store into a " + t.DType.String() + " tensor")
	}
}

// Convert copies src into dst element by element, rounding to dst's type, which has a
// Narrow where it is one of blocks. Either may lie in device memory.
func Convert(dst, src *Tensor) {
	if dst.Len() != src.Len() {
		panic(fmt.Sprintf("kernels: Convert %v into %v", src.Shape, dst.Shape))
	}
	if dst.DType == src.DType && !sameOrder(dst, src) {
		panic("kernels: Convert into columns in another order")
	}
	src = src.OnHost()
	if dst.block != nil {
		if dst.DType != src.DType {
			host := NewTensor(dst.DType, dst.Shape...)
			Convert(host, src)
			src = host
		}
		if b := src.Memory(); len(b) > 0 {
			dst.block.Write(dst.offset, b)
		}
		return
	}
	if dst.groups != nil {
		dst.groups.writeRows(dst.offset, src.Float32s())
		return
	}
	if dst.DType == src.DType {
		copy(dst.Memory(), src.Memory())
		return
	}
	if src.groups != nil {
		wide := make([]float32, src.Len())
		src.groups.readRows(wide, src.offset)
		src = FromF32(wide, src.Shape...)
		if dst.DType == F32 {
			copy(dst.F32(), wide)
			return
		}
	}
	if f, ok := dst.DType.Format(); ok {
		f.Narrow(dst.Memory(), src.Float32s())
		return
	}
	var some [256]float64
	for i := 0; i < src.Len(); i += len(some) {
		values := some[:min(len(some), src.Len()-i)]
		Read(values, src, i)
		dst.writeFrom(i, values)
	}
}

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
		return t.block.Address() + uintptr(t.offset)
	}
	t.mustHost()
	return uintptr(t.data)
}

// ShapeLen is the number of elements of a shape.
func ShapeLen(shape []int) int {
	n := 1
	for _, s := range shape {
		if s < 0 { // a copy, or every shape of every call would be allocated
			panic(fmt.Sprintf("kernels: shape %v", slices.Clone(shape)))
		}
		n *= s
	}
	return n
}

// MustFit panics unless a shape has so many elements.
func MustFit(n int, shape []int) {
	if ShapeLen(shape) != n {
		panic(fmt.Sprintf("kernels: %d elements under shape %v", n, slices.Clone(shape)))
	}
}
