package checkpoints

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"unsafe"
	"weak"

	"glimpse/kernels"
)

// Derived is a tensor of the model that is made of stored ones, as a widened weight is made of
// codes and scales.
type Derived struct {
	DType kernels.DType
	Shape []int
	Order []int32 // as that of TensorView
	// Of are the stored tensors in whose place it stands, all safetensors.
	Of []string
	// Make fills dst, the elements as [TensorView.Data] has them, from the bytes of those
	// tensors in that order. It is called for every tensor anew and by several at a time. Nil: the tensor is
	// a view of a part of the first one, from byte From on.
	Make func(dst []byte, of [][]byte)
	From int
}

// Derive shows tensors in the place of those that they are made of, and hides others. They are made
// when they are asked for; while a caller holds that memory, asking again gives the same. Like Rename,
// which may follow, it comes before any use of the weights by several. Names are the files' own.
func (w *Weights) Derive(derived map[string]Derived, hidden []string) error {
	owner := maps.Clone(w.owner)
	file := &derivedFile{weights: w, parts: w.owner, tensors: derived}
	for _, name := range slices.Sorted(maps.Keys(derived)) {
		for _, part := range derived[name].Of {
			if w.owner[part] == nil {
				return fmt.Errorf("%s: tensor %.200q: %w", w.name, part, ErrNoTensor)
			}
			delete(owner, part)
		}
	}
	for _, name := range hidden {
		delete(owner, name)
	}
	for name := range derived {
		if owner[name] != nil {
			return Corruptf("%s: tensor %.200q is stored beside what it is made of: %s", w.name, name, listNames(derived[name].Of))
		}
		owner[name] = file
	}
	w.owner = owner
	return nil
}

// Raw returns the bytes of a tensor of a safetensors file, of whatever element type. They are as
// [TensorView.Data] is. ErrNoTensor if there is none.
func (w *Weights) Raw(name string) ([]byte, error) {
	owner, stored, _ := w.file(name)
	return rawOf(w.name, owner, stored)
}

func rawOf(where string, owner TensorFile, name string) ([]byte, error) {
	file, ok := owner.(*Safetensors)
	if !ok {
		return nil, fmt.Errorf("%s: tensor %.200q: %w in a safetensors file", where, name, ErrNoTensor)
	}
	return file.Raw(name)
}

// derivedFile shows derived tensors as a file. It is none of the files that Weights close and hash.
type derivedFile struct {
	weights *Weights
	parts   map[string]TensorFile // where the stored tensors are
	tensors map[string]Derived
	made    Made
}

// Made are tensors that are no views of a file, while somebody holds them.
type Made struct {
	mu sync.Mutex
	at map[string]weak.Pointer[byte]
}

// Bytes returns size bytes by a name: those that are held, or what fresh makes. The error is fresh's.
func (m *Made) Bytes(name string, size int, fresh func() ([]byte, error)) ([]byte, error) {
	m.mu.Lock()
	held := m.at[name].Value()
	m.mu.Unlock()
	if held != nil {
		return unsafe.Slice(held, size), nil
	}
	data, err := fresh()
	if err != nil || size == 0 {
		return data, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at == nil {
		m.at = map[string]weak.Pointer[byte]{}
	}
	m.at[name] = weak.Make(&data[0])
	return data, nil
}

func (f *derivedFile) Names() []string { return slices.Sorted(maps.Keys(f.tensors)) }

func (f *derivedFile) Info(name string) (TensorInfo, bool) {
	d, ok := f.tensors[name]
	if !ok {
		return TensorInfo{}, false
	}
	return TensorInfo{DType: d.DType.String(), Shape: slices.Clone(d.Shape), Bytes: d.size(), Made: d.Make != nil}, true
}

func (f *derivedFile) Tensor(name string) (TensorView, error) {
	d, ok := f.tensors[name]
	if !ok {
		return TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", f.weights.name, name, ErrNoTensor)
	}
	of := make([][]byte, len(d.Of))
	for i, part := range d.Of {
		var err error
		if of[i], err = rawOf(f.weights.name, f.parts[part], part); err != nil {
			return TensorView{}, err
		}
	}
	view := TensorView{Name: name, DType: d.DType, Shape: slices.Clone(d.Shape), Order: d.Order}
	if d.Make == nil {
		view.Data = of[0][d.From:][:d.size()]
		return view, nil
	}
	var err error
	view.Data, err = f.made.Bytes(name, d.size(), func() ([]byte, error) {
		data := make([]byte, d.size())
		d.Make(data, of)
		return data, nil
	})
	return view, err
}

func (f *derivedFile) Bytes() []byte { return nil }

// Version is unknown: what is made depends on more than the files.
func (f *derivedFile) Version() string { return "" }

func (f *derivedFile) Close() error { return nil }

func (d Derived) size() int { return d.DType.Bytes(kernels.ShapeLen(d.Shape)) }
