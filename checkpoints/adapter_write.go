package checkpoints

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"glimpse/internal/atomicfile"
	"glimpse/kernels/formats"
)

// The files of an adapter. AdapterManifest is the one that makes a folder an adapter.
const (
	AdapterManifest = "glimpse.json"

	embeddingsFile = "lookahead_embeddings.safetensors"
	peftConfigFile = "adapter_config.json"
	peftModelFile  = "adapter_model.safetensors"

	embeddingsTensor = "lookahead_embeddings"
)

var adapterFiles = []string{AdapterManifest, CalibrationFile, embeddingsFile, peftConfigFile, peftModelFile, gatesConfigFile, gatesModelFile}

// peftMetadata is what PEFT and transformers want to see in a safetensors file.
var peftMetadata = map[string]string{"format": "pt"}

// WriteAdapter writes the adapter folder, whole or not at all:
//
//   - lookahead_embeddings.safetensors: the learned rows, one tensor
//     lookahead_embeddings [n, hiddenSize] of the adapter's type, F32 or BF16;
//   - adapter_model.safetensors and adapter_config.json, only with LoRA: the
//     factors, of the same type, under PEFT's names, and PEFT's settings;
//   - model.safetensors and config.json, of gates and in the place of the others: as KVzap
//     publishes them (GateLayer);
//   - glimpse.json: everything else, and the SHA-256 of every file;
//   - calibration.json, as it is, where the adapter has one.
//
// Without replace, an existing path is atomicfile.ErrExists. With it, a folder
// that is an adapter or empty is replaced; any other is ErrNotAdapter, so that a
// mistyped path destroys nothing. The same adapter always gives the same bytes.
func WriteAdapter(dir string, a *Adapter, replace bool) error {
	if err := writeAdapter(dir, a, replace); err != nil {
		return fmt.Errorf("write adapter %s: %w", dir, err)
	}
	return nil
}

func writeAdapter(dir string, a *Adapter, replace bool) error {
	files, err := a.folderFiles()
	if err != nil {
		return err
	}
	if replace {
		if err := checkReplaceable(dir); err != nil {
			return err
		}
	}
	d, err := atomicfile.CreateDir(dir, replace)
	if err != nil {
		return err
	}
	defer d.Abort()
	for _, f := range files {
		// The folder is temporary and synced as a whole, so the file itself need not be.
		if err := os.WriteFile(filepath.Join(d.Path(), f.Name), f.Data, 0o666); err != nil {
			return err
		}
	}
	return d.Commit()
}

// AdapterFile is a file of an adapter folder.
type AdapterFile struct {
	Name string
	Data []byte
}

// EncodeAdapter returns the files that WriteAdapter writes, in the order in which
// they must become visible where that cannot happen at once: glimpse.json, without
// which a folder is not an adapter, is the last. The same adapter always gives the
// same files.
func EncodeAdapter(a *Adapter) ([]AdapterFile, error) {
	files, err := a.folderFiles()
	if err != nil {
		return nil, fmt.Errorf("encode adapter: %w", err)
	}
	return files, nil
}

// folderFiles are the files of the folder: the adapter's, behind what lies beside it.
func (a *Adapter) folderFiles() ([]AdapterFile, error) {
	files, err := a.encodeFiles()
	if err == nil && a.Calibration != nil {
		files = slices.Insert(files, 0, AdapterFile{CalibrationFile, a.Calibration})
	}
	return files, err
}

// SameAdapter tells whether a folder holds exactly this adapter. A folder that is
// not there, holds another one, or is damaged does not.
func SameAdapter(dir string, a *Adapter) (bool, error) {
	files, err := EncodeAdapter(a)
	if err != nil {
		return false, err
	}
	if _, err := ReadAdapter(dir); err != nil {
		return false, nil
	}
	for _, f := range files {
		if data, err := os.ReadFile(filepath.Join(dir, f.Name)); err != nil || !bytes.Equal(data, f.Data) {
			return false, nil
		}
	}
	return true, nil
}

// encodeFiles checks the adapter and returns its files, the manifest, which has the sums of the others, as the last.
func (a *Adapter) encodeFiles() (files []AdapterFile, err error) {
	if err := a.Validate(); err != nil {
		return nil, err
	}
	sums := make(map[string]string)
	type part struct {
		name string
		data func() ([]byte, error)
	}
	tensors := func(t ...TensorView) func() ([]byte, error) {
		return func() ([]byte, error) {
			var b bytes.Buffer
			err := WriteSafetensors(&b, t, peftMetadata)
			return b.Bytes(), err
		}
	}
	parts := []part{{embeddingsFile, tensors(a.Embeddings.tensorView(embeddingsTensor, a.BF16))}}
	if a.Gates != nil {
		layout, err := a.gatesConfig()
		if err != nil {
			return nil, err
		}
		config := func() ([]byte, error) { return encodeJSON(layout, "  ") }
		parts = []part{{gatesModelFile, tensors(a.gateTensors()...)}, {gatesConfigFile, config}}
	}
	if a.LoRA != nil {
		config := func() ([]byte, error) { return encodeJSON(newPEFTConfig(a), "  ") }
		parts = append(parts, part{peftModelFile, tensors(a.loraTensors()...)}, part{peftConfigFile, config})
	}
	for _, p := range append(parts, part{AdapterManifest, func() ([]byte, error) { return a.manifest(sums).encodeJSON() }}) {
		data, err := p.data()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		files = append(files, AdapterFile{p.name, data})
		sums[p.name] = sha256Hex(data)
	}
	return files, nil
}

func (a *Adapter) manifest(files map[string]string) manifest {
	training, _ := compactObject(a.Training) // checked by Validate
	metrics := a.Metrics
	if metrics == nil {
		metrics = map[string]float64{}
	}
	return manifest{
		Format:        manifestFormat,
		Version:       manifestVersion,
		Kind:          a.Kind,
		Rows:          a.Embeddings.Rows,
		HiddenSize:    a.Embeddings.Cols,
		Loss:          a.Loss,
		PoolingKernel: a.PoolingKernel,
		LayersDiffer:  a.LayersDiffer,
		Base:          a.Base,
		Training:      training,
		Data:          a.Data,
		Metrics:       metrics,
		Files:         files,
	}
}

func (a *Adapter) loraTensors() []TensorView {
	var tensors []TensorView
	for key, f := range a.LoRA {
		tensors = append(tensors, f.A.tensorView(peftName(key, 'A'), a.BF16), f.B.tensorView(peftName(key, 'B'), a.BF16))
	}
	return tensors
}

func (m Matrix) tensorView(name string, bf16 bool) TensorView {
	if bf16 {
		bits := make([]uint16, len(m.Data))
		for i, v := range m.Data {
			bits[i] = formats.F32ToBF16(v) // exact: Validate has looked
		}
		return BF16Tensor(name, []int{m.Rows, m.Cols}, bits)
	}
	return F32Tensor(name, []int{m.Rows, m.Cols}, m.Data)
}

// checkReplaceable refuses to replace a folder that is not an adapter, or holds
// anything that is not part of one.
func checkReplaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	var foreign []string
	whole := false
	for _, e := range entries {
		whole = whole || e.Name() == AdapterManifest
		if !slices.Contains(adapterFiles, e.Name()) && !atomicfile.IsTemp(e.Name()) {
			foreign = append(foreign, e.Name())
		}
	}
	switch {
	case len(foreign) > 0:
		return fmt.Errorf("%w, so it is not replaced: it also holds %s", ErrNotAdapter, listNames(foreign))
	case !whole:
		return fmt.Errorf("%w, so it is not replaced: it has no %s", ErrNotAdapter, AdapterManifest)
	}
	return nil
}

// CheckTarget tells whether WriteAdapter could write to dir, so that a long run
// need not fail at its end: the path is free or may be replaced, and its parent
// folder can be written to. It makes missing parent folders.
func CheckTarget(dir string, replace bool) error {
	fail := func(err error) error { return fmt.Errorf("adapter folder %s: %w", dir, err) }
	if replace {
		if err := checkReplaceable(dir); err != nil {
			return fail(err)
		}
	} else if _, err := os.Lstat(dir); err == nil {
		return fail(atomicfile.ErrExists)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	parent := filepath.Dir(filepath.Clean(dir))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fail(err)
	}
	probe, err := os.MkdirTemp(parent, ".glimpse-probe-")
	if err != nil {
		return fail(err)
	}
	return os.Remove(probe)
}
