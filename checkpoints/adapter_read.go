package checkpoints

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"

	"glimpse/kernels"
)

// maxManifest bounds glimpse.json and adapter_config.json, in bytes.
const maxManifest = 16 << 20

// ReadAdapter reads and verifies an adapter folder: every file is there and has
// the bytes it was exported with, shapes and settings agree, numbers are finite.
// Other files that act on a model, such as further safetensors files, are
// refused; hidden files (leftovers of killed writers among them), *.md files,
// licences and a calibration are allowed beside the adapter's own.
//
// A folder without glimpse.json may hold gates as KVzap or Fast KVzip publish
// them, see GateLayer. It does not say for which weights: Adapter.Foreign.
//
// ErrNotAdapter if the folder has no glimpse.json, ErrVersion if it is of
// another format version, ErrCorrupt if it is damaged.
func ReadAdapter(dir string) (*Adapter, error) {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		if err == nil {
			err = errors.New("not a folder")
		}
		return nil, fmt.Errorf("read adapter %s: %w", dir, noPath(err))
	}
	a, err := readAdapter(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("read adapter %s: %w", dir, err)
	}
	return a, nil
}

// noPath leaves out a path that the error's text has already.
func noPath(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// ReadAdapterFS is ReadAdapter for a folder in a file system such as embed.FS;
// "." is its root, which errors do not name: it says nothing to those who gave the file system.
func ReadAdapterFS(fsys fs.FS, dir string) (*Adapter, error) {
	sub, err := fs.Sub(fsys, dir)
	if err == nil {
		var a *Adapter
		if a, err = readAdapter(sub); err == nil {
			return a, nil
		}
	}
	if dir == "." {
		return nil, err
	}
	return nil, fmt.Errorf("read adapter %s: %w", dir, err)
}

func readAdapter(fsys fs.FS) (*Adapter, error) {
	if _, err := fs.Stat(fsys, "."); err != nil {
		return nil, err
	}
	data, err := readBounded(fsys, AdapterManifest, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		if a, ok, err := readForeignGates(fsys); ok {
			return a, err
		}
		return nil, fmt.Errorf("%w: no %s, want a folder that train has written: %w", ErrNotAdapter, AdapterManifest, noPath(err))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AdapterManifest, err)
	}
	m, err := decodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", AdapterManifest, err)
	}
	if err := checkFiles(fsys, m.Files); err != nil {
		return nil, err
	}
	contents := make(map[string][]byte, len(m.Files))
	for _, name := range slices.Sorted(maps.Keys(m.Files)) {
		limit := int64(math.MaxInt)
		switch name {
		case peftConfigFile, gatesConfigFile:
			limit = maxManifest
		case embeddingsFile:
			limit = maxManifest + 4*int64(m.Rows)*int64(m.HiddenSize)
		}
		data, err := readBounded(fsys, name, limit)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if got := sha256Hex(data); got != m.Files[name] {
			return nil, Corruptf("%s: sha256 %s, want %s: it was damaged or changed after the export", name, got, m.Files[name])
		}
		contents[name] = data
	}
	a, err := assembleAdapter(m, contents)
	if err == nil {
		a.Calibration, _ = readBounded(fsys, CalibrationFile, maxCalibration) // who uses it says what is wrong with it
	}
	return a, err
}

// checkFiles compares the list in the manifest with what an adapter consists of
// and with what is in the folder, and reports all differences in one error.
func checkFiles(fsys fs.FS, listed map[string]string) error {
	var p problems
	want := []string{embeddingsFile}
	if listed[gatesModelFile] != "" {
		want = []string{gatesConfigFile, gatesModelFile}
	}
	_, config := listed[peftConfigFile]
	_, model := listed[peftModelFile]
	if config || model {
		want = append(want, peftConfigFile, peftModelFile)
	}
	var unlisted, unknown []string
	for _, name := range want {
		if _, ok := listed[name]; !ok {
			unlisted = append(unlisted, name)
		}
	}
	for name := range listed {
		if !slices.Contains(want, name) {
			unknown = append(unknown, name)
		}
	}
	p.addNames(AdapterManifest+" lacks", unlisted)
	p.addNames(AdapterManifest+" lists unknown", unknown)

	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return err
	}
	var missing, foreign []string
	present := make(map[string]bool, len(entries))
	for _, e := range entries {
		present[e.Name()] = true
		if _, ok := listed[e.Name()]; !ok && e.Name() != AdapterManifest && !harmless(e.Name()) {
			foreign = append(foreign, e.Name())
		}
	}
	for _, name := range want {
		if !present[name] {
			missing = append(missing, name)
		}
	}
	p.addNames("missing files", missing)
	p.addNames("unknown files", foreign)
	return p.in("")
}

// harmless are files that people, model hubs and "evict calibrate" put beside an adapter.
func harmless(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".md") || name == CalibrationFile ||
		strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "NOTICE")
}

// assembleAdapter builds the adapter from the verified files. They are still not
// trusted: a digest says that nothing changed, not that it was right.
func assembleAdapter(m manifest, contents map[string][]byte) (*Adapter, error) {
	training, err := compactObject(m.Training)
	if err != nil {
		return nil, Corruptf("%s: training: %v", AdapterManifest, err)
	}
	a := &Adapter{
		Kind:          m.Kind,
		Base:          m.Base,
		Loss:          m.Loss,
		PoolingKernel: m.PoolingKernel,
		LayersDiffer:  m.LayersDiffer,
		Training:      training,
		Data:          m.Data,
		Metrics:       m.Metrics,
	}
	if m.gates() {
		err = a.readGates(contents[gatesConfigFile], contents[gatesModelFile], true)
	} else {
		err = a.readEmbeddings(contents[embeddingsFile], m.Rows, m.HiddenSize)
	}
	if err != nil {
		return nil, err
	}
	if model, ok := contents[peftModelFile]; ok {
		config, err := readPEFTConfig(contents[peftConfigFile], a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", peftConfigFile, err)
		}
		if err := a.readLoRA(model); err != nil {
			return nil, err
		}
		if err := config.checkAdapter(a); err != nil {
			return nil, fmt.Errorf("%s: %w", peftConfigFile, err)
		}
	}
	if err := a.Validate(); err != nil {
		return nil, Corruptf("%v", err)
	}
	return a, nil
}

func (a *Adapter) readEmbeddings(data []byte, rows, hidden int) error {
	s, err := ParseSafetensors(embeddingsFile, data)
	if err != nil {
		return err
	}
	if err := checkMetadata(s); err != nil {
		return err
	}
	if names := s.Names(); len(names) != 1 || names[0] != embeddingsTensor {
		return Corruptf("%s: got tensors %s, want only %q", embeddingsFile, listNames(names), embeddingsTensor)
	}
	a.BF16 = s.tensors[embeddingsTensor].dtype == kernels.BF16.String()
	a.Embeddings, err = s.matrix(embeddingsTensor, a.BF16)
	if err != nil {
		return err
	}
	if a.Embeddings.Rows != rows || a.Embeddings.Cols != hidden {
		return Corruptf("%s: tensor %q: shape [%d %d], want [%d %d] from %s",
			embeddingsFile, embeddingsTensor, a.Embeddings.Rows, a.Embeddings.Cols, rows, hidden, AdapterManifest)
	}
	return nil
}

func (a *Adapter) readLoRA(data []byte) error {
	s, err := ParseSafetensors(peftModelFile, data)
	if err != nil {
		return err
	}
	if err := checkMetadata(s); err != nil {
		return err
	}
	a.LoRA = make(map[LoRAKey]LoRAFactors)
	var unknown, single []string
	for name := range s.tensors {
		key, factor, ok := parsePEFTName(name)
		if !ok || moduleOrder(key.Module) < 0 {
			unknown = append(unknown, name)
			continue
		}
		m, err := s.matrix(name, a.BF16)
		if err != nil {
			return err
		}
		f := a.LoRA[key]
		if factor == 'A' {
			f.A = m
		} else {
			f.B = m
		}
		a.LoRA[key] = f
	}
	for key, f := range a.LoRA {
		if f.A.Data == nil {
			single = append(single, peftName(key, 'A'))
		}
		if f.B.Data == nil {
			single = append(single, peftName(key, 'B'))
		}
	}
	var p problems
	p.addNames("unknown tensors", unknown)
	p.addNames("missing tensors", single)
	return p.in(peftModelFile + ": ")
}

func checkMetadata(s *Safetensors) error {
	if !maps.Equal(s.metadata, peftMetadata) {
		return Corruptf("%s: %s: got %.200q, want %q", s.name, metadataKey, s.metadata, peftMetadata)
	}
	return nil
}

// matrix reads a tensor of rank 2 and of the type that the whole adapter has.
func (s *Safetensors) matrix(name string, bf16 bool) (Matrix, error) {
	t, dtype := s.tensors[name], kernels.F32
	if bf16 {
		dtype = kernels.BF16
	}
	if t.dtype != dtype.String() || len(t.shape) != 2 {
		return Matrix{}, Corruptf("%s: tensor %.200q: got %s %s, want %v of rank 2", s.name, name, t.dtype, ShapeString(t.shape), dtype)
	}
	view, err := s.Tensor(name)
	if err != nil {
		return Matrix{}, err
	}
	m := Matrix{Rows: t.shape[0], Cols: t.shape[1], Data: make([]float32, view.Len())}
	return m, view.ReadF32(m.Data)
}

func sha256Hex(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
