package atomicfile

import "golang.org/x/sys/unix"

const noReplace, swap = unix.RENAME_EXCL, unix.RENAME_SWAP

// renameAs renames with a flag. The error is errors.ErrUnsupported where the file system
// does not know it.
func renameAs(from, to string, flag uint32) error { return unix.RenamexNp(from, to, flag) }
