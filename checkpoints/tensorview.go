package checkpoints

import (
	"encoding/binary"
	"fmt"
	"math"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// TensorView is a named tensor in its storage form.
type TensorView struct {
	Name  string
	DType kernels.DType
	Shape []int // outermost first; empty for a scalar
	// Data are the elements, little-endian, row-major, without gaps. In a view
	// that comes from a reader the bytes belong to the file: they must not be
	// written to, are valid until the file is closed, and may start at any
	// address, since files of other writers are not always aligned.
	Data []byte
	// Order are the columns of a matrix in blocks as they lie in Data, see [kernels.Tensor.InOrder]; nil: in their own order.
	Order []int32
}

// BytesTensor is a tensor of bytes, U8 in a file, which [Safetensors.Raw] reads: [Safetensors.Tensor] refuses it.
func BytesTensor(name string, data []byte) TensorView {
	return TensorView{Name: name, Shape: []int{len(data)}, Data: data}
}

// storedDType is the name of the element type in a file.
func (t TensorView) storedDType() string {
	if t.DType == kernels.Invalid { // of BytesTensor
		return "U8"
	}
	return t.DType.String()
}

// Tensor is the elements as a host tensor, see [kernels.FromBytes].
func (t TensorView) Tensor() (*kernels.Tensor, error) {
	made, err := kernels.FromBytes(t.DType, t.Data, t.Shape...)
	if err != nil {
		return nil, err
	}
	return made.InOrder(t.Order), nil
}

// Len is the number of elements.
func (t TensorView) Len() int {
	if f, ok := t.DType.Format(); ok {
		return len(t.Data) / f.Bytes * f.Elems
	}
	return len(t.Data) / t.DType.Size()
}

// ReadF32 decodes the elements into dst [t.Len()]: BF16 and F16 are widened
// exactly, F64 is rounded to nearest, blocks are widened. I32 is ErrDType.
func (t TensorView) ReadF32(dst []float32) error {
	if len(dst) != t.Len() {
		return fmt.Errorf("read tensor %.200q: destination of %d elements, want %d", t.Name, len(dst), t.Len())
	}
	switch t.DType {
	case kernels.F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(t.Data[4*i:]))
		}
	case kernels.BF16:
		for i := range dst {
			dst[i] = formats.BF16ToF32(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case kernels.F16:
		for i := range dst {
			dst[i] = formats.F16ToF32(binary.LittleEndian.Uint16(t.Data[2*i:]))
		}
	case kernels.F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:])))
		}
	default:
		if f, ok := t.DType.Format(); ok {
			f.Decode(dst, t.Data)
			if t.Order != nil {
				t.reorder(dst)
			}
			return nil
		}
		return fmt.Errorf("read tensor %.200q as floats: %w %s, want one of: F64, F32, BF16, F16", t.Name, ErrDType, t.DType)
	}
	return nil
}

// reorder moves what lies in a row to its columns.
func (t TensorView) reorder(x []float32) {
	lies := make([]float32, len(t.Order))
	for ; len(x) > 0; x = x[len(lies):] {
		copy(lies, x)
		for j, column := range t.Order {
			x[column] = lies[j]
		}
	}
}

// F32Tensor returns an F32 tensor with a copy of values, product(shape) long.
func F32Tensor(name string, shape []int, values []float32) TensorView {
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	return TensorView{Name: name, DType: kernels.F32, Shape: shape, Data: data}
}

// F64Tensor returns an F64 tensor with a copy of values, product(shape) long.
func F64Tensor(name string, shape []int, values []float64) TensorView {
	data := make([]byte, 8*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint64(data[8*i:], math.Float64bits(v))
	}
	return TensorView{Name: name, DType: kernels.F64, Shape: shape, Data: data}
}

// BF16Tensor returns a BF16 tensor with a copy of the bit patterns, product(shape)
// long.
func BF16Tensor(name string, shape []int, bits []uint16) TensorView {
	data := make([]byte, 2*len(bits))
	for i, v := range bits {
		binary.LittleEndian.PutUint16(data[2*i:], v)
	}
	return TensorView{Name: name, DType: kernels.BF16, Shape: shape, Data: data}
}

func (t TensorView) f64s() []float64 {
	dst := make([]float64, t.Len())
	for i := range dst {
		dst[i] = math.Float64frombits(binary.LittleEndian.Uint64(t.Data[8*i:]))
	}
	return dst
}
