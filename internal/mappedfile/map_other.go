//go:build !unix

package mappedfile

import (
	"io"
	"os"
)

// mapFile reads the file into memory, for want of a map.
func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data = make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, nil, err
	}
	return data, func() error { return nil }, nil
}
