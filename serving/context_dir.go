package serving

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/filecache"
	"glimpse/kernels"
	"glimpse/model"
)

// contextFiles are contexts on disk, so that what was compressed yesterday answers at once: what was kept of each, as "evict compress"
// writes it, and what has names. A file is named by a hash of all that it depends on.
type contextFiles struct {
	*filecache.Folder
	dir     string
	model   *model.Model
	weights string
	log     *slog.Logger
	writing chan writtenContext
	done    sync.WaitGroup
}

type writtenContext struct {
	context *eviction.Context
	origin  eviction.ContextOrigin
	path    string
}

const (
	contextSuffix = ".kv"
	nameSuffix    = ".context.json"
	// maxWritingContexts is the most that wait to be written; further ones are not.
	maxWritingContexts = 16
)

// openContextFiles opens the folder. Stop ends it.
func openContextFiles(ctx context.Context, m *model.Model, c *Config) (*contextFiles, error) {
	if m.Backend.OwnMemory() {
		return nil, fmt.Errorf("context folder: got device %s, want a processor", m.Backend.Device())
	}
	weights, err := m.SHA256(ctx)
	if err != nil {
		return nil, fmt.Errorf("context folder: %w", err)
	}
	folder, err := filecache.Open(c.ContextDir, contextSuffix, c.ContextDirSize)
	if err != nil {
		return nil, fmt.Errorf("context folder: %w", err)
	}
	f := &contextFiles{Folder: folder, dir: c.ContextDir, model: m, weights: weights, log: c.Log, writing: make(chan writtenContext, maxWritingContexts)}
	f.done.Go(f.writeContexts)
	return f, nil
}

// stop waits until what waits is written.
func (f *contextFiles) stop() {
	if f != nil {
		close(f.writing)
		f.done.Wait()
	}
}

// pathOf is the file of a context: of a policy at a budget that comes to so many pairs, of an owner's tokens, some of which stay.
func (f *contextFiles) pathOf(o eviction.ContextOrigin, pairs int, stays eviction.Keep, salt string, tokens []int32) string {
	h := sha256.New()
	fmt.Fprintf(h, "1 %s %s %s %s %d %x ", f.weights, f.model.CacheDTypeName(), kernels.DeviceOf(f.model.Backend), o.PolicySum, pairs, salt)
	if !stays.IsZero() {
		fmt.Fprintf(h, "%v ", stays)
	}
	for _, id := range tokens {
		fmt.Fprintf(h, "%d ", id)
	}
	return f.Path(hex.EncodeToString(h.Sum(nil)[:20]))
}

// readContext is the context of a file; nil where there is none. One that is damaged, or lies in another's place, is removed.
func (f *contextFiles) readContext(ctx context.Context, path string, tokens []int32) *eviction.Context {
	file, err := eviction.OpenContext(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var c *eviction.Context
	if err == nil {
		defer file.Close()
		if c, err = file.Read(ctx, f.model); err == nil && !slices.Equal(c.Tokens, tokens) {
			err = checkpoints.ErrCorrupt
		}
	}
	if err != nil {
		f.log.Warn("a context on disk is none, and is made anew", "file", path, "error", err.Error())
		f.Remove(path)
		return nil
	}
	f.Use(path)
	return c
}

// keep has a context written, unless too many wait.
func (f *contextFiles) keep(w writtenContext) {
	select {
	case f.writing <- w:
	default:
	}
}

// writeContexts writes contexts until there are no more to come.
func (f *contextFiles) writeContexts() {
	for w := range f.writing {
		if _, err := os.Lstat(w.path); err == nil {
			continue
		}
		err := f.Write(w.path, w.context.Bytes()+int64(8*len(w.context.Tokens)), func(to io.Writer) error {
			return w.context.Write(context.Background(), f.model, to, w.origin)
		})
		if err != nil {
			f.log.Warn("a context is not kept on disk", "error", err.Error())
		}
	}
}

// storedName is a name on disk.
type storedName struct {
	namedContext
	Salt     string          `json:"salt"` // in hexadecimal digits
	Messages json.RawMessage `json:"messages"`
	Tools    json.RawMessage `json:"tools,omitempty"`
}

func (f *contextFiles) namePath(salt, name string) string {
	sum := sha256.Sum256([]byte(salt + "\x00" + name))
	return filepath.Join(f.dir, hex.EncodeToString(sum[:20])+nameSuffix)
}

func (f *contextFiles) putName(n *namedContext) error {
	raw, err := json.Marshal(storedName{*n, hex.EncodeToString([]byte(n.salt)), n.messages, n.tools})
	if err == nil {
		err = atomicfile.WriteFile(f.namePath(n.salt, n.Name), raw)
	}
	return err
}

func (f *contextFiles) removeName(salt, name string) { os.Remove(f.namePath(salt, name)) }

// readNames are all names. A file that is none is left alone.
func (f *contextFiles) readNames() (all []*namedContext, err error) {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), nameSuffix) || !e.Type().IsRegular() {
			continue
		}
		raw, err := os.ReadFile(filepath.Join(f.dir, e.Name()))
		var s storedName
		if err == nil {
			err = json.Unmarshal(raw, &s)
		}
		salt, wrong := hex.DecodeString(s.Salt)
		if err = errors.Join(err, wrong); err != nil || f.namePath(string(salt), s.Name) != filepath.Join(f.dir, e.Name()) {
			f.log.Warn("the name of a context on disk is none", "file", e.Name())
			continue
		}
		n := s.namedContext
		n.salt, n.messages, n.tools = string(salt), s.Messages, s.Tools
		all = append(all, &n)
	}
	return all, err
}
