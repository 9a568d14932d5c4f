package gguf

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"glimpse/checkpoints"
	"glimpse/internal/mappedfile"
	"glimpse/internal/modelfile"
	"glimpse/kernels/formats"
)

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	// leastPair and leastTensor are the fewest bytes of a pair and of a tensor's description.
	leastPair, leastTensor = 8 + 4 + 1, 8 + 4 + 4 + 8
)

// File is a model in a GGUF file or in several that it was split into. It is safe for concurrent
// use, except that nothing, the bytes of tensors included, may be used once Close has been called.
type File struct {
	parts []*part
	index map[string]*Tensor
}

// part is one file.
type part struct {
	name    string
	file    []byte // nil once closed
	unmap   func() error
	version string
	keys    []string
	values  map[string]value
	tensors []Tensor
	notes   []string
}

// Open maps a file into memory and checks its whole structure. Of a split model, any of its files
// opens all.
func Open(path string) (*File, error) {
	f, err := open(path)
	if err != nil {
		return nil, fmt.Errorf("open GGUF: %w", err)
	}
	return f, nil
}

func open(path string) (*File, error) {
	p, err := openPart(path)
	if err != nil {
		return nil, err
	}
	files, _, err := p.int("split.count")
	if err == nil && files > 1 {
		if err := p.close(); err != nil {
			return nil, err
		}
		return openSplit(path, files)
	}
	f, invalid := newFile(p)
	if err = errors.Join(err, invalid); err != nil {
		return nil, errors.Join(err, p.close())
	}
	return f, nil
}

// Parse reads a file that is in memory. The name is for error messages. Data is kept, not copied,
// and must not change. A file of a split model is read alone.
func Parse(name string, data []byte) (*File, error) {
	p, err := parsePart(name, data)
	if err != nil {
		return nil, err
	}
	return newFile(p)
}

func openPart(path string) (*part, error) {
	file, err := mappedfile.Open(path)
	if err != nil {
		return nil, err
	}
	p, err := parsePart(path, file.Data)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	p.unmap, p.version = file.Close, file.Version
	return p, nil
}

func parsePart(name string, data []byte) (*part, error) {
	p := &part{name: name, file: data}
	if err := p.parseHeader(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return p, nil
}

func (p *part) parseHeader() error {
	r := &reader{data: p.file}
	if err := r.version(); err != nil {
		return err
	}
	tensors := r.readCount("tensors", leastTensor)
	pairs := r.readCount("pairs of metadata", leastPair)
	p.metadata(r, pairs)
	for i := 0; i < tensors && r.err == nil; i++ {
		p.tensors = append(p.tensors, r.tensorInfo())
	}
	if r.err != nil {
		return r.err
	}
	alignment, err := p.alignment()
	if err != nil {
		return err
	}
	begin := padded(uint64(r.at), alignment)
	// A file without tensors may end before the padding.
	begin = min(begin, uint64(len(p.file)))
	return p.placeTensors(p.file[begin:], int(begin), alignment)
}

// version reads the beginning.
func (r *reader) version() error {
	if err := modelfile.Foreign(r.data); err != nil {
		return checkpoints.Corruptf("%v", err)
	}
	got := r.data[:min(len(magic), len(r.data))]
	switch {
	case string(got) == magic:
	case slices.Contains([]string{"lmgg", "fmgg", "tjgg"}, string(got)):
		return fmt.Errorf("%w: a file of llama.cpp from before GGUF, want GGUF of version 2 or 3", checkpoints.ErrVersion)
	default:
		return checkpoints.Corruptf("offset 0: begins with %q, want %q", got, magic)
	}
	r.at = len(magic)
	v := r.uint32("version")
	switch {
	case r.err != nil:
		return r.err
	case v == 2 || v == 3:
		return nil
	case v != 0 && v&0xffff == 0:
		return fmt.Errorf("%w: a big-endian file, want a little-endian one; gguf_convert_endian.py of llama.cpp converts it", checkpoints.ErrVersion)
	}
	return fmt.Errorf("%w %d, want 2 or 3", checkpoints.ErrVersion, v)
}

// alignment is that of the tensors' bytes.
func (p *part) alignment() (uint64, error) {
	n, ok, err := p.int("general.alignment")
	switch {
	case err != nil:
		return 0, err
	case !ok:
		return defaultAlignment, nil
	case n <= 0 || n > maxAlignment || n&(n-1) != 0:
		return 0, checkpoints.Corruptf("key \"general.alignment\": %d, want a power of two of at most %d", n, maxAlignment)
	}
	return uint64(n), nil
}

// newFile makes a file of its parts.
func newFile(parts ...*part) (*File, error) {
	f := &File{parts: parts, index: map[string]*Tensor{}}
	for _, p := range parts {
		for i := range p.tensors {
			t := &p.tensors[i]
			if f.index[t.Name] != nil {
				return nil, checkpoints.Corruptf("%s: tensor %.200q is there twice", p.name, t.Name)
			}
			f.index[t.Name] = t
		}
	}
	return f, nil
}

// Tensors returns the tensors in the order of the files.
func (f *File) Tensors() []Tensor {
	var all []Tensor
	for _, p := range f.parts {
		all = append(all, p.tensors...)
	}
	return all
}

// Tensor returns a tensor; ok is false where there is none of the name.
func (f *File) Tensor(name string) (t Tensor, ok bool) {
	if t := f.index[name]; t != nil {
		return *t, true
	}
	return Tensor{}, false
}

// Notes say what in the files is odd and changes nothing, one line each.
func (f *File) Notes() (all []string) {
	for _, p := range f.parts {
		for _, note := range p.notes {
			all = append(all, filepath.Base(p.name)+": "+note)
		}
	}
	return all
}

// Close releases all files.
func (f *File) Close() error {
	var errs []error
	for _, p := range f.parts {
		errs = append(errs, p.close())
	}
	return errors.Join(errs...)
}

func (p *part) close() error {
	unmap := p.unmap
	p.file, p.unmap = nil, nil
	if unmap == nil {
		return nil
	}
	if err := unmap(); err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}

// readable lists the formats that can be read.
func readable() (names []string) {
	return slices.DeleteFunc(formats.All.Names(), func(name string) bool {
		for _, t := range types {
			if t.Name == name {
				return false
			}
		}
		return true
	})
}
