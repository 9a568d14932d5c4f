package checkpoints

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"glimpse/internal/regularfile"
)

const (
	singleFile = "model.safetensors"
	indexFile  = "model.safetensors.index.json"
)

// Weights are the tensors of a base model, in one file or in shards. They are
// safe for concurrent use, except that nothing, views included, may be used
// once Close has been called.
type Weights struct {
	name   string       // the folder, for errors
	shards []TensorFile // sorted by file name
	owner  map[string]TensorFile
	stored map[string]string // names in the files, of tensors that Rename renamed

	hashing sync.Mutex
	sha256  string // "" until computed
}

// TensorFile is an open file with tensors, of any format. It is safe for concurrent use.
type TensorFile interface {
	// Names returns the names of all tensors, sorted.
	Names() []string
	// Info describes a tensor, also one of a type that Tensor refuses.
	Info(name string) (TensorInfo, bool)
	// Tensor returns the named tensor: a view of the file, or memory of the caller's where the file
	// stores the elements in another form. ErrNoTensor, ErrDType as of [Safetensors.Tensor].
	Tensor(name string) (TensorView, error)
	// Bytes is the whole file, nil once it is closed.
	Bytes() []byte
	// Version names what the file holds, so that the same version has the same bytes; "" where that is not known.
	Version() string
	// Close closes the file. Views become invalid.
	Close() error
}

// NewWeights are the tensors of open files, in the order in which SHA256 hashes the files. The
// name is for errors. A tensor in two of them is ErrCorrupt. Close closes the files.
func NewWeights(name string, files ...TensorFile) (*Weights, error) {
	w := &Weights{name: name, shards: files, owner: make(map[string]TensorFile)}
	for _, file := range files {
		for _, tensor := range file.Names() {
			if w.owner[tensor] != nil {
				return nil, Corruptf("%s: tensor %.200q is in two files", name, tensor)
			}
			w.owner[tensor] = file
		}
	}
	return w, nil
}

// OpenWeights opens the weights in a Hugging Face folder: model.safetensors, or
// else the shards that model.safetensors.index.json names. The files are mapped
// into memory (see OpenSafetensors). The index and the shards must agree on
// every tensor; what is missing or surplus is reported in one error.
func OpenWeights(dir string) (*Weights, error) {
	w, err := openWeights(os.DirFS(dir), dir, func(name string) (*Safetensors, error) {
		return OpenSafetensors(filepath.Join(dir, name))
	})
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	return w, nil
}

// OpenWeightsFS is OpenWeights for weights in a file system such as embed.FS.
// The files are read into memory.
func OpenWeightsFS(fsys fs.FS, dir string) (*Weights, error) {
	sub, err := fs.Sub(fsys, dir)
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	w, err := openWeights(sub, dir, func(name string) (*Safetensors, error) {
		data, err := readBounded(sub, name, math.MaxInt)
		if err != nil {
			return nil, fmt.Errorf("open safetensors: %s: %w", path.Join(dir, name), err)
		}
		return ParseSafetensors(path.Join(dir, name), data)
	})
	if err != nil {
		return nil, fmt.Errorf("open weights: %w", err)
	}
	return w, nil
}

func openWeights(dir fs.FS, name string, open func(string) (*Safetensors, error)) (*Weights, error) {
	shards, err := weightMap(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if shards == nil {
		s, err := open(singleFile)
		if err != nil {
			return nil, err
		}
		return NewWeights(name, s)
	}
	w := &Weights{name: name, owner: make(map[string]TensorFile)}
	if err := w.openShards(shards, open); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// weightMap says where the index of a folder has each tensor; nil where the single file is, which goes before the
// index as in transformers.
func weightMap(dir fs.FS) (shards map[string]string, err error) {
	if _, err := fs.Stat(dir, singleFile); !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data, err := readBounded(dir, indexFile, maxHeader)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("neither %s nor %s is there: %w%s", singleFile, indexFile, fs.ErrNotExist, otherWeights(dir))
	}
	if err == nil {
		shards, err = parseIndex(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", indexFile, err)
	}
	return shards, nil
}

// WeightFiles lists the files that OpenWeights would read in a folder: the single
// one, or the index and its shards.
func WeightFiles(fsys fs.FS) ([]string, error) {
	shards, err := weightMap(fsys)
	if err == nil && shards == nil {
		return []string{singleFile}, nil
	}
	return slices.Compact(slices.Sorted(maps.Values(shards))), err
}

// otherWeights hints at weights in the older format.
func otherWeights(dir fs.FS) string {
	for _, name := range []string{"pytorch_model.bin", "pytorch_model.bin.index.json"} {
		if _, err := fs.Stat(dir, name); err == nil {
			return "; " + name + ` must first be converted to safetensors: AutoModelForCausalLM.from_pretrained("DIR").save_pretrained("OUT")`
		}
	}
	return ""
}

// Names returns the names of all tensors, sorted.
func (w *Weights) Names() []string {
	return slices.Sorted(maps.Keys(w.owner))
}

// Rename gives tensors other names, by their names in the files; no two may become one. It
// comes before any use of the weights by several.
func (w *Weights) Rename(names map[string]string) error {
	owner := maps.Clone(w.owner)
	for from := range names {
		delete(owner, from)
	}
	for from, to := range names {
		if _, ok := owner[to]; ok {
			return Corruptf("%s: tensors %.200q and %.200q are the same one", w.name, from, to)
		}
		owner[to] = w.owner[from]
	}
	w.owner, w.stored = owner, make(map[string]string, len(names))
	for from, to := range names {
		w.stored[to] = from
	}
	return nil
}

// file is where a tensor lies, and its name there.
func (w *Weights) file(name string) (s TensorFile, stored string, ok bool) {
	s, ok = w.owner[name]
	if stored, renamed := w.stored[name]; renamed {
		return s, stored, ok
	}
	return s, name, ok
}

// Info describes a tensor, also one of a type that Tensor refuses.
func (w *Weights) Info(name string) (TensorInfo, bool) {
	s, stored, ok := w.file(name)
	if !ok {
		return TensorInfo{}, false
	}
	return s.Info(stored)
}

// Tensor returns a view of the named tensor. ErrNoTensor if there is none,
// ErrDType if its elements are of a type that cannot be computed with.
func (w *Weights) Tensor(name string) (TensorView, error) {
	s, stored, ok := w.file(name)
	if !ok {
		return TensorView{}, fmt.Errorf("%s: tensor %.200q: %w", w.name, name, ErrNoTensor)
	}
	view, err := s.Tensor(stored)
	view.Name = name
	return view, err
}

// Bytes is the size of all files together.
func (w *Weights) Bytes() int64 {
	var n int64
	for _, s := range w.shards {
		n += int64(len(s.Bytes()))
	}
	return n
}

// Version names what all files hold, so that the same version has the same bytes; "" where that is not known.
func (w *Weights) Version() string {
	var all []string
	for _, s := range w.shards {
		v := s.Version()
		if v == "" {
			return ""
		}
		all = append(all, v)
	}
	return strings.Join(all, "\n")
}

// SHA256 is the hash, in lower-case hexadecimal, of the files' bytes, one after the
// other in the order of their names. Earlier versions identified weights by it. It is what
//
//	cat model*.safetensors | sha256sum
//
// prints. It reads every byte the first time, which takes about a second per
// gigabyte, and is remembered. Progress (may be nil) is told the bytes done so far.
// The only error before Close is ctx's.
func (w *Weights) SHA256(ctx context.Context, progress func(done, total int64)) (string, error) {
	w.hashing.Lock()
	defer w.hashing.Unlock()
	if w.sha256 != "" {
		return w.sha256, nil
	}
	const chunk = 8 << 20
	h := sha256.New()
	var done int64
	for _, s := range w.shards {
		file := s.Bytes()
		if file == nil {
			return "", fmt.Errorf("hash weights of %s: %w", w.name, fs.ErrClosed)
		}
		for part := range slices.Chunk(file, chunk) {
			if err := ctx.Err(); err != nil {
				return "", fmt.Errorf("hash weights of %s: %w", w.name, err)
			}
			h.Write(part)
			done += int64(len(part))
			if progress != nil {
				progress(done, w.Bytes())
			}
		}
	}
	w.sha256 = hex.EncodeToString(h.Sum(nil))
	return w.sha256, nil
}

// Close closes all files. Views become invalid.
func (w *Weights) Close() error {
	var all []error
	for _, s := range w.shards {
		all = append(all, s.Close())
	}
	return errors.Join(all...)
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil {
		return nil, Corruptf("%v", err)
	}
	if info.Size() > limit {
		return nil, Corruptf("file of %d bytes, want at most %d", info.Size(), limit)
	}
	return fs.ReadFile(fsys, name)
}
