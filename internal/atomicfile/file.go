package atomicfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// File is a file being written. Its content appears at the target path on
// Commit and not before. It is not safe for concurrent use.
type File struct {
	f       *os.File
	target  string
	through bool   // f is the target itself
	unlock  func() // of the temporary
	err     error  // the first write error; Commit refuses after it
	done    bool
}

// Create starts writing the file at path, whose folder must exist. An existing
// file at path stays as it is until Commit replaces it; where path is a symbolic
// link, that is the file that the link leads to. A device, a FIFO, a socket or an
// open file of a process (/dev/stdout) is written to at once and stays what it is:
// there Abort takes nothing back. The caller ends with Commit or Abort.
func Create(path string) (*File, error) {
	target, err := checkTarget("create file", path)
	if err != nil {
		return nil, err
	}
	fail := func(err error) (*File, error) { return nil, fmt.Errorf("create %s: %w", path, err) }
	target, through, err := resolveTarget(target)
	if err != nil {
		return fail(err)
	}
	if through {
		f, err := openThrough(target)
		if err != nil {
			return fail(err)
		}
		return &File{f: f, target: target, through: true, unlock: func() {}}, nil
	}
	var f *os.File
	_, unlock, err := createTemp(target, func(temp string) (err error) {
		f.Close() // of a name that was swept; there is none at first
		f, err = os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		return err
	})
	if err != nil {
		return fail(err)
	}
	return &File{f: f, target: target, unlock: unlock}, nil
}

// Write appends p.
func (f *File) Write(p []byte) (int, error) {
	if f.done {
		return 0, fmt.Errorf("write %s: %w", f.target, errDone)
	}
	n, err := f.f.Write(p)
	if err != nil && f.err == nil {
		f.err = err
	}
	return n, err
}

// Commit forces the content to disk and puts it at the target path. On an
// error, which includes any earlier failed Write, the target is as it was and
// the temporary is gone; the one exception is an error from syncing the folder,
// after which the new content is in place but may not survive a power cut.
func (f *File) Commit() error { return f.commit(os.Rename) }

// CommitNew is Commit for a target that must not exist: ErrExists if it does. Of
// several writers of one target exactly one succeeds.
func (f *File) CommitNew() error { return f.commit(installNew) }

// installNew gives the file its name by a hard link, which unlike a rename never
// replaces, also on network file systems. Where there are no hard links it renames.
func installNew(temp, target string) error {
	err := os.Link(temp, target)
	switch {
	case err == nil:
		return os.Remove(temp)
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	case errors.Is(err, fs.ErrNotExist):
		return err
	}
	return renameNew(temp, target)
}

func (f *File) commit(install func(temp, target string) error) error {
	if f.done {
		return fmt.Errorf("commit %s: %w", f.target, errDone)
	}
	f.done = true
	defer f.unlock()
	if f.through {
		if err := errors.Join(f.err, f.f.Close()); err != nil {
			return fmt.Errorf("commit %s: %w", f.target, err)
		}
		return nil
	}
	temp := f.f.Name()
	err := f.err
	if err == nil {
		err = f.f.Sync()
	}
	err = errors.Join(err, f.f.Close())
	if err == nil {
		err = install(temp, f.target)
	}
	if err != nil {
		os.Remove(temp)
		return fmt.Errorf("commit %s: %w", f.target, err)
	}
	if err := syncDir(filepath.Dir(f.target)); err != nil {
		return fmt.Errorf("commit %s: sync folder: %w", f.target, err)
	}
	return nil
}

// Abort drops what was written. It does nothing after Commit or Abort, so it
// can be deferred.
func (f *File) Abort() {
	if f.done {
		return
	}
	f.done = true
	defer f.unlock()
	f.f.Close()
	if !f.through {
		os.Remove(f.f.Name())
	}
}

// WriteFile writes data to path atomically, replacing what is there.
func WriteFile(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		if _, err := w.Write(data); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
		return nil
	})
}

// Write makes a file that f writes; on an error there is none.
func Write(path string, f func(w io.Writer) error) error {
	out, err := Create(path)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := f(out); err != nil {
		return err
	}
	return out.Commit()
}
