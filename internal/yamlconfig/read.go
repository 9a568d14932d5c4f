package yamlconfig

import (
	"fmt"
	"io"
	"os"

	"glimpse/internal/regularfile"
)

// Read reads a configuration, of at most MaxBytes; "-" is standard input.
func Read(path string) ([]byte, error) {
	if path != "-" {
		return regularfile.Read(path, MaxBytes)
	}
	data, err := io.ReadAll(io.LimitReader(os.Stdin, MaxBytes+1))
	if err == nil && len(data) > MaxBytes {
		err = fmt.Errorf("standard input: more than %d bytes, want a configuration of at most as many", MaxBytes)
	}
	return data, err
}
