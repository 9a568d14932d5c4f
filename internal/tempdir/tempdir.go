// Package tempdir makes folders for a process's own temporary files that do not
// outlive it for long: what a killed process has left is removed when another asks for
// a folder of the same kind.
package tempdir

import (
	"cmp"
	"io/fs"
	"os"
	"strings"
	"time"

	"glimpse/internal/filelock"
)

// young is the age up to which a folder may be one whose process has yet to lock it.
const young = time.Minute

// Dir is a temporary folder, which its process holds locked.
type Dir struct {
	Path   string
	unlock func()
}

// New makes a folder prefix* in parent ("" is the system's folder for temporary
// files), and removes those that nobody holds any more and that are older than a
// minute. It must be given back with Remove.
func New(parent, prefix string) (*Dir, error) {
	parent = cmp.Or(parent, os.TempDir())
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path, unlock: func() {}}
	unlock, free, err := filelock.TryLockExisting(path)
	if err != nil || !free { // a file system without such locks: nobody sweeps there
		return d, nil
	}
	d.unlock = unlock
	filelock.Sweep(parent, func(e fs.DirEntry) bool {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), prefix) {
			return false
		}
		info, err := e.Info()
		return err == nil && time.Since(info.ModTime()) >= young
	})
	return d, nil
}

// Remove removes the folder and all that is in it.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	d.unlock()
	return err
}
