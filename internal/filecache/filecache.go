// Package filecache keeps files in a folder within a bound: those that were of use longest ago make room for others.
package filecache

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"glimpse/internal/atomicfile"
)

// Root is the folder of all that can be made again: GLIMPSE_CACHE, or else glimpse in the user's cache folder.
func Root() (string, error) {
	if dir := os.Getenv("GLIMPSE_CACHE"); dir != "" {
		return dir, nil
	}
	user, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("place of the cache: %w; set GLIMPSE_CACHE", err)
	}
	return filepath.Join(user, "glimpse"), nil
}

// Folder is the files of a folder whose names have a suffix, of at most so many bytes in all. It is safe for concurrent use.
type Folder struct {
	dir, suffix string
	limit       int64

	mu    sync.Mutex
	bytes int64 // of all files
}

// Open makes the folder where it is missing, for its owner alone, and counts what lies there.
func Open(dir, suffix string, limit int64) (*Folder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f := &Folder{dir: dir, suffix: suffix, limit: limit}
	files, err := f.list()
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		f.bytes += file.Size()
	}
	return f, f.makeRoom(0)
}

// Path is that of the file of a name, which has no suffix.
func (f *Folder) Path(name string) string { return filepath.Join(f.dir, name+f.suffix) }

// Use notes that a file was of use now.
func (f *Folder) Use(path string) {
	now := time.Now()
	os.Chtimes(path, now, now)
}

// Write writes a file of so many bytes, atomically, when there is room for it.
func (f *Folder) Write(path string, size int64, write func(w io.Writer) error) error {
	if size > f.limit {
		return fmt.Errorf("got a file of %d bytes, want at most %d", size, f.limit)
	}
	if err := f.makeRoom(size); err != nil {
		return err
	}
	if err := atomicfile.Write(path, write); err != nil {
		return err
	}
	f.mu.Lock()
	f.bytes += size
	f.mu.Unlock()
	return nil
}

// makeRoom removes the files that were of use longest ago until there is room for so many bytes more.
func (f *Folder) makeRoom(bytes int64) error {
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
		f.Remove(filepath.Join(f.dir, file.Name()))
		over -= file.Size()
	}
	return nil
}

// Remove removes a file, or what lies in its place.
func (f *Folder) Remove(path string) {
	info, err := os.Lstat(path)
	if err == nil && os.Remove(path) == nil && info.Mode().IsRegular() {
		f.mu.Lock()
		f.bytes -= info.Size()
		f.mu.Unlock()
	}
}

func (f *Folder) list() (all []fs.FileInfo, err error) {
	entries, err := os.ReadDir(f.dir)
	for _, e := range entries {
		info, gone := e.Info()
		if gone == nil && strings.HasSuffix(e.Name(), f.suffix) && e.Type().IsRegular() {
			all = append(all, info)
		} else if gone != nil && !errors.Is(gone, fs.ErrNotExist) {
			err = cmp.Or(err, gone)
		}
	}
	return all, err
}
