package checkpoints

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"glimpse/internal/mappedfile"
	"glimpse/internal/modelfile"
	"glimpse/kernels"
)

// maxHeader is the format's limit on the header, in bytes.
const maxHeader = 100_000_000

// Safetensors is an open safetensors file. It is safe for concurrent use, except
// that nothing, views included, may be used once Close has been called.
type Safetensors struct {
	name     string // for errors
	file     []byte // the whole file
	payload  []byte // the tensors' bytes, after the header
	metadata map[string]string
	tensors  map[string]tensorInfo
	unmap    func() error // nil when the file is ordinary memory
	version  string
}

// TensorInfo describes a tensor, of whatever element type, in the file.
type TensorInfo struct {
	DType string // as named in the file: "F32", "I64", "F8_E4M3"
	Shape []int
	Bytes int
	Made  bool // Tensor gives memory of the caller's, no view of the file
}

type tensorInfo struct {
	dtype      string
	shape      []int
	begin, end int // offsets in the payload
}

// OpenSafetensors maps the file into memory, see [mappedfile.Open], and checks its whole
// structure.
func OpenSafetensors(path string) (*Safetensors, error) {
	file, err := mappedfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open safetensors: %w", err)
	}
	s, err := ParseSafetensors(path, file.Data)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s.unmap, s.version = file.Close, file.Version
	return s, nil
}

// ParseSafetensors reads a safetensors file that is in memory, such as one
// embedded in the binary. The name is for error messages. Data is kept, not
// copied, and must not change.
func ParseSafetensors(name string, data []byte) (*Safetensors, error) {
	if err := modelfile.Foreign(data); err != nil {
		return nil, Corruptf("%s: %v", name, err)
	}
	header, payload, err := splitFile(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	metadata, tensors, err := parseHeader(header)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := checkLayout(tensors, len(payload)); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &Safetensors{name: name, file: data, payload: payload, metadata: metadata, tensors: tensors}, nil
}

// Names returns the names of all tensors, sorted.
func (s *Safetensors) Names() []string { return slices.Sorted(maps.Keys(s.tensors)) }

// Metadata returns the header's free-form entries; the caller must not change
// them.
func (s *Safetensors) Metadata() map[string]string { return s.metadata }

// Info describes a tensor, also one of a type that Tensor refuses.
func (s *Safetensors) Info(name string) (TensorInfo, bool) {
	t, ok := s.tensors[name]
	return TensorInfo{DType: t.dtype, Shape: slices.Clone(t.shape), Bytes: t.end - t.begin}, ok
}

// Tensor returns a view of the named tensor. ErrNoTensor if the file has none,
// ErrDType if its elements are of a type that cannot be computed with.
func (s *Safetensors) Tensor(name string) (TensorView, error) {
	t, ok := s.tensors[name]
	if !ok {
		return TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", s.name, name, ErrNoTensor)
	}
	dtype, err := kernels.ParseDType(t.dtype)
	if err != nil {
		return TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", s.name, name, dtypeError{err})
	}
	data, err := s.Raw(name)
	return TensorView{Name: name, DType: dtype, Shape: slices.Clone(t.shape), Data: data}, err
}

// Raw returns the bytes of a tensor of any element type. The bytes belong to the file and are valid until it is closed.
// ErrNoTensor if the file has no such tensor.
func (s *Safetensors) Raw(name string) ([]byte, error) {
	if s.file == nil {
		return nil, fmt.Errorf("%s: tensor %.200q: %w", s.name, name, fs.ErrClosed)
	}
	t, ok := s.tensors[name]
	if !ok {
		return nil, fmt.Errorf("%s: tensor %.200q: %w", s.name, name, ErrNoTensor)
	}
	return s.payload[t.begin:t.end:t.end], nil
}

// Bytes is the whole file, nil once it is closed.
func (s *Safetensors) Bytes() []byte { return s.file }

// Version implements [TensorFile].
func (s *Safetensors) Version() string { return s.version }

// Close unmaps the file. Views become invalid.
func (s *Safetensors) Close() error {
	unmap := s.unmap
	s.file, s.payload, s.unmap = nil, nil, nil
	if unmap == nil {
		return nil
	}
	if err := unmap(); err != nil {
		return fmt.Errorf("close %s: %w", s.name, err)
	}
	return nil
}

// splitFile cuts the file into header and payload.
func splitFile(data []byte) (header, payload []byte, err error) {
	if len(data) < 8 {
		return nil, nil, Corruptf("file of %d bytes, want at least 8 for the header length", len(data))
	}
	n := binary.LittleEndian.Uint64(data)
	if n > maxHeader {
		return nil, nil, Corruptf("header of %d bytes, want at most %d", n, maxHeader)
	}
	if rest := uint64(len(data) - 8); n > rest {
		return nil, nil, Corruptf("header of %d bytes, but only %d bytes follow: the file is truncated", n, rest)
	}
	return data[8 : 8+n], data[8+n:], nil
}

// checkLayout verifies that the tensors' bytes fill the payload in some order
// without holes or overlaps, each as long as its type and shape say.
func checkLayout(tensors map[string]tensorInfo, payload int) error {
	// Empty tensors share their offset with the next, hence the end as second key.
	order := slices.SortedFunc(maps.Keys(tensors), func(a, b string) int {
		x, y := tensors[a], tensors[b]
		return cmp.Or(cmp.Compare(x.begin, y.begin), cmp.Compare(x.end, y.end), cmp.Compare(a, b))
	})
	end, last := 0, ""
	for _, name := range order {
		t := tensors[name]
		size, err := byteSize(t.dtype, t.shape)
		if err != nil {
			return fmt.Errorf("tensor %.200q: %w", name, err)
		}
		if t.end < t.begin || t.end-t.begin != size {
			return Corruptf("tensor %.200q: data_offsets [%d, %d], want a length of %d for %s %s",
				name, t.begin, t.end, size, t.dtype, ShapeString(t.shape))
		}
		if t.begin != end {
			what := "a hole"
			if t.begin < end {
				what = "an overlap"
			}
			if last == "" {
				return Corruptf("tensor %.200q: begins at %d, want 0: %s before the first tensor", name, t.begin, what)
			}
			return Corruptf("tensor %.200q: begins at %d, want %d: %s after tensor %.200q", name, t.begin, end, what, last)
		}
		end, last = t.end, name
	}
	if end != payload {
		what := "bytes follow the last tensor"
		if end > payload {
			what = "the file is truncated"
		}
		return Corruptf("tensors end at byte %d of the data, want %d: %s", end, payload, what)
	}
	return nil
}
