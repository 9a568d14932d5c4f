package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Dir is a folder being built. The caller fills the folder at Path; it appears
// at the target path on Commit and not before.
type Dir struct {
	temp    string
	target  string
	replace bool
	unlock  func() // of the temporary
	done    bool
}

// CreateDir starts building the folder at path, whose parent must exist.
// Without replace, an existing path is ErrExists, here or at Commit. With it,
// Commit replaces a folder that is there, whatever it holds, so the caller
// checks first that it may go; anything but a folder is refused.
func CreateDir(path string, replace bool) (*Dir, error) {
	target, err := checkTarget("create folder", path)
	if err != nil {
		return nil, err
	}
	if err := checkDirTarget(target, replace); err != nil {
		return nil, fmt.Errorf("create folder %s: %w", path, err)
	}
	temp, unlock, err := createTemp(target, func(temp string) error { return os.Mkdir(temp, 0o777) })
	if err != nil {
		return nil, fmt.Errorf("create folder %s: %w", path, err)
	}
	return &Dir{temp: temp, target: target, replace: replace, unlock: unlock}, nil
}

// Path is where the folder is built; valid until Commit or Abort.
func (d *Dir) Path() string { return d.temp }

// Commit forces every file of the folder to disk and puts the folder at the
// target path. Where the operating system can exchange two names (Linux, macOS)
// a replaced folder is never absent; elsewhere it is moved aside first and
// moved back if the new one cannot take its place. On an error the target is as
// it was and the temporary is gone; the one exception is an error from syncing
// the parent folder, after which the new folder is in place but may not survive
// a power cut.
func (d *Dir) Commit() error {
	if d.done {
		return fmt.Errorf("commit folder %s: %w", d.target, errDone)
	}
	// Whatever is left at the temporary name goes in the end: the new folder
	// after an error, the old one after an exchange. A failure to remove it
	// does not undo the commit; the name says that it is a leftover.
	defer d.Abort()
	err := syncTree(d.temp)
	if err == nil {
		err = d.install()
	}
	if err != nil {
		return fmt.Errorf("commit folder %s: %w", d.target, err)
	}
	if err := syncDir(filepath.Dir(d.target)); err != nil {
		return fmt.Errorf("commit folder %s: sync parent folder: %w", d.target, err)
	}
	return nil
}

// Abort removes what was built. It does nothing after Commit or Abort, so it
// can be deferred.
func (d *Dir) Abort() {
	if d.done {
		return
	}
	d.done = true
	defer d.unlock()
	os.RemoveAll(d.temp)
}

func (d *Dir) install() error {
	err := renameNew(d.temp, d.target)
	if !d.replace || !errors.Is(err, ErrExists) {
		return err
	}
	if err := checkDirTarget(d.target, true); err != nil {
		return err
	}
	err = exchange(d.temp, d.target)
	if errors.Is(err, errors.ErrUnsupported) {
		return moveAside(d.temp, d.target)
	}
	return err
}

func checkDirTarget(target string, replace bool) error {
	info, err := os.Lstat(target)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !replace:
		return ErrExists
	case !info.IsDir():
		return fmt.Errorf("cannot replace what is there: got a %s, want a folder", fileKind(info.Mode()))
	}
	return nil
}

func fileKind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// syncTree forces every file and folder under root to disk.
func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir():
			return syncDir(path)
		case e.Type().IsRegular():
			return syncFile(path)
		}
		return nil
	})
}

// syncDir makes the folder's entries survive a power cut. Windows has no such thing.
func syncDir(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	return syncFile(path)
}

func syncFile(path string) error {
	mode := os.O_RDONLY
	if runtime.GOOS == "windows" { // which refuses to sync what is open for reading
		mode = os.O_RDWR
	}
	f, err := os.OpenFile(path, mode, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
