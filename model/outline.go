package model

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"

	"glimpse/kernels"
	"glimpse/model/builtin"
)

// outline is what is known of a model whose weights are not loaded.
type outline struct {
	family Family
	stored kernels.DType // of the matrices
	bytes  int64         // of the weights
}

// Outline reads a model's config.json and nothing else: the folder needs no weights.
// The network has shapes and no memory; a model for plans, not for passes. The empty
// path is the built-in model.
func Outline(path, device string) (*Model, error) {
	folder, name := builtin.FS(), builtin.Name
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("outline model: %w", err)
		}
		folder, name = os.DirFS(path), filepath.Base(abs)
	}
	m, err := outlineFS(folder, name, device)
	if err != nil {
		return nil, fmt.Errorf("outline model %s: %w", name, err)
	}
	return m, nil
}

func outlineFS(folder fs.FS, name, device string) (*Model, error) {
	backend, err := kernels.Open(device)
	if err != nil {
		return nil, err
	}
	family, config, err := readConfig(folder)
	if err != nil {
		return nil, err
	}
	stored, err := storedType(folder)
	if err != nil {
		return nil, err
	}
	m := &Model{Name: name, Config: *config, Backend: backend, folder: folder, outline: &outline{family: family, stored: stored}}
	m.bind(func(s slot) *kernels.Tensor {
		d := stored
		if s.compute {
			d = backend.Compute()
		}
		t := kernels.NewShape(d, s.shape...)
		m.outline.bytes += int64(t.Len()) * int64(stored.Size())
		return t
	})
	m.outline.addFiles(folder)
	return m, nil
}

// bind lays out the network with tensors that fill makes.
func (m *Model) bind(fill func(s slot) *kernels.Tensor) {
	b := &Binder{}
	m.Network = m.outline.family.Bind(&m.Config, b)
	for _, s := range b.slots {
		s.set(fill(s))
	}
	for _, f := range b.tied {
		f()
	}
}

// addFiles takes the size of the stored weights, where they are there, in the place
// of the calculated one.
func (o *outline) addFiles(folder fs.FS) {
	names, err := fs.Glob(folder, "*.safetensors")
	if err != nil {
		return
	}
	total := int64(0)
	for _, name := range names {
		if info, err := fs.Stat(folder, name); err == nil && !strings.HasPrefix(name, "adapter") {
			total += info.Size()
		}
	}
	if total > 0 {
		o.bytes = total
	}
}

// storedType is the type of the weights that config.json names; float32 where it
// names none, as for transformers.
func storedType(folder fs.FS) (kernels.DType, error) {
	raw, err := readSmall(folder, "config.json")
	if err != nil {
		return 0, err
	}
	var c struct {
		TorchDType string `json:"torch_dtype"`
		DType      string `json:"dtype"` // as transformers 5 writes it
	}
	if err := json.Unmarshal(raw, &c); err != nil {
		return 0, fmt.Errorf("config.json: %w", err)
	}
	name := c.TorchDType
	if name == "" {
		name = c.DType
	}
	switch name {
	case "bfloat16":
		return kernels.BF16, nil
	case "float16":
		return kernels.F16, nil
	case "float32", "":
		return kernels.F32, nil
	}
	return 0, fmt.Errorf("config.json: torch_dtype: got %q, want bfloat16, float16 or float32", name)
}

// Sketch is a model of an outline's shapes with random weights, of at most so many
// layers and tokens: it costs the time and memory of the real one's layers and says
// nothing sensible.
func (m *Model) Sketch(layers, vocab int) *Model {
	if m.outline == nil {
		panic("model: Sketch of a loaded model")
	}
	s := &Model{Name: m.Name, Config: m.Config, Backend: m.Backend, folder: m.folder, outline: &outline{family: m.outline.family, stored: m.outline.stored}}
	c := &s.Config
	c.Layers, c.Vocab = min(layers, c.Layers), min(vocab, c.Vocab)
	if c.Windows != nil {
		c.Windows = c.Windows[:c.Layers]
	}
	c.BOS, c.EOS = -1, nil
	state := uint32(1)
	next := func() float32 { // uniform in [-1, 1); speed is all that matters
		state = state*1664525 + 1013904223
		return float32(int32(state)) / (1 << 31)
	}
	s.bind(func(slot slot) *kernels.Tensor {
		s.outline.bytes += int64(elementsOf(slot.shape)) * int64(s.outline.stored.Size())
		if slot.compute { // norms and biases
			t := s.Backend.Alloc(s.Backend.Compute(), slot.shape...)
			s.Backend.Fill(t, 1)
			return t
		}
		t := kernels.NewTensor(s.outline.stored, slot.shape...)
		scale := float32(math.Sqrt(3 / float64(slot.shape[len(slot.shape)-1])))
		switch t.DType {
		case kernels.F32:
			for i := range t.F32() {
				t.F32()[i] = scale * next()
			}
		case kernels.BF16:
			for i := range t.U16() {
				t.U16()[i] = kernels.F32ToBF16(scale * next())
			}
		default:
			for i := range t.U16() { // exponents of 2⁻⁸ to 2⁻¹, random signs
				t.U16()[i] = uint16(state>>16)&0x9fff | 0x1c00
				next()
			}
		}
		return kernels.Place(s.Backend, t)
	})
	return s
}

func elementsOf(shape []int) int {
	n := 1
	for _, s := range shape {
		n *= s
	}
	return n
}
