package datasets

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"glimpse/internal/regularfile"
)

// compression is that of a file by its extension, in lower case: ".gz", ".zst" or "".
func compression(path string) string {
	switch ext := strings.ToLower(filepath.Ext(path)); ext {
	case ".gz", ".zst":
		return ext
	}
	return ""
}

// maxWindow bounds what a zstd stream makes its reader hold.
const maxWindow = 128 << 20

// openContent opens a file for reading, decompressed as it is read.
func openContent(path string) (io.ReadCloser, error) {
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	switch compression(path) {
	case ".gz":
		z, err := gzip.NewReader(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return content{z, func() error { return errors.Join(z.Close(), f.Close()) }}, nil
	case ".zst":
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return content{z, func() error { z.Close(); return f.Close() }}, nil
	}
	return f, nil
}

// content is what a decompressor reads of a file.
type content struct {
	io.Reader
	close func() error
}

func (c content) Close() error { return c.close() }
