// Package mappedfile maps files of weights into memory, which are larger than what a program may
// copy.
package mappedfile

import (
	"fmt"
	"math"
	"os"

	"glimpse/internal/regularfile"
)

// Open maps a regular file read-only; unmap releases it. What is not a regular file is refused
// before it is opened. The size is taken when the file is opened: if another program truncates the
// file while it is mapped, touching the lost part kills the process (SIGBUS on Unix); replacing the
// file by a rename is safe.
func Open(path string) (data []byte, unmap func() error, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the map outlives the descriptor
	if info, err = f.Stat(); err != nil {
		return nil, nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil { // it may have been replaced
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	if info.Size() > math.MaxInt {
		return nil, nil, fmt.Errorf("%s: file of %d bytes does not fit into the address space", path, info.Size())
	}
	if info.Size() == 0 { // cannot be mapped; the parser says what is wrong with it
		return nil, func() error { return nil }, nil
	}
	return mapFile(f, int(info.Size()))
}
