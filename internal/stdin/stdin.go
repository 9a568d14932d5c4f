// Package stdin makes a file of standard input, for what is read more than once, or from its
// end, or by its extension.
package stdin

import (
	"bytes"
	"context"
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
	done := make(chan error, 1)
	if f.dir, f.err = tempdir.New("", "glimpse-stdin-"); f.err != nil {
		return "", f.err
	}
	raw := filepath.Join(f.dir.Path, "stdin")
	go func() { done <- spool(in, raw) }()
	select {
	case f.err = <-done:
	case <-ctx.Done():
		f.err = context.Cause(ctx)
	}
	if f.err != nil {
		f.err = fmt.Errorf("standard input: %w", f.err)
		return "", f.err
	}
	kind, err := kindOf(raw)
	if err == nil {
		err = os.Rename(raw, raw+kind)
	}
	if err != nil {
		f.err = fmt.Errorf("standard input: %w", err)
		return "", f.err
	}
	f.path = raw + kind
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

func spool(in io.Reader, path string) error {
	out, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	// A stream without an end must not fill the disk.
	room := int64(math.MaxInt64 - 1)
	if free, ok := freedisk.Bytes(filepath.Dir(path)); ok {
		room = free / 2
	}
	n, err := io.Copy(out, io.LimitReader(in, room+1))
	if err == nil && n > room {
		err = fmt.Errorf("more than %s, half of what is free in %s: want a file, or TMPDIR on a larger disk", bytesize.Text(room), filepath.Dir(filepath.Dir(path)))
	}
	if err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// kindOf is the extension that a file's content should have.
func kindOf(path string) (string, error) {
	in, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer in.Close()
	head := make([]byte, 512)
	n, err := io.ReadFull(in, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return "", err
	}
	head = head[:n]
	for magic, kind := range map[string]string{"PAR1": ".parquet", "\x1f\x8b": ".jsonl.gz", "\x28\xb5\x2f\xfd": ".jsonl.zst"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return kind, nil
		}
	}
	switch text := bytes.TrimLeft(head, " \t\r\n\ufeff"); {
	case bytes.HasPrefix(text, []byte("{")):
		return ".jsonl", nil
	case bytes.HasPrefix(text, []byte("[")):
		return ".json", nil
	}
	return ".txt", nil
}
