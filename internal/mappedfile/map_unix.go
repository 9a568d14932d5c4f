//go:build unix

package mappedfile

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func mapFile(f *os.File, size int) (data []byte, unmap func() error, err error) {
	data, err = unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s (%d bytes): %w", f.Name(), size, err)
	}
	return data, func() error { return unix.Munmap(data) }, nil
}
