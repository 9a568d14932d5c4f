//go:build unix

package checkpoints

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// mapFile maps the file read-only; unmap releases it.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	if err := checkRegular(path); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close() // the map outlives the descriptor
	size, err := mapSize(path, f)
	if err != nil {
		return nil, nil, err
	}
	if size == 0 { // cannot be mapped; the parser says what is wrong with it
		return nil, func() error { return nil }, nil
	}
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s (%d bytes): %w", path, size, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
