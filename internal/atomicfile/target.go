package atomicfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// resolveTarget tells what is written for a path: the file that symbolic links lead to, or,
// through, something that must not be replaced.
func resolveTarget(path string) (target string, through bool, err error) {
	link, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, false, nil
	}
	if err != nil {
		return "", false, err
	}
	info := link
	if link.Mode()&fs.ModeSymlink != 0 {
		if info, err = os.Stat(path); err != nil {
			return "", false, fmt.Errorf("the symbolic link leads nowhere: %w", err)
		}
	}
	switch {
	case info.IsDir():
		return "", false, errors.New("got a folder, want a file")
	case !info.Mode().IsRegular() || OfProcess(path):
		return path, true, nil
	case info != link:
		target, err = filepath.EvalSymlinks(path)
		return target, false, err
	}
	return path, false, nil
}

// OfProcess tells that a path names an open file of a process, such as /dev/stdout:
// whoever opened it has the file itself and would not see a new one of its name.
func OfProcess(path string) bool {
	full, err := filepath.Abs(path)
	return err == nil && (strings.HasPrefix(full, "/dev/") || strings.HasPrefix(full, "/proc/"))
}

// openThrough opens what must not be replaced. It does not wait for the reader of a
// FIFO.
func openThrough(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ENXIO) {
		return nil, errors.New("nobody reads this FIFO")
	}
	return f, err
}
