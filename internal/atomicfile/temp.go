package atomicfile

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"glimpse/internal/filelock"
)

// ErrExists reports that the target is already there and was not to be
// replaced. It wraps fs.ErrExist.
var ErrExists error = existsError{}

type existsError struct{}

func (existsError) Error() string        { return "target already exists" }
func (existsError) Is(target error) bool { return target == fs.ErrExist }

// inFolder names the folder of the target in the place of its temporary: nobody
// has heard of that.
func inFolder(target string, err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return &fs.PathError{Op: at.Op, Path: filepath.Dir(target), Err: at.Err}
	}
	return err
}

// errDone reports a second Commit, or a write after Commit or Abort.
var errDone = errors.New("already committed or aborted")

const (
	newMark = ".tmp-" // being written
	oldMark = ".old-" // replaced content, moved aside until the new is in place

	// Names are limited to 255 bytes on the usual file systems; the temporary's
	// must fit too.
	maxStem = 200
)

// temporary matches the names that this package gives to temporaries: stem and mark.
var temporary = regexp.MustCompile(`(?s)^\.(.*)(\.tmp-|\.old-)[0-9a-f]{16}$`)

// IsTemp reports whether name (a last path element) is one that this package
// gives to temporaries.
func IsTemp(name string) bool { return temporary.MatchString(name) }

// isTempOf reports whether name is that of a temporary of the target with one of the marks.
func isTempOf(name, target string, marks ...string) bool {
	m := temporary.FindStringSubmatch(name)
	return m != nil && m[1] == stem(target) && slices.Contains(marks, m[2])
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
	var all []error
	for _, e := range entries {
		if isTempOf(e.Name(), target, newMark, oldMark) {
			all = append(all, os.RemoveAll(filepath.Join(filepath.Dir(target), e.Name())))
		}
	}
	return errors.Join(all...)
}

// sweepDead removes the temporaries of a target whose writers have been killed, but not
// those that others are still writing.
func sweepDead(target string) {
	filelock.Sweep(filepath.Dir(target), func(e fs.DirEntry) bool { return isTempOf(e.Name(), target, newMark) })
}

// createTemp makes the temporary of a target by create and locks it, so that nobody takes
// it for that of a killed process. Those of processes that were killed are removed.
func createTemp(target string, create func(temp string) error) (temp string, unlock func(), err error) {
	sweepDead(target)
	for {
		temp := tempName(target, newMark)
		if err := create(temp); err != nil {
			return "", nil, inFolder(target, err)
		}
		unlock, free, err := filelock.TryLockExisting(temp)
		if err != nil { // no locks here: nobody sweeps
			return temp, func() {}, nil
		}
		if free {
			return temp, unlock, nil
		}
		os.RemoveAll(temp) // swept before it was locked
	}
}

// stem is what the names of path's temporaries start with.
func stem(path string) string {
	base := filepath.Base(path)
	return base[:min(len(base), maxStem)]
}

// tempName returns a fresh temporary sibling of path.
func tempName(path, mark string) string {
	var random [8]byte
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
