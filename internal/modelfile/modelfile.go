package modelfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
)

// Limit is the most bytes that a model folder's file of this name may have; 0 where no
// bound is known, as for weights. The largest tokenizer.json in use has about 35 MB.
func Limit(name string) int64 {
	switch name {
	case "config.json", "generation_config.json", "glimpse_policies.json":
		return 1 << 20
	case "model.safetensors.index.json":
		return 100_000_000
	case "tokenizer.json", "tokenizer_config.json", "added_tokens.json", "special_tokens_map.json", "chat_template.jinja", "chat_template.json":
		return 256 << 20
	}
	return 0
}

// CheckRegular is an error that says what the file is, unless it is a regular one.
// It belongs before opening: a FIFO waits for a writer, and a device may have no end.
func CheckRegular(info fs.FileInfo) error {
	mode := info.Mode()
	what := "not a regular file"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a FIFO"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("%s, want a regular file", what)
}

// Read reads a regular file of at most limit bytes. Errors name the file.
func Read(fsys fs.FS, name string, limit int64) ([]byte, error) {
	info, err := fs.Stat(fsys, name)
	if err != nil {
		return nil, err
	}
	if err := CheckRegular(info); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s: %d bytes, want at most %d", name, info.Size(), limit)
	}
	f, err := fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	// Files of /proc have the size 0, and others may grow.
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s: more than %d bytes, want at most as many", name, limit)
	}
	return data, nil
}

// ReadJSON is Read for a JSON file, without the byte order mark that some editors put
// in front. What stands in its place is an error, see Foreign.
func ReadJSON(fsys fs.FS, name string, limit int64) ([]byte, error) {
	data, err := Read(fsys, name, limit)
	if err != nil {
		return nil, err
	}
	if err := Foreign(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return TrimBOM(data), nil
}

// TrimBOM cuts off a byte order mark in UTF-8.
func TrimBOM(data []byte) []byte { return bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) }

// Foreign is an error where data begins as what often stands in the place of a file
// that was not downloaded: the pointer of Git LFS, or a server's page.
func Foreign(data []byte) error {
	data = data[:min(len(data), 512)]
	if err := Pointer(data); err != nil {
		return err
	}
	text := bytes.ToLower(bytes.TrimSpace(TrimBOM(data)))
	for _, page := range []struct{ prefix, what string }{
		{"<!doctype html", "an HTML page"}, {"<html", "an HTML page"}, {"<?xml", "an XML page"},
	} {
		if bytes.HasPrefix(text, []byte(page.prefix)) {
			return fmt.Errorf("%s, not the file itself; a server's answer was saved in its place", page.what)
		}
	}
	return nil
}

// Pointer is an error where data begins as the pointer of Git LFS.
func Pointer(data []byte) error {
	if bytes.HasPrefix(data, []byte("version https://git-lfs.github.com/spec/")) {
		return errors.New(`a Git LFS pointer, not the file itself; "git lfs pull" in its repository fetches it`)
	}
	return nil
}
