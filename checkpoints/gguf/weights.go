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
	// them, Part: one expert of a layer. 0: the model's is all of it.
	Of, Part int
	DType    kernels.DType // of the model's tensor, BF16 or F16; Invalid: as in the file
	// Map makes the model's numbers from an F32 tensor's; nil: they are the same.
	Map func(float32) float32
	// Then is the name of a tensor as wide whose rows follow Tensor's; "": none. Where one of the two has another format than the
	// other, DType says what type the model's has.
	Then string
	// Groups is the number of equal groups of columns; Group says which of the file's is one of the model's. 0: columns stay. Groups that are
	// not whole blocks need a DType.
	Groups int
	Group  func(group int) int
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
		s, err := newSource(sources[name], t, f.index[sources[name].Then])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		owner[t].tensors[name] = s
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", f.parts[0].name, listing.JoinErrors(errs))
	}
	return checkpoints.NewWeights(f.parts[0].name, files...)
}

// source is a Source that was found, with the shape of the model's tensor.
type source struct {
	Source
	tensor     *Tensor
	dtype      kernels.DType // of the model's tensor
	then       *Tensor       // whose rows follow, or nil
	rows       int           // of the model's tensor
	storedRows int           // of the file's
	elems      int           // of a row
}

func newSource(s Source, t, then *Tensor) (*source, error) {
	if t == nil {
		return nil, fmt.Errorf("tensor %.200q: %w", s.Tensor, checkpoints.ErrNoTensor)
	}
	found := &source{Source: s, tensor: t}
	if s.Shape == nil {
		found.Shape = t.Shape
	}
	var err error
	if found.dtype, err = kernels.ParseStored(t.Format.Name); err != nil {
		return nil, fmt.Errorf("tensor %.200q: %w %s, want one of: %s", t.Name, checkpoints.ErrDType, t.Format.Name, strings.Join(readable(), ", "))
	}
	if s.DType != kernels.Invalid {
		found.dtype = s.DType
	}
	stored, wanted := kernels.ShapeLen(t.Shape), kernels.ShapeLen(found.Shape)
	if s.Then != "" {
		if then == nil {
			return nil, fmt.Errorf("tensor %.200q: %w", s.Then, checkpoints.ErrNoTensor)
		}
		if _, err := kernels.ParseStored(then.Format.Name); err != nil {
			return nil, fmt.Errorf("tensor %.200q: %w %s, want one of: %s", then.Name, checkpoints.ErrDType, then.Format.Name, strings.Join(readable(), ", "))
		}
		found.then, stored = then, stored+kernels.ShapeLen(then.Shape)
	}
	found.rows, found.elems = 1, wanted
	if len(found.Shape) > 1 || s.Row != nil && len(found.Shape) == 1 {
		found.rows = found.Shape[0]
		found.elems = wanted / max(found.rows, 1)
	}
	if found.elems > 0 {
		found.storedRows = stored / found.elems
	}
	switch {
	case s.Map != nil && t.Format.Name != "F32":
		return nil, fmt.Errorf("tensor %.200q: %w %s, want F32", t.Name, checkpoints.ErrDType, t.Format.Name)
	case s.Row == nil && stored != wanted*max(s.Of, 1), found.elems*found.storedRows != stored:
		return nil, checkpoints.Corruptf("tensor %.200q: shape %v, want that of %v", t.Name, t.Shape, found.Shape)
	case then != nil && (found.elems%then.Format.Elems != 0 || kernels.ShapeLen(t.Shape)%found.elems != 0):
		return nil, checkpoints.Corruptf("tensors %.200q and %.200q: shapes %v and %v, want rows of %d", t.Name, then.Name, t.Shape, then.Shape, found.elems)
	case s.Groups > 0 && found.elems%s.Groups != 0:
		return nil, checkpoints.Corruptf("tensor %.200q: shape %v, want columns in %d groups", t.Name, t.Shape, s.Groups)
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
	return checkpoints.TensorInfo{DType: s.dtype.String(), Shape: slices.Clone(s.Shape), Bytes: s.size(), Made: !s.isView()}, true
}

func (f *tensorFile) Tensor(name string) (checkpoints.TensorView, error) {
	s, ok := f.tensors[name]
	switch {
	case !ok:
		return checkpoints.TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.name, name, checkpoints.ErrNoTensor)
	case f.file == nil:
		return checkpoints.TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.name, name, fs.ErrClosed)
	}
	view := checkpoints.TensorView{Name: name, DType: s.dtype, Shape: slices.Clone(s.Shape)}
	if s.isView() {
		at := s.Part * s.size()
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

func (f *tensorFile) Version() string { return f.version }

func (f *tensorFile) Close() error { return f.close() }

// plain tells that the elements are stored as the model's tensor has them.
func (s *source) plain() bool { return s.tensor.Format.Name == s.dtype.String() && s.Map == nil }

// isView tells that the model's tensor is a part of the file as it is.
func (s *source) isView() bool {
	return s.size() == 0 || s.Row == nil && s.then == nil && s.Groups == 0 && s.plain()
}

// size is the number of bytes of the model's tensor.
func (s *source) size() int { return s.dtype.Bytes(s.rows * s.elems) }

// Map is F32 data with every number through f.
func Map(data []byte, f func(float32) float32) []byte {
	out := make([]byte, 0, len(data))
	for ; len(data) > 0; data = data[4:] {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(f(math.Float32frombits(binary.LittleEndian.Uint32(data)))))
	}
	return out
}

// gather makes the model's tensor of the file's rows, on all cores.
func (s *source) gather() ([]byte, error) {
	rows := make([]int, s.rows)
	for i := range rows {
		if rows[i] = s.Part*s.rows + i; s.Row != nil {
			rows[i] = s.Row(i)
		}
		if rows[i] < 0 || rows[i] >= s.storedRows {
			return nil, checkpoints.Corruptf("row %d is row %d of tensor %.200q, want one of its %d", i, rows[i], s.tensor.Name, s.storedRows)
		}
	}
	dst := make([]byte, s.size())
	to := s.dtype.Bytes(s.elems)
	first := kernels.ShapeLen(s.tensor.Shape) / max(1, s.elems) // rows of the first tensor
	narrow := simd.NarrowBF16
	if s.dtype == kernels.F16 {
		narrow = simd.NarrowF16
	}
	parallel.Tasks(s.rows, s.elems, func(i int) {
		row, t, at := dst[i*to:(i+1)*to], s.tensor, rows[i]
		if at >= first {
			t, at = s.then, at-first
		}
		from := s.elems / t.Format.Elems * t.Format.Bytes
		stored, ordered := t.Data[at*from:(at+1)*from], row
		if s.Groups > 0 {
			ordered = make([]byte, to)
		}
		if s.Map != nil {
			stored = Map(stored, s.Map)
		}
		if t.Format.Name == s.dtype.String() {
			copy(ordered, stored)
		} else {
			t.Format.Round(unsafe.Slice((*uint16)(unsafe.Pointer(unsafe.SliceData(ordered))), len(row)/2), stored, narrow)
		}
		for g := range s.Groups {
			n := to / s.Groups
			copy(row[g*n:][:n], ordered[s.Group(g)*n:][:n])
		}
	})
	return dst, nil
}
