package kvcache

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"

	"glimpse/internal/filecache"
	"glimpse/kernels"
	"glimpse/model"
)

// prefixFiles are the pages of a PrefixCache on disk, a file each, so that they outlive the program. A file is named by
// a hash of all that its numbers depend on: the model's weights, the type of the pairs, the processor's instructions,
// the salt, and all tokens up to the page's end. It is pageHeader, the pairs by layer and head, and a hash of both and of
// what it is named by, so that a page under another's name is none. One that does not fit is removed.
type prefixFiles struct {
	*filecache.Folder
	depends string           // what all pages depend on
	writing chan writtenPage // that wait to be written
	failed  func(error)      // is told why a page is not written, where the one before was; nil: nobody is
	done    sync.WaitGroup
}

type writtenPage struct {
	id    [sha256.Size]byte
	pairs [][]kernels.KV
}

const (
	pageSuffix = ".page"
	// pageHeader has the version of the format. Files of version 1 had none, and a hash of their pairs alone.
	pageHeader = "glimpse-page 2\n"
	// maxWriting is the most pages that wait to be written; further ones are not.
	maxWriting = 256
)

// KeepIn keeps pages in a folder, too, of at most limit bytes, from which those that were used longest ago go. It is
// called before the first prompt. Stop ends it. failed is told from another goroutine why a page is not written, once until one is again.
func (p *PrefixCache) KeepIn(ctx context.Context, m *model.Model, dir string, limit int64, failed func(error)) error {
	if m.Backend.OwnMemory() {
		return fmt.Errorf("prefix folder: got device %s, want a processor", m.Backend.Device())
	}
	weights, err := m.SHA256(ctx)
	if err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	folder, err := filecache.Open(dir, pageSuffix, limit)
	if err != nil {
		return fmt.Errorf("prefix folder: %w", err)
	}
	p.files = &prefixFiles{Folder: folder, writing: make(chan writtenPage, maxWriting), failed: failed}
	p.files.depends = fmt.Sprintf("2 %s %v %s %d %d", weights, m.CacheDType(), kernels.DeviceOf(m.Backend), p.chunk, p.page)
	p.files.done.Go(p.files.writePages)
	return nil
}

// Stop waits until the pages that wait are written.
func (p *PrefixCache) Stop() {
	if p.files != nil {
		close(p.files.writing)
		p.files.done.Wait()
	}
}

// rootID is the id of a root's page. Salts are as long as they like: they come last.
func (f *prefixFiles) rootID(r pageRoot) [sha256.Size]byte {
	long := 0
	if r.long {
		long = 1
	}
	return sha256.Sum256(fmt.Appendf(nil, "%s %d%s", f.depends, long, r.salt))
}

// idOf tells a page from all others.
func idOf(above *page, tokens string) [sha256.Size]byte {
	return sha256.Sum256(append(slices.Clone(above.id[:]), tokens...))
}

// sumOf is the hash that ends a page's file, of its header and pairs.
func sumOf(id [sha256.Size]byte, content []byte) (sum [sha256.Size]byte) {
	h := sha256.New()
	h.Write(id[:])
	h.Write(content)
	return [sha256.Size]byte(h.Sum(nil))
}

func (f *prefixFiles) path(id [sha256.Size]byte) string {
	return f.Path(hex.EncodeToString(id[:20]))
}

// errPage: a file is no page of its name.
var errPage = errors.New("not the page that the name says")

// readPage is the pairs of a file of so many bytes of them. What is no regular file is not waited for.
func readPage(path string, id [sha256.Size]byte, size int) ([]byte, error) {
	named, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	whole := len(pageHeader) + size + sha256.Size
	if !named.Mode().IsRegular() || named.Size() != int64(whole) {
		return nil, errPage
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be another by now
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if opened, err := file.Stat(); err != nil || !os.SameFile(named, opened) {
		return nil, cmp.Or(err, errPage)
	}
	raw := make([]byte, whole)
	if _, err := io.ReadFull(file, raw); err != nil {
		return nil, errPage
	}
	content := raw[:whole-sha256.Size]
	if sumOf(id, content) != [sha256.Size]byte(raw[len(content):]) {
		return nil, errPage
	}
	return content[len(pageHeader):], nil
}

// readPage reads a page of so many tokens for a cache; nil where there is none.
func (f *prefixFiles) readPage(c *Cache, id [sha256.Size]byte, tokens int) [][]kernels.KV {
	path := f.path(id)
	raw, err := readPage(path, id, tokens*int(c.TokenBytes()))
	if errors.Is(err, errPage) {
		f.Remove(path)
	}
	if err != nil {
		return nil
	}
	pairs := make([][]kernels.KV, c.Layers())
	next := func(layer int) *kernels.Tensor {
		t := kernels.NewTensor(c.dtype, tokens, c.pairs(layer).dim)
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
	f.Use(path)
	return pairs
}

// keepPage has a page written, unless too many wait.
func (f *prefixFiles) keepPage(g *page) {
	select {
	case f.writing <- writtenPage{g.id, g.pairs}:
	default:
	}
}

// writePages writes pages until there are no more to come. One that cannot be written is left out.
func (f *prefixFiles) writePages() {
	failing := false
	for w := range f.writing {
		err := f.writePage(w)
		if err != nil && !failing && f.failed != nil {
			f.failed(fmt.Errorf("prefix folder: %w", err))
		}
		failing = err != nil
	}
}

func (f *prefixFiles) writePage(w writtenPage) error {
	path := f.path(w.id)
	raw := []byte(pageHeader)
	for _, heads := range w.pairs {
		for _, kv := range heads {
			raw = append(append(raw, kv.K.Memory()...), kv.V.Memory()...)
		}
	}
	if _, err := readPage(path, w.id, len(raw)-len(pageHeader)); err == nil {
		return nil
	} else if errors.Is(err, errPage) { // behind another that was none, so that nobody has tried to read it
		f.Remove(path)
	}
	sum := sumOf(w.id, raw)
	raw = append(raw, sum[:]...)
	return f.Write(path, int64(len(raw)), func(w io.Writer) error {
		_, err := w.Write(raw)
		return err
	})
}
