package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Cached is what the cache holds of a model of the hub, of all its revisions.
type Cached struct {
	ID    string `json:"id"`    // org/name
	Bytes int64  `json:"bytes"` // of contents, each once
	Path  string `json:"path"`  // the model's folder
	Parts bool   `json:"parts"` // a download has begun and is not done
}

// ListCached lists the models in the cache by name.
func ListCached() ([]Cached, error) {
	s, err := readSettings()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.cache)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []Cached
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), inCache)
		if id := strings.Replace(name, "--", "/", 1); ok && repoID.MatchString(id) {
			c := Cached{ID: id, Path: filepath.Join(s.cache, e.Name())}
			blobs, _ := os.ReadDir(filepath.Join(c.Path, "blobs")) // none is no bytes
			for _, blob := range blobs {
				if info, err := blob.Info(); err == nil {
					c.Bytes += info.Size()
				}
				c.Parts = c.Parts || strings.HasSuffix(blob.Name(), ".incomplete")
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// IsCached tells whether all of a model is on this machine: nothing would be fetched to open it.
func IsCached(spec string) (Model, bool, error) {
	found, f, err := locate(spec, nil)
	if err != nil || f == nil {
		return found, err == nil, err
	}
	c, err := f.cache.findRevision()
	if err != nil {
		return Model{}, false, fmt.Errorf("model %s: %w", f.repo, err)
	}
	if !c.hasAll() {
		return Model{}, false, nil
	}
	return f.repo.in(c.dir), true, nil
}

// Remove takes a model of the hub out of the cache and tells how many bytes that frees: a GGUF file where spec names one, in all
// revisions, or else everything that the cache holds of org/name. Other programs that share the cache lose it, too. It is
// fs.ErrNotExist where the cache does not have it.
func Remove(spec string) (freed int64, err error) {
	_, f, err := locate(spec, nil)
	if err != nil {
		return 0, err
	}
	if f == nil {
		return 0, fmt.Errorf("model %s: is none of the hub's; delete its files yourself", spec)
	}
	before, err := os.ReadDir(filepath.Join(f.cache.dir(), "snapshots"))
	if f.repo.file == "" || errors.Is(err, fs.ErrNotExist) {
		return f.cache.removeAll()
	}
	if err != nil {
		return 0, err
	}
	there := false
	for _, snapshot := range before {
		for _, name := range f.repo.ggufFiles() {
			n, err := f.cache.removeFile(snapshot.Name(), name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return freed, err
			}
			there, freed = true, freed+n
		}
	}
	if sum := f.pinned(f.repo.file); sum != "" { // what of it has arrived
		part := f.cache.blob(sum) + ".incomplete"
		if info, err := os.Stat(part); err == nil && os.Remove(part) == nil {
			there, freed = true, freed+info.Size()
		}
	}
	if !there {
		return 0, fmt.Errorf("model %s: %w in the cache %s", f.repo, fs.ErrNotExist, f.settings.cache)
	}
	if blobs, err := os.ReadDir(filepath.Join(f.cache.dir(), "blobs")); err == nil && len(blobs) == 0 {
		_, err := f.cache.removeAll()
		return freed, err
	}
	return freed, nil
}

// removeAll deletes the model's folders.
func (c cache) removeAll() (freed int64, err error) {
	blobs, err := os.ReadDir(filepath.Join(c.dir(), "blobs"))
	if err != nil {
		if _, there := os.Stat(c.dir()); there != nil {
			return 0, fmt.Errorf("model %s: %w in the cache %s", c.repo, fs.ErrNotExist, c.root)
		}
	}
	for _, blob := range blobs {
		if info, err := blob.Info(); err == nil {
			freed += info.Size()
		}
	}
	return freed, errors.Join(os.RemoveAll(c.dir()), os.RemoveAll(filepath.Join(c.root, ".locks", c.repo.folder())))
}

// removeFile deletes a file of a snapshot, and its content where no other snapshot has that.
func (c cache) removeFile(commit, name string) (freed int64, err error) {
	pointer := c.pointer(commit, filepath.FromSlash(name))
	info, err := os.Stat(pointer)
	if err != nil {
		if _, there := os.Lstat(pointer); there == nil {
			return 0, os.Remove(pointer) // a link that leads nowhere
		}
		return 0, err
	}
	link, linked := os.Readlink(pointer)
	if err := os.Remove(pointer); err != nil {
		return 0, err
	}
	if linked != nil {
		return info.Size(), nil
	}
	content := filepath.Base(link)
	if slices.Contains(c.contents(), content) {
		return 0, nil
	}
	return info.Size(), os.Remove(c.blob(content))
}

// contents are the names of the blobs that snapshots link to.
func (c cache) contents() (names []string) {
	filepath.WalkDir(filepath.Join(c.dir(), "snapshots"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type()&fs.ModeSymlink != 0 {
			if link, err := os.Readlink(path); err == nil {
				names = append(names, filepath.Base(link))
			}
		}
		return nil // what cannot be read links to nothing
	})
	return names
}
