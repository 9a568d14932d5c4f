package atomicfile

import (
	"errors"

	"golang.org/x/sys/unix"
)

const noReplace, swap = unix.RENAME_NOREPLACE, unix.RENAME_EXCHANGE

// renameAs renames with a flag. The error is errors.ErrUnsupported where the kernel or
// the file system does not know it.
func renameAs(from, to string, flag uint) error {
	err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, flag)
	if err == unix.EINVAL { // of a file system without the flag
		return errors.ErrUnsupported
	}
	return err
}
