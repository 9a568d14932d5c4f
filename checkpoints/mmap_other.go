//go:build !unix

package checkpoints

import (
	"io"
	"os"
)

// mapFile reads the file into memory, for want of a map.
func mapFile(path string) (data []byte, unmap func() error, err error) {
	if err := checkRegular(path); err != nil {
		return nil, nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	size, err := mapSize(path, f)
	if err != nil {
		return nil, nil, err
	}
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
