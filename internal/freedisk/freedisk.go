// Package freedisk holds what is about to be written against what the disk has room for.
package freedisk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"glimpse/internal/bytesize"
)

// ErrFull is of more bytes than there is room for.
var ErrFull = errors.New("not enough room")

// Bytes is what a user may still write below a folder, which need not be there yet; ok is
// false where the system does not tell.
func Bytes(dir string) (free int64, ok bool) {
	for {
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			return freeBytes(dir)
		}
		dir = filepath.Dir(dir)
	}
}

// CheckRoom is ErrFull unless there is room for so many bytes below a folder.
func CheckRoom(dir string, need int64) error {
	if free, ok := Bytes(dir); ok && need > free {
		return fmt.Errorf("%s: %w: %s to be written, %s free", dir, ErrFull, bytesize.FormatSize(need), bytesize.FormatSize(free))
	}
	return nil
}
