package objectstore

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"glimpse/internal/atomicfile"
	"glimpse/internal/filecache"
	"glimpse/internal/filelock"
	"glimpse/internal/freedisk"
	"glimpse/internal/modelfile"
	"glimpse/internal/progress"
)

// Cache keeps copies of objects on the local disk.
type Cache struct {
	Dir string // "": that of filecache.Root
	// Progress (may be nil) is told bytes that have arrived, and once before the
	// first how many are missing. It may be called concurrently.
	Progress func(bytes, missing int64)
}

// chunkBytes is the size of the ranges that a large object is fetched in; what has
// arrived of it survives a kill in multiples of that. Tests take less.
var chunkBytes int64 = 8 << 20

// cached describes the copies of a folder.
type cached struct {
	URL   string                `json:"url"`
	Files map[string]cachedFile `json:"files"`
}

type cachedFile struct {
	Version string `json:"version"`
	Size    int64  `json:"size"`
	// SHA256 and Modified (nanoseconds) describe the copy when it was whole: one that
	// has been written to since is compared again.
	SHA256   string `json:"sha256"`
	Modified int64  `json:"modified"`
}

const recordFile = ".glimpse-objects.json"

// Folder brings the named objects of a folder into the cache and returns the local
// folder, which holds them as they are in the store now and no others. A copy whose
// version is that of the store is not fetched again, unless it was changed here, or the store
// tells no version. The folder is for reading only; a file that is mapped while a newer version takes its place stays what it was.
func (c Cache) Folder(ctx context.Context, s Store, folder string, names []string) (string, error) {
	return c.bring(ctx, s, s.URL(folder), folder, names)
}

// File is Folder for a single object and others that belong to it, by their names in its folder.
// The copies are apart from the folder's own, and the local folder holds nothing else.
func (c Cache) File(ctx context.Context, s Store, key string, others ...string) (string, error) {
	names := slices.Compact(slices.Sorted(slices.Values(append(others, path.Base(key)))))
	dir, err := c.bring(ctx, s, s.URL(key), path.Dir(key), names)
	return filepath.Join(dir, path.Base(key)), err
}

// bring is Folder with the URL that the copies are known by.
func (c Cache) bring(ctx context.Context, s Store, url, folder string, names []string) (string, error) {
	root := c.Dir
	if root == "" {
		var err error
		if root, err = filecache.Root(); err != nil {
			return "", err
		}
	}
	id := sha256.Sum256([]byte(url))
	dir := filepath.Join(root, "objects", hex.EncodeToString(id[:8]), path.Base(url))
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return "", fmt.Errorf("cache of %s: %w", url, err)
	}
	unlock, err := filelock.Lock(ctx, dir+".lock", func() { fmt.Fprintln(progress.Stderr, "waiting for another process to fetch "+url) })
	if err != nil {
		return "", fmt.Errorf("cache of %s: %w", url, err)
	}
	defer unlock()
	if err := c.fillFolder(ctx, s, url, folder, dir, names); err != nil {
		return "", fmt.Errorf("cache of %s: %w", url, err)
	}
	return dir, nil
}

func (c Cache) fillFolder(ctx context.Context, s Store, url, folder, dir string, names []string) error {
	record := cached{Files: make(map[string]cachedFile)}
	if raw, err := os.ReadFile(filepath.Join(dir, recordFile)); err == nil {
		// A record that does not parse is as good as none.
		if json.Unmarshal(raw, &record) != nil || record.Files == nil {
			record = cached{Files: make(map[string]cachedFile)}
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	record.URL = url
	if err := prune(dir, names, record.Files); err != nil {
		return err
	}
	var missing []Object
	var bytes int64
	defer func() {
		for _, o := range missing {
			o.Close()
		}
	}()
	for _, name := range names {
		o, err := s.Open(ctx, Join(folder, name))
		if err != nil {
			return err
		}
		info := o.Info()
		if limit := modelfile.Limit(name); limit > 0 && info.Size > limit {
			o.Close()
			return fmt.Errorf("%s: %d bytes, want at most %d", name, info.Size, limit)
		}
		if file, ok := record.Files[name].intact(filepath.Join(dir, name), info); ok {
			o.Close()
			if file != record.Files[name] {
				record.Files[name] = file
				if err := record.writeRecord(dir); err != nil {
					return err
				}
			}
			continue
		}
		missing = append(missing, o)
		bytes += info.Size
	}
	if c.Progress != nil && bytes > 0 {
		c.Progress(0, bytes)
	}
	for _, o := range missing {
		info := o.Info()
		name := path.Base(info.Key)
		p := partial{path: filepath.Join(dir, name), object: o}
		err := p.fetch(ctx, func(n int64) {
			if c.Progress != nil {
				c.Progress(n, 0)
			}
		})
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		sum, modified, err := sumOf(p.path)
		if err != nil {
			return err
		}
		record.Files[name] = cachedFile{info.Version, info.Size, sum, modified}
		if err := record.writeRecord(dir); err != nil {
			return err
		}
	}
	return nil
}

func (c *cached) writeRecord(dir string) error {
	raw, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	return atomicfile.WriteFile(filepath.Join(dir, recordFile), raw)
}

// intact tells that a copy is that of the version, as it arrived, and how it is now.
func (c cachedFile) intact(path string, info Info) (now cachedFile, ok bool) {
	here, err := os.Stat(path)
	if err != nil || !here.Mode().IsRegular() || here.Size() != info.Size || info.Version == "" || c.Version != info.Version || c.Size != info.Size || c.SHA256 == "" {
		return c, false
	}
	if here.ModTime().UnixNano() == c.Modified {
		return c, true
	}
	sum, modified, err := sumOf(path)
	if err != nil || sum != c.SHA256 {
		return c, false
	}
	c.Modified = modified
	return c, true
}

// sumOf is the SHA-256 of a file and when it was last written to.
func sumOf(path string) (sum string, modified int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", 0, err
	}
	digest, err := sha256Of(f)
	return hex.EncodeToString(digest), info.ModTime().UnixNano(), err
}

// prune removes what the store no longer has, and what does not belong there.
func prune(dir string, names []string, files map[string]cachedFile) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if name == recordFile || slices.Contains(names, name) {
			continue
		}
		if slices.ContainsFunc(names, func(n string) bool { return name == partName(n) || name == journalName(n) }) {
			continue
		}
		delete(files, name)
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

func partName(name string) string    { return "." + name + ".part" }
func journalName(name string) string { return "." + name + ".chunks" }

// partial is an object on its way to a file. The chunks that are on disk are listed
// in a journal beside it, under the version that they belong to.
type partial struct {
	path   string
	object Object
}

const parallelChunks = 4

// fetch brings the object to its path, going on where an earlier call was killed.
func (p partial) fetch(ctx context.Context, progress func(bytes int64)) error {
	if progress == nil {
		progress = func(int64) {}
	}
	dir, name := filepath.Split(p.path)
	part, journal := filepath.Join(dir, partName(name)), filepath.Join(dir, journalName(name))
	info := p.object.Info()
	head := fmt.Sprintf("%s %d %d", info.Version, info.Size, chunkBytes)
	there, err := os.Stat(part)
	log, done, err := openJournal(journal, head, err == nil && there.Size() == info.Size && info.Version != "")
	if err != nil {
		return err
	}
	defer log.Close()
	if len(done) == 0 {
		if err := freedisk.CheckRoom(dir, info.Size); err != nil {
			return err
		}
	}
	f, err := os.OpenFile(part, os.O_RDWR|os.O_CREATE, 0o666)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(info.Size); err != nil {
		return err
	}
	if err := p.fetchChunks(ctx, f, log, done, progress); err != nil {
		return err
	}
	if err := info.verify(io.NewSectionReader(f, 0, info.Size)); err != nil {
		// Which chunk it was is not known: all are fetched again.
		os.Remove(journal)
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if there, err := os.Lstat(p.path); err == nil && there.IsDir() { // which nobody but this program should write here
		if err := os.RemoveAll(p.path); err != nil {
			return err
		}
	}
	if err := os.Rename(part, p.path); err != nil {
		return err
	}
	return os.Remove(journal)
}

func (p partial) fetchChunks(ctx context.Context, f, log *os.File, done map[int64]bool, progress func(int64)) error {
	size := p.object.Info().Size
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelChunks)
	for i := range (size + chunkBytes - 1) / chunkBytes {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			off := i * chunkBytes
			n := min(chunkBytes, size-off)
			if !done[i] {
				if err := p.fetchChunk(f, make([]byte, n), off); err != nil {
					return err
				}
				if _, err := fmt.Fprintf(log, "\n%d.", i); err != nil {
					return err
				}
			}
			progress(n)
			return nil
		})
	}
	return group.Wait()
}

// fetchChunk puts a chunk on disk, for good: the journal must not list what a power
// cut could take away.
func (p partial) fetchChunk(f *os.File, buf []byte, off int64) error {
	if _, err := p.object.ReadAt(buf, off); err != nil && err != io.EOF {
		return err
	}
	if _, err := f.WriteAt(buf, off); err != nil {
		return err
	}
	return f.Sync()
}

// openJournal opens a journal, to be appended to. It returns the chunks that it lists where it
// is of this version and there is something to go on with, and is begun anew otherwise.
func openJournal(path, head string, goOn bool) (*os.File, map[int64]bool, error) {
	done := make(map[int64]bool)
	raw, err := os.ReadFile(path)
	if first, chunks, _ := strings.Cut(string(raw), "\n"); err == nil && goOn && first == head {
		for line := range strings.SplitSeq(chunks, "\n") {
			// A whole entry ends in a dot: one may be cut short, to 1 of 12.
			digits, whole := strings.CutSuffix(line, ".")
			if i, err := strconv.ParseInt(digits, 10, 64); err == nil && whole {
				done[i] = true
			}
		}
	} else if err := atomicfile.WriteFile(path, []byte(head)); err != nil {
		return nil, nil, err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	return f, done, err
}
