// Package stdin reads standard input as far as a context lasts, and makes a file of it for what
// is read more than once, or from its end, or by its extension.
package stdin

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"sync"

	"glimpse/internal/bytesize"
	"glimpse/internal/freedisk"
	"glimpse/internal/tempdir"
)

// Name stands for standard input where a file is asked for.
const Name = "-"

// File holds what a reader gives; the zero value is ready.
type File struct {
	mu   sync.Mutex
	dir  *tempdir.Dir
	path string
	err  error
}

// Standard is that of the process.
var Standard File

// Path reads in to its end, the first time, and returns the path of a temporary file of it. Its
// extension is the format that the content begins like: .jsonl, .json, .parquet, .txt, and .gz
// or .zst of compressed JSONL.
func (f *File) Path(ctx context.Context, in io.Reader) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path != "" || f.err != nil {
		return f.path, f.err
	}
	if f.dir, f.err = tempdir.New("", "glimpse-stdin-"); f.err != nil {
		return "", f.err
	}
	path, err := spool(NewReader(ctx, in), f.dir.Path)
	if err != nil {
		f.err = fmt.Errorf("standard input: %w", err)
		return "", f.err
	}
	f.path = path
	return f.path, nil
}

// Remove removes the file, if there is one.
func (f *File) Remove() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.dir != nil {
		f.dir.Remove()
	}
	f.dir, f.path, f.err = nil, "", nil
}

// spool writes in to a file in the folder and returns its path.
func spool(in io.Reader, dir string) (path string, err error) {
	begin := bufio.NewReaderSize(in, headBytes)
	head, err := begin.Peek(headBytes)
	if err != nil && err != io.EOF {
		return "", err
	}
	kind, err := kindOf(head)
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "stdin"+kind)
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	// A stream without an end must not fill the disk.
	room := int64(math.MaxInt64 - 1)
	if free, ok := freedisk.Bytes(dir); ok {
		room = free / 2
	}
	n, err := io.Copy(out, io.LimitReader(begin, room+1))
	if err == nil && n > room {
		err = fmt.Errorf("more than %s, half of what is free in %s: want a file, or TMPDIR on a larger disk", bytesize.FormatSize(room), filepath.Dir(dir))
	}
	return path, errors.Join(err, out.Close())
}

// headBytes is how much of the content tells its kind.
const headBytes = 512

// kindOf is the extension that a file should have whose content begins so.
func kindOf(head []byte) (string, error) {
	for magic, kind := range map[string]string{"PAR1": ".parquet", "\x1f\x8b": ".jsonl.gz", "\x28\xb5\x2f\xfd": ".jsonl.zst"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return kind, nil
		}
	}
	if at := bytes.IndexByte(head, 0); at >= 0 { // as of /dev/zero, which has no end
		return "", fmt.Errorf("got a zero byte at %d, want text, JSON, Parquet, or JSONL compressed with gzip or zstd", at)
	}
	switch text := bytes.TrimLeft(head, " \t\r\n\ufeff"); {
	case bytes.HasPrefix(text, []byte("{")):
		return ".jsonl", nil
	case bytes.HasPrefix(text, []byte("[")):
		return ".json", nil
	}
	return ".txt", nil
}
