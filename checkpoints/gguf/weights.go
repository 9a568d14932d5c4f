package gguf

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"unsafe"

	"glimpse/checkpoints"
	"glimpse/internal/listing"
	"glimpse/internal/parallel"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// Source says where the rows of a model's tensor lie. A row is what one index of the outermost
// dimension has; the file's tensor is read as rows of that length.
type Source struct {
	Tensor string            // its name in the file
	Shape  []int             // of the model's tensor, outermost first; nil: as in the file
	Row    func(row int) int // the file's row that is the model's; nil: the same
	// Of is the number of equal parts that the file's tensor has, one after the other, where the model's is one of
	// them, Part: an expert of all those of a layer. 0: the model's is all of it.
	Of, Part int
	DType    kernels.DType // of the model's tensor, BF16 or F16; Invalid: as in the file
	Less     float32       // is taken from every number of an F32 tensor
}

// InterleavedRows is the [Source.Row] of query and key projections, weights [heads·headDim, in] and
// biases [heads·headDim], in files of Llama's architecture. Their rotary pairs are neighbours, as
// in the first implementation of Llama; in Hugging Face's models they are headDim/2 rows apart. So
// the model's row h·headDim + s·headDim/2 + j is the file's h·headDim + 2j + s, s 0 or 1. headDim is
// even and positive.
func InterleavedRows(headDim int) func(row int) int {
	return func(row int) int {
		inHead := row % headDim
		return row - inHead + 2*(inHead%(headDim/2)) + inHead/(headDim/2)
	}
}

// Weights are a model's tensors, by the names that the model gives them, in numbers or blocks as
// the file has them. Those whose rows stay where they are, are views of the file; others have their
// rows gathered when they are asked for. While a caller holds that memory, asking again gives the
// same. Closing the weights closes the file. All sources that are missing, of another shape or of a format that cannot be
// read are in one error.
func (f *File) Weights(sources map[string]Source) (*checkpoints.Weights, error) {
	var files []checkpoints.TensorFile
	owner := map[*Tensor]*tensorFile{}
	for _, p := range f.parts {
		file := &tensorFile{part: p, tensors: map[string]*source{}}
		files = append(files, file)
		for i := range p.tensors {
			owner[&p.tensors[i]] = file
		}
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		t := f.index[sources[name].Tensor]
		s, err := newSource(sources[name], t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		owner[t].tensors[name] = s
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", f.parts[0].name, listing.Join(errs))
	}
	return checkpoints.NewWeights(f.parts[0].name, files...)
}

// source is a Source that was found.
type source struct {
	tensor     *Tensor
	dtype      kernels.DType // of the model's tensor
	less       float32       // is taken from every number
	shape      []int         // of the model's tensor
	row        func(row int) int
	part       int // of the file's tensor, each as long as the model's
	rows       int // of the model's tensor
	storedRows int // of the file's
	elems      int // of a row
}

func newSource(s Source, t *Tensor) (*source, error) {
	if t == nil {
		return nil, fmt.Errorf("tensor %.200q: %w", s.Tensor, checkpoints.ErrNoTensor)
	}
	found := &source{tensor: t, shape: s.Shape, row: s.Row, part: s.Part, less: s.Less}
	if s.Shape == nil {
		found.shape = t.Shape
	}
	var err error
	if found.dtype, err = kernels.ParseStored(t.Format.Name); err != nil {
		return nil, fmt.Errorf("tensor %.200q: %w %s, want one of: %s", t.Name, checkpoints.ErrDType, t.Format.Name, strings.Join(readable(), ", "))
	}
	if s.DType != kernels.Invalid {
		found.dtype = s.DType
	}
	stored, wanted := kernels.ShapeLen(t.Shape), kernels.ShapeLen(found.shape)
	found.rows, found.elems = 1, wanted
	if len(found.shape) > 1 || s.Row != nil && len(found.shape) == 1 {
		found.rows = found.shape[0]
		found.elems = wanted / max(found.rows, 1)
	}
	if found.elems > 0 {
		found.storedRows = stored / found.elems
	}
	switch {
	case s.Less != 0 && t.Format.Name != "F32":
		return nil, fmt.Errorf("tensor %.200q: %w %s, want F32", t.Name, checkpoints.ErrDType, t.Format.Name)
	case s.Row == nil && stored != wanted*max(s.Of, 1), found.elems*found.storedRows != stored:
		return nil, checkpoints.Corruptf("tensor %.200q: shape %v, want that of %v", t.Name, t.Shape, found.shape)
	case found.elems%t.Format.Elems != 0:
		return nil, checkpoints.Corruptf("tensor %.200q: %s of shape %v has blocks across rows of %d elements, want whole blocks", t.Name, t.Format.Name, t.Shape, found.elems)
	}
	return found, nil
}

// tensorFile shows a part as a file of the model's tensors.
type tensorFile struct {
	*part
	tensors map[string]*source
	made    checkpoints.Made
}

func (f *tensorFile) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

func (f *tensorFile) Info(name string) (checkpoints.TensorInfo, bool) {
	s, ok := f.tensors[name]
	if !ok {
		return checkpoints.TensorInfo{}, false
	}
	return checkpoints.TensorInfo{DType: s.dtype.String(), Shape: slices.Clone(s.shape), Bytes: s.size(), Made: !s.isView()}, true
}

func (f *tensorFile) Tensor(name string) (checkpoints.TensorView, error) {
	s, ok := f.tensors[name]
	switch {
	case !ok:
		return checkpoints.TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.name, name, checkpoints.ErrNoTensor)
	case f.file == nil:
		return checkpoints.TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.name, name, fs.ErrClosed)
	}
	view := checkpoints.TensorView{Name: name, DType: s.dtype, Shape: slices.Clone(s.shape)}
	if s.isView() {
		at := s.part * s.size()
		view.Data = s.tensor.Data[at : at+s.size() : at+s.size()]
		return view, nil
	}
	var err error
	if view.Data, err = f.made.Bytes(name, s.size(), s.gather); err != nil {
		return checkpoints.TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.name, name, err)
	}
	return view, nil
}

func (f *tensorFile) Bytes() []byte { return f.file }

func (f *tensorFile) Close() error { return f.close() }

// plain tells that the elements are stored as the model's tensor has them.
func (s *source) plain() bool { return s.tensor.Format.Name == s.dtype.String() && s.less == 0 }

// isView tells that the model's tensor is a part of the file as it is.
func (s *source) isView() bool { return s.size() == 0 || s.row == nil && s.plain() }

// size is the number of bytes of the model's tensor.
func (s *source) size() int { return s.dtype.Bytes(s.rows * s.elems) }

// Less is F32 data less a number.
func Less(data []byte, n float32) []byte {
	out := make([]byte, 0, len(data))
	for ; len(data) > 0; data = data[4:] {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(math.Float32frombits(binary.LittleEndian.Uint32(data))-n))
	}
	return out
}

// gather makes the model's tensor of the file's rows, on all cores.
func (s *source) gather() ([]byte, error) {
	rows := make([]int, s.rows)
	for i := range rows {
		if rows[i] = s.part*s.rows + i; s.row != nil {
			rows[i] = s.row(i)
		}
		if rows[i] < 0 || rows[i] >= s.storedRows {
			return nil, checkpoints.Corruptf("row %d is row %d of tensor %.200q, want one of its %d", i, rows[i], s.tensor.Name, s.storedRows)
		}
	}
	dst := make([]byte, s.size())
	to, from := s.dtype.Bytes(s.elems), s.elems/s.tensor.Format.Elems*s.tensor.Format.Bytes
	narrow := simd.NarrowBF16
	if s.dtype == kernels.F16 {
		narrow = simd.NarrowF16
	}
	parallel.Tasks(s.rows, s.elems, func(i int) {
		row, stored := dst[i*to:(i+1)*to], s.tensor.Data[rows[i]*from:(rows[i]+1)*from]
		if s.less != 0 {
			stored = Less(stored, s.less)
		}
		if s.tensor.Format.Name == s.dtype.String() {
			copy(row, stored)
		} else {
			s.tensor.Format.Round(unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(row))), len(row)/2), stored, narrow)
		}
	})
	return dst, nil
}
