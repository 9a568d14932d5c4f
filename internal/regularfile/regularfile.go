// Package regularfile opens and reads files that users name or that come from anywhere. What is
// not a regular file is refused before it is opened: a FIFO waits for a writer, and a device may
// have no end. What is read whole has a limit.
package regularfile

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"glimpse/internal/atomicfile"
)

// CheckRegular is an error that says what the file is, unless it is a regular one.
func CheckRegular(info fs.FileInfo) error {
	mode := info.Mode()
	what := "not a regular file"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a FIFO"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s, want a regular file", what)
}

// Open opens a regular file, the empty one that os.DevNull is, or a pipe that is open already, as
// a shell's process substitution names one: its writer is there. Errors name the file.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	pipe := info.Mode()&fs.ModeNamedPipe != 0 && atomicfile.OfProcess(path)
	null, nullErr := os.Stat(os.DevNull)
	if !pipe && !(nullErr == nil && os.SameFile(info, null)) {
		if err := CheckRegular(info); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return os.Open(path)
}

// Read reads what Open opens, of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, path, limit)
}

// JSON decodes a file of one JSON value, of at most limit bytes. Errors name the file.
func JSON(path string, limit int64, v any) error {
	data, err := Read(path, limit)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// ReadFS reads a regular file of a file system, of at most limit bytes.
func ReadFS(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if err := CheckRegular(info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readLimited(f, name, limit)
}

// ErrLong is of a line that is longer than it may be.
var ErrLong = errors.New("a line is too long")

// Line reads a line with its end, of at most so many bytes. At the end of a file the rest comes
// with io.EOF, as of [bufio.Reader.ReadBytes].
func Line(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		piece, err := r.ReadSlice('\n')
		if len(line)+len(piece) > most {
			return nil, fmt.Errorf("%w: more than %d bytes", ErrLong, most)
		}
		if line = append(line, piece...); err != bufio.ErrBufferFull {
			return line, err
		}
	}
}

func readLimited(f fs.File, name string, limit int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", name, info.Size(), limit)
	}
	// Files of /proc have the size 0, and others may grow.
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes, want at most as many", name, limit)
	}
	return data, nil
}
