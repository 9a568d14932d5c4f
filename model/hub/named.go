package hub

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"glimpse/checkpoints/objectstore"
	"glimpse/model/catalog"
)

// Named is the entry of package catalog that a model's name stands for, nil for none: what lies on this machine goes before.
func Named(spec string) (*catalog.Entry, error) {
	if spec == "" || objectstore.IsURL(spec) || isFolder(spec) {
		return nil, nil
	}
	entry, err := catalog.Find(spec)
	if err != nil {
		return nil, fmt.Errorf("model %s: no such folder, and %w", spec, err)
	}
	return entry, nil
}

// expand makes of a name of package catalog, or of an address at the hub, what it stands for. Other names stay as they are.
func expand(spec string) (string, error) {
	entry, err := Named(spec)
	if err != nil {
		return "", err
	}
	if entry != nil {
		return entry.Model, nil
	}
	return fromURL(spec)
}

// pinned is the SHA-256 that a file must have, "" where no name says so.
func (f *fetcher) pinned(name string) string {
	if f.entry == nil || name != f.repo.file {
		return ""
	}
	return f.entry.SHA256
}

// checkPinned is an error where the model's file in the folder of a snapshot is not the one that its name stands for. The hub
// calls blobs of large files by their SHA-256; others are read.
func (f *fetcher) checkPinned(dir string) error {
	want := f.pinned(f.repo.file)
	if want == "" {
		return nil
	}
	path := filepath.Join(dir, filepath.FromSlash(f.repo.file))
	got := ""
	if link, err := os.Readlink(path); err == nil {
		got = filepath.Base(link)
	}
	if len(got) != len(want) || !contentHash.MatchString(got) {
		var err error
		if got, err = fileHash(path); err != nil {
			return err
		}
	}
	if got != want {
		return fmt.Errorf("%s: SHA-256 %s, want %s, which the name stands for", path, got, want)
	}
	return nil
}

// fileHash is the SHA-256 of a file, in hexadecimal digits.
func fileHash(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
