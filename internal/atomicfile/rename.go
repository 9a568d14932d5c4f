package atomicfile

import (
	"errors"
	"io/fs"
	"os"
)

// renameNew renames temp to target, which must not exist (ErrExists). A plain
// rename would silently take the place of an empty folder.
func renameNew(temp, target string) error {
	err := renameAs(temp, target, noReplace)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrExist):
		return ErrExists
	case errors.Is(err, errors.ErrUnsupported):
		return renameNewChecked(temp, target)
	}
	return &os.LinkError{Op: "rename", Old: temp, New: target, Err: err}
}

// exchange swaps two existing names in one step. The error is
// errors.ErrUnsupported where the kernel or the file system cannot.
func exchange(a, b string) error {
	if err := renameAs(a, b, swap); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}

// renameNewChecked is renameNew for systems without an exclusive rename. A
// target that appears between check and rename is still not overwritten unless
// it is an empty folder.
func renameNewChecked(temp, target string) error {
	if _, err := os.Lstat(target); err == nil {
		return ErrExists
	}
	return os.Rename(temp, target)
}

// moveAside replaces target by temp where names cannot be exchanged. A kill
// between the two renames leaves the old folder under its ".old-" name.
func moveAside(temp, target string) error {
	old := tempName(target, oldMark)
	if err := os.Rename(target, old); err != nil {
		return err
	}
	if err := os.Rename(temp, target); err != nil {
		return errors.Join(err, os.Rename(old, target))
	}
	os.RemoveAll(old)
	return nil
}
