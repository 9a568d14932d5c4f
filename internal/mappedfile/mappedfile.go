// Package mappedfile maps files of weights into memory, which are larger than what a program may
// copy.
package mappedfile

import (
	"fmt"
	"math"
	"os"
	"time"

	"glimpse/internal/regularfile"
)

// File is a file in memory. Close releases it.
type File struct {
	Data  []byte
	Close func() error
	// Version names what the file held when it was mapped: a file of the same version has the same bytes. It is "" where the system does not say
	// enough, and of a file that was written less than settled ago, whose next change may bear the same time.
	Version string
}

const settled = 2 * time.Second

// Open maps a regular file read-only. What is not a regular file is refused
// before it is opened. The size is taken when the file is opened: if another program truncates the
// file while it is mapped, touching the lost part kills the process (SIGBUS on Unix); replacing the
// file by a rename is safe.
func Open(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the map outlives the descriptor
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil { // it may have been replaced
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info.Size() > math.MaxInt {
		return nil, fmt.Errorf("%s: file of %d bytes does not fit into the address space", path, info.Size())
	}
	if info.Size() == 0 { // cannot be mapped; the parser says what is wrong with it
		return &File{Close: func() error { return nil }}, nil
	}
	data, unmap, err := mapFile(f, int(info.Size()))
	if err != nil {
		return nil, err
	}
	out := &File{Data: data, Close: unmap}
	if time.Since(info.ModTime()) > settled {
		out.Version = versionOf(info)
	}
	return out, nil
}
