package hub

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/atomicfile"
	"glimpse/internal/listing"
	"glimpse/internal/regularfile"
)

// cache is one model's part of the Hugging Face cache; package comment, "The
// cache".
type cache struct {
	root string
	repo repo
}

func (c cache) dir() string { return filepath.Join(c.root, c.repo.folder()) }

func (c cache) blob(etag string) string { return filepath.Join(c.dir(), "blobs", etag) }

func (c cache) lockFile(etag string) string {
	return filepath.Join(c.root, ".locks", c.repo.folder(), etag+".lock")
}

func (c cache) ref() string {
	return filepath.Join(c.dir(), "refs", filepath.FromSlash(c.repo.revision))
}

func (c cache) snapshot(commit string) string { return filepath.Join(c.dir(), "snapshots", commit) }

// pointer is the file under its own name.
func (c cache) pointer(commit, name string) string { return filepath.Join(c.snapshot(commit), name) }

func (c cache) absent(commit, name string) string {
	return filepath.Join(c.dir(), ".no_exist", commit, name)
}

// finding is what the cache holds of a revision.
type finding struct {
	commit  string   // "" where the cache does not know the revision
	dir     string   // the snapshot
	missing []string // files without which it cannot be used
	unknown []string // optional files that are not there, and may be at the hub
	others  []string // revisions that the cache holds, where commit is ""
}

func (f finding) hasAll() bool { return f.commit != "" && len(f.missing) == 0 }

// lack says what is missing, in words.
func (f finding) lack() string {
	switch {
	case f.commit != "":
		return listing.Plain(f.missing) + " of commit " + f.commit
	case len(f.others) > 0:
		return "this revision; it holds " + strings.Join(f.others, ", ")
	}
	return "this model"
}

// findRevision looks up the revision. Names are as the cache has them: links that lead
// nowhere count as missing.
func (c cache) findRevision() (finding, error) {
	f := finding{commit: c.repo.revision}
	if !commitHash.MatchString(f.commit) {
		raw, err := readBounded(c.ref(), 1<<10)
		if f.commit = strings.TrimSpace(string(raw)); err != nil || !commitHash.MatchString(f.commit) {
			// A branch may have been read by its commit only, and "a" is no file where
			// the branch "a/b" is cached. Neither is an error: the hub will be asked.
			return finding{others: c.revisions()}, nil
		}
	}
	f.dir = c.snapshot(f.commit)
	if _, err := os.Stat(f.dir); errors.Is(err, fs.ErrNotExist) && f.commit == c.repo.revision {
		return finding{others: c.revisions()}, nil
	}
	there := func(name string) bool {
		_, err := os.Stat(filepath.Join(f.dir, name))
		return err == nil
	}
	wanted := required
	if c.repo.file != "" {
		wanted = c.repo.ggufFiles()
	}
	for _, name := range wanted {
		if !there(name) {
			f.missing = append(f.missing, name)
		}
	}
	if c.repo.file != "" {
		return f, nil
	}
	weights, err := checkpoints.WeightFiles(os.DirFS(f.dir))
	if errors.Is(err, fs.ErrNotExist) {
		f.missing = append(f.missing, singleFile)
	} else if err != nil {
		return finding{}, fmt.Errorf("%s: %w", f.dir, err)
	}
	for _, name := range weights {
		if !there(name) {
			f.missing = append(f.missing, name)
		}
	}
	for _, name := range expected {
		if there(name) {
			continue
		}
		if _, err := os.Stat(c.absent(f.commit, name)); err != nil {
			f.unknown = append(f.unknown, name)
		}
	}
	return f, nil
}

// revisions lists the names in refs, and commits without one, for messages.
func (c cache) revisions() []string {
	const most = 8
	var names, named []string
	refs := filepath.Join(c.dir(), "refs")
	filepath.WalkDir(refs, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || atomicfile.IsTemp(e.Name()) {
			return nil // what cannot be read is not listed
		}
		if name, err := filepath.Rel(refs, path); err == nil {
			names = append(names, filepath.ToSlash(name))
		}
		if raw, err := readBounded(path, 1<<10); err == nil {
			named = append(named, strings.TrimSpace(string(raw)))
		}
		return nil
	})
	entries, _ := os.ReadDir(filepath.Join(c.dir(), "snapshots"))
	for _, e := range entries {
		if !slices.Contains(named, e.Name()) {
			names = append(names, e.Name())
		}
	}
	if len(names) > most {
		names = append(names[:most], "…")
	}
	return names
}

// link gives the blob its name in the snapshot, as a relative link: the cache may
// be moved. Where the system has no symbolic links, it is a hard link.
func (c cache) link(commit, name, etag string) error {
	pointer := c.pointer(commit, name)
	if err := os.MkdirAll(filepath.Dir(pointer), 0o777); err != nil {
		return err
	}
	target, err := filepath.Rel(filepath.Dir(pointer), c.blob(etag))
	if err != nil {
		return err
	}
	temp := fmt.Sprintf("%s.%d.tmp", pointer, os.Getpid())
	os.Remove(temp)
	if err := os.Symlink(target, temp); err != nil {
		if os.Link(c.blob(etag), temp) != nil {
			return err
		}
	}
	if err := os.Rename(temp, pointer); err != nil {
		os.Remove(temp)
		return err
	}
	return nil
}

// setRef notes the commit of the revision.
func (c cache) setRef(commit string) error {
	if c.repo.revision == commit {
		return nil
	}
	if raw, err := readBounded(c.ref(), 1<<10); err == nil && string(raw) == commit {
		return nil // the cache may be read-only
	}
	if err := os.MkdirAll(filepath.Dir(c.ref()), 0o777); err != nil {
		return err
	}
	return atomicfile.WriteFile(c.ref(), []byte(commit))
}

// markAbsent notes files that the commit does not have. It is only a saving: a
// cache that cannot be written stays as it is.
func (c cache) markAbsent(commit string, names []string) {
	for _, name := range names {
		path := c.absent(commit, name)
		if os.MkdirAll(filepath.Dir(path), 0o777) != nil {
			return
		}
		os.WriteFile(path, nil, 0o666)
	}
}

// readBounded reads a regular file of at most limit bytes.
func readBounded(path string, limit int64) ([]byte, error) {
	dir, name := filepath.Split(path)
	raw, err := regularfile.ReadFS(os.DirFS(filepath.Clean(dir)), name, limit)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return raw, err
}
