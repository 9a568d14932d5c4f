package atomicfile

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// renameNew renames temp to target, which must not exist (ErrExists). A plain
// rename would silently take the place of an empty folder.
func renameNew(temp, target string) error {
	err := unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, target, unix.RENAME_NOREPLACE)
	switch {
	case err == nil:
		return nil
	case err == unix.EEXIST:
		return ErrExists
	case unsupported(err):
		return renameNewChecked(temp, target)
	}
	return &os.LinkError{Op: "rename", Old: temp, New: target, Err: err}
}

// exchange swaps two existing names in one step. The error is
// errors.ErrUnsupported where the kernel or the file system cannot.
func exchange(a, b string) error {
	err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		return nil
	case unsupported(err):
		return errors.ErrUnsupported
	}
	return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
}

// unsupported: EINVAL is what a file system without the flag answers.
func unsupported(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.ENOTSUP
}
