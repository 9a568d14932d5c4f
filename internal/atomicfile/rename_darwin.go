package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames temp to target, which must not exist (ErrExists). A plain
// rename would silently take the place of an empty folder.
func renameNew(temp, target string) error {
	err := unix.RenamexNp(temp, target, unix.RENAME_EXCL)
	switch {
	case err == nil:
		return nil
	case err == unix.EEXIST:
		return ErrExists
	case err == unix.ENOTSUP:
		return renameNewChecked(temp, target)
	}
	return &os.LinkError{Op: "rename", Old: temp, New: target, Err: err}
}

// exchange swaps two existing names in one step. The error is
// errors.ErrUnsupported where the file system cannot.
func exchange(a, b string) error {
	err := unix.RenamexNp(a, b, unix.RENAME_SWAP)
	switch {
	case err == nil:
		return nil
	case err == unix.ENOTSUP:
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}
