package model

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model/builtin"
	"glimpse/model/gguf"
)

// shapes is what is known of a model whose weights are not loaded.
type shapes struct {
	stored kernels.DType // of the matrices
	bytes  int64         // of the weights
	// widened are the bytes of those that will be no part of a mapped file.
	widened int64
}

// OpenShapes reads a model's config.json, or what describes the model in a GGUF file, and nothing
// else: the folder needs no weights.
// The network has shapes and no memory; a model for plans, not for passes. The empty
// path is the built-in model.
func OpenShapes(path, device string) (*Model, error) {
	folder, name := builtin.FS(), builtin.Name
	var stored *checkpoints.Weights // of a GGUF file
	if path != "" {
		abs, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("shapes of model: %w", err)
		}
		folder, name = os.DirFS(path), filepath.Base(abs)
		if gguf.Is(path) {
			file, err := gguf.Open(path)
			if err != nil {
				return nil, fmt.Errorf("shapes of model: %w", err)
			}
			defer file.Close()
			if stored, err = file.Weights(); err != nil {
				return nil, fmt.Errorf("shapes of model: %w", err)
			}
			folder, name = file.Folder, gguf.Name(path)
		}
	}
	m, err := openShapes(folder, name, device)
	if err != nil {
		return nil, fmt.Errorf("shapes of model %s: %w", name, err)
	}
	if stored != nil {
		m.shapes.bytes, m.shapes.widened = placedBytes(stored, m.Backend), widenedBytes(stored, stored.Names())
	}
	return m, nil
}

func openShapes(folder fs.FS, name, device string) (*Model, error) {
	device, why := kernels.ChooseDevice(device)
	devices, err := kernels.OpenList(device)
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
	if config.quantized != nil {
		stored = kernels.BF16
	}
	m := &Model{Name: name, Config: *config, DeviceChoice: why, folder: folder, family: family, shapes: &shapes{stored: stored}}
	b := &Binder{}
	config.layout.bind(config, b)
	if err := m.place(devices, b.slots, m.slotBytes); err != nil {
		return nil, err
	}
	m.bindNetwork(func(s slot) *kernels.Tensor {
		d := stored
		if s.compute {
			d = m.Backend.Compute()
		}
		t := kernels.NewShape(d, s.shape...)
		bytes := int64(stored.Bytes(t.Len()))
		if config.quantized != nil && len(s.shape) == 2 && s.layer >= 0 && s.layer < config.Layers {
			bytes = int64(m.Backend.Placed(config.quantized.Stored(s.name, s.shape[1])).Bytes(t.Len()))
			m.shapes.widened += bytes
		}
		m.shapes.bytes += bytes
		return t
	})
	if config.quantized == nil {
		m.shapes.addFiles(folder)
	}
	return m, nil
}

// WithWeights is a model of m's shapes, of at most so many layers and tokens, with weights that fill makes: matrices of the
// stored type, and norms and biases, which computations take. It panics where m is loaded.
func (m *Model) WithWeights(layers, vocab int, fill func(stored kernels.DType, compute bool, shape []int) *kernels.Tensor) *Model {
	if m.shapes == nil {
		panic("model: WithWeights of a loaded model")
	}
	s := &Model{Name: m.Name, Config: m.Config, Backend: m.Backend, folder: m.folder, family: m.family, shapes: &shapes{stored: m.shapes.stored}}
	c := &s.Config
	c.cutLayers(min(layers, c.Layers))
	c.Vocab = min(vocab, c.Vocab)
	c.BOS, c.EOS = -1, nil
	s.bindNetwork(func(slot slot) *kernels.Tensor {
		s.shapes.bytes += int64(kernels.ShapeLen(slot.shape)) * int64(s.shapes.stored.Size())
		return fill(s.shapes.stored, slot.compute, slot.shape)
	})
	return s
}

// bindNetwork lays out the network with tensors that fill makes.
func (m *Model) bindNetwork(fill func(s slot) *kernels.Tensor) {
	b := &Binder{}
	m.Network = m.Config.layout.bind(&m.Config, b)
	for _, s := range b.slots {
		s.set(fill(s))
	}
	for _, f := range b.tied {
		f(m)
	}
}

// addFiles takes the size of the stored weights, where they are there, in the place
// of the calculated one.
func (o *shapes) addFiles(folder fs.FS) {
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
	name := cmp.Or(c.TorchDType, c.DType)
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
