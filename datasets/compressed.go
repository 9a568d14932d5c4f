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
		return &content{Reader: z, close: func() error { return errors.Join(z.Close(), f.Close()) }}, nil
	case ".zst":
		z, err := zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow))
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		return &content{Reader: z, close: func() error { z.Close(); return f.Close() }}, nil
	}
	return f, nil
}

// content is what a decompressor reads of a file.
type content struct {
	io.Reader
	close func() error
	begun bool // something was read
	err   error
}

// Read says of the file what a decompressor's error means.
func (c *content) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.Reader.Read(p)
	c.begun = c.begun || n > 0
	switch {
	case c.begun && errors.Is(err, gzip.ErrHeader), c.begun && errors.Is(err, zstd.ErrMagicMismatch):
		err = fmt.Errorf("got other bytes after the end of the compressed data, want none: %w", err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		err = fmt.Errorf("%w: the file is cut short", err)
	}
	c.err = err
	return n, err
}

func (c *content) Close() error { return c.close() }
