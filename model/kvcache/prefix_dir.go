package kvcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"glimpse/internal/atomicfile"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
)

// prefixFiles are the pages of a PrefixCache on disk, a file each, so that they outlive the program. A file is named by
// a hash of what its numbers depend on: the model's weights, the type of the pairs, the processor's instructions,
// and all tokens up to the page's end. It ends with a hash of its content; one that does not fit is removed.
type prefixFiles struct {
	dir     string
	limit   int64
	writing chan writtenPage // that wait to be written
	done    sync.WaitGroup

	mu    sync.Mutex
	bytes int64 // of all files
}

type writtenPage struct {
	path  string
	pairs [][]kernels.KV
}

const (
	pageSuffix = ".page"
	// maxWriting is the most pages that wait to be written; further ones are not.
	maxWriting = 256
)

// KeepIn keeps pages in a folder, too, of at most limit bytes, from which those that were used longest ago go. It is
// called before the first prompt. Stop ends it.
func (p *PrefixCache) KeepIn(ctx context.Context, m *model.Model, dir string, limit int64) error {
	if m.Backend.OwnMemory() {
		return fmt.Errorf("prefix folder: got device %s, want a processor", m.Backend.Device())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	weights, err := m.SHA256(ctx)
	if err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	p.files = &prefixFiles{dir: dir, limit: limit, writing: make(chan writtenPage, maxWriting)}
	for i, root := range p.roots {
		root.id = sha256.Sum256(fmt.Appendf(nil, "1 %s %v %s %s %d %d %d", weights, m.CacheDType(), m.Backend.Name(), simd.Level(), p.chunk, p.page, i))
	}
	files, err := p.files.list()
	if err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	for _, f := range files {
		p.files.bytes += f.Size()
	}
	if err := p.files.makeRoom(0); err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	p.files.done.Go(p.files.write)
	return nil
}

// Stop waits until the pages that wait are written.
func (p *PrefixCache) Stop() {
	if p.files != nil {
		close(p.files.writing)
		p.files.done.Wait()
	}
}

// idOf tells a page from all others.
func idOf(above *page, tokens string) [sha256.Size]byte {
	return sha256.Sum256(append(slices.Clone(above.id[:]), tokens...))
}

func (f *prefixFiles) path(id [sha256.Size]byte) string {
	return filepath.Join(f.dir, hex.EncodeToString(id[:20])+pageSuffix)
}

// read reads a page of so many tokens for a cache; nil where there is none.
func (f *prefixFiles) read(c *Cache, id [sha256.Size]byte, tokens int) [][]kernels.KV {
	path := f.path(id)
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	content := len(raw) - sha256.Size
	if content != tokens*int(c.TokenBytes()) || sha256.Sum256(raw[:content]) != [sha256.Size]byte(raw[content:]) {
		f.remove(path, int64(len(raw)))
		return nil
	}
	pairs := make([][]kernels.KV, c.Layers())
	next := func(layer int) *kernels.Tensor {
		t := kernels.NewTensor(c.dtype, tokens, c.dims[layer])
		size := copy(t.Memory(), raw)
		raw = raw[size:]
		return t
	}
	for l := range pairs {
		for range c.LayerKVHeads(l) {
			k := next(l)
			pairs[l] = append(pairs[l], kernels.KV{K: k, V: next(l)})
		}
	}
	now := time.Now()
	os.Chtimes(path, now, now) // by which the oldest go
	return pairs
}

// keep has a page written, unless too many wait.
func (f *prefixFiles) keep(g *page) {
	select {
	case f.writing <- writtenPage{f.path(g.id), g.pairs}:
	default:
	}
}

// write writes pages until there are no more to come. One that cannot be written is left out.
func (f *prefixFiles) write() {
	for w := range f.writing {
		if _, err := os.Stat(w.path); err == nil {
			continue
		}
		var raw []byte
		for _, heads := range w.pairs {
			for _, kv := range heads {
				raw = append(append(raw, kv.K.Memory()...), kv.V.Memory()...)
			}
		}
		sum := sha256.Sum256(raw)
		raw = append(raw, sum[:]...)
		if int64(len(raw)) > f.limit || f.makeRoom(int64(len(raw))) != nil || atomicfile.WriteFile(w.path, raw) != nil {
			continue
		}
		f.mu.Lock()
		f.bytes += int64(len(raw))
		f.mu.Unlock()
	}
}

// makeRoom removes the files that were used longest ago until there is room for so many bytes more.
func (f *prefixFiles) makeRoom(bytes int64) error {
	f.mu.Lock()
	over := f.bytes + bytes - f.limit
	f.mu.Unlock()
	if over <= 0 {
		return nil
	}
	files, err := f.list()
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, file := range files {
		if over <= 0 {
			return nil
		}
		f.remove(filepath.Join(f.dir, file.Name()), file.Size())
		over -= file.Size()
	}
	return nil
}

func (f *prefixFiles) remove(path string, size int64) {
	if os.Remove(path) == nil {
		f.mu.Lock()
		f.bytes -= size
		f.mu.Unlock()
	}
}

// list are the files of pages.
func (f *prefixFiles) list() (all []fs.FileInfo, err error) {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		info, gone := e.Info()
		if gone == nil && strings.HasSuffix(e.Name(), pageSuffix) && e.Type().IsRegular() {
			all = append(all, info)
		} else if gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = cmp.Or(err, gone)
		}
	}
	return all, err
}
