package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/filelock"
)

// ErrExists reports that the target is already there and was not to be
// replaced. It wraps fs.ErrExist.
var ErrExists error = existsError{}

type existsError struct{}

func (existsError) Error() string        { return "target already exists" }
func (existsError) Is(target error) bool { return target == fs.ErrExist }

// inFolder names the folder of the target in the place of its temporary, of which nobody
// has heard.
func inFolder(target string, err error) error {
	var at *fs.PathError
	if errors.As(err, &at) {
		return &fs.PathError{Op: at.Op, Path: filepath.Dir(target), Err: at.Err}
	}
	return err
}

// errDone reports a second Commit, or a write after Commit or Abort.
var errDone = errors.New("already committed or aborted")

const (
	newMark = ".tmp-" // being written
	oldMark = ".old-" // replaced content, moved aside until the new is in place

	randomDigits = 16
	// Names are limited to 255 bytes on the usual file systems; the temporary's
	// must fit too.
	maxStem = 200
)

// IsTemp reports whether name (a last path element) is one that this package
// gives to temporaries.
func IsTemp(name string) bool {
	cut := len(name) - randomDigits - len(newMark)
	if cut < 1 || name[0] != '.' {
		return false
	}
	mark, digits := name[cut:cut+len(newMark)], name[cut+len(newMark):]
	return (mark == newMark || mark == oldMark) && strings.Trim(digits, "0123456789abcdef") == ""
}

// Sweep removes the temporaries of path that killed writers have left. The caller
// knows that nobody is writing path at the moment.
func Sweep(path string) error {
	target, err := checkTarget("sweep", path)
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(target))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("sweep %s: %w", path, err)
	}
	stem := "." + stem(target)
	var all []error
	for _, e := range entries {
		name := e.Name()
		if !IsTemp(name) || name[:len(name)-randomDigits-len(newMark)] != stem {
			continue
		}
		all = append(all, os.RemoveAll(filepath.Join(filepath.Dir(target), name)))
	}
	return errors.Join(all...)
}

// SweepDead removes the temporaries of path whose writers have been killed, but not
// those that others are still writing. It does nothing where there are no locks.
func SweepDead(path string) {
	target, err := checkTarget("sweep", path)
	if err != nil {
		return
	}
	parent := filepath.Dir(target)
	unlock, free, err := filelock.TryLockDir(parent)
	if err != nil || !free { // another is sweeping
		return
	}
	defer unlock()
	// Where a lock that is held can be taken again, locks say nothing about others.
	if again, free, err := filelock.TryLockDir(parent); err != nil || free {
		if err == nil {
			again()
		}
		return
	}
	entries, err := os.ReadDir(parent)
	if err != nil {
		return
	}
	start := "." + stem(target) + newMark
	for _, e := range entries {
		name := e.Name()
		if !IsTemp(name) || !strings.HasPrefix(name, start) || len(name) != len(start)+randomDigits {
			continue
		}
		temp := filepath.Join(parent, name)
		if unlock, free, err := lockTemp(temp, e.IsDir()); err == nil && free {
			os.RemoveAll(temp)
			unlock()
		}
	}
}

func lockTemp(temp string, dir bool) (unlock func(), free bool, err error) {
	if dir {
		return filelock.TryLockDir(temp)
	}
	return filelock.TryLockFile(temp)
}

// createTemp makes the temporary file of a target and locks it, so that nobody takes
// it for that of a killed process. Those of processes that were killed are removed.
func createTemp(target string) (*os.File, func(), error) {
	SweepDead(target)
	for {
		f, err := os.OpenFile(tempName(target, newMark), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err != nil {
			return nil, nil, inFolder(target, err)
		}
		unlock, free, err := lockTemp(f.Name(), false)
		if err != nil { // no locks here: nobody sweeps
			return f, func() {}, nil
		}
		if free {
			return f, unlock, nil
		}
		f.Close() // swept before it was locked
		os.Remove(f.Name())
	}
}

// createTempDir is createTemp for a folder.
func createTempDir(target string) (string, func(), error) {
	SweepDead(target)
	for {
		temp := tempName(target, newMark)
		if err := os.Mkdir(temp, 0o777); err != nil {
			return "", nil, inFolder(target, err)
		}
		unlock, free, err := lockTemp(temp, true)
		if err != nil {
			return temp, func() {}, nil
		}
		if free {
			return temp, unlock, nil
		}
		os.RemoveAll(temp)
	}
}

// stem is what the names of path's temporaries start with.
func stem(path string) string {
	base := filepath.Base(path)
	return base[:min(len(base), maxStem)]
}

// tempName returns a fresh temporary sibling of path.
func tempName(path, mark string) string {
	var random [randomDigits / 2]byte
	rand.Read(random[:]) // never fails: it aborts the program instead
	return filepath.Join(filepath.Dir(path), "."+stem(path)+mark+hex.EncodeToString(random[:]))
}

// checkTarget refuses paths that do not end in a name of their own, such as "."
// or "/": they have no sibling to write to.
func checkTarget(op, path string) (string, error) {
	clean := filepath.Clean(path)
	base := filepath.Base(clean)
	if path == "" || base == "." || base == ".." || base == string(filepath.Separator) {
		return "", fmt.Errorf("%s %q: want a path that ends in a name", op, path)
	}
	return clean, nil
}
