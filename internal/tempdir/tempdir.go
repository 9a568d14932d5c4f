// Package tempdir makes folders for a process's own temporary files that do not
// outlive it for long: what a killed process has left is removed when another asks for
// a folder of the same kind.
package tempdir

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"glimpse/internal/filelock"
)

// lockName is the file in a folder that its process holds locked.
const lockName = ".lock"

// young is the age up to which a folder without a lock may be one that is just being
// made.
const young = time.Minute

// Dir is a temporary folder.
type Dir struct {
	Path   string
	unlock func()
}

// New makes a folder prefix* in parent ("" is the system's folder for temporary
// files), and removes those that nobody holds any more. It must be given back with
// Remove.
func New(parent, prefix string) (*Dir, error) {
	if parent == "" {
		parent = os.TempDir()
	}
	path, err := os.MkdirTemp(parent, prefix)
	if err != nil {
		return nil, err
	}
	lock := filepath.Join(path, lockName)
	unlock, free, err := filelock.TryLock(lock)
	if err == nil && !free {
		err = fmt.Errorf("%s: another process has taken it", path)
	}
	if err != nil {
		os.RemoveAll(path)
		return nil, err
	}
	// Where a lock that is held can be taken again, locks say nothing about others.
	if again, free, err := filelock.TryLock(lock); err == nil && free {
		again()
	} else if err == nil {
		sweep(parent, prefix, path)
	}
	return &Dir{path, unlock}, nil
}

// Remove removes the folder and all that is in it.
func (d *Dir) Remove() error {
	err := os.RemoveAll(d.Path)
	d.unlock()
	return err
}

// sweep removes folders of dead processes, which own is not. What it may not remove,
// it leaves.
func sweep(parent, prefix, own string) {
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	for _, e := range entries {
		name := e.Name()
		if !e.IsDir() || len(name) <= len(prefix) || name[:len(prefix)] != prefix {
			continue
		}
		path := filepath.Join(parent, name)
		if path == own {
			continue
		}
		lock := filepath.Join(path, lockName)
		if info, err := os.Lstat(lock); err != nil || !info.Mode().IsRegular() {
			if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > young {
				os.Remove(path) // only where it is empty: its process died before the lock
			}
			continue
		}
		if unlock, free, err := filelock.TryLock(lock); err == nil && free {
			os.RemoveAll(path)
			unlock()
		}
	}
}
