package modelfile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"

	"glimpse/internal/regularfile"
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

// ReadJSON is regularfile.ReadFS for a JSON file, without the byte order mark that some editors put
// in front. What stands in its place is an error, see Foreign.
func ReadJSON(fsys fs.FS, name string, limit int64) ([]byte, error) {
	data, err := regularfile.ReadFS(fsys, name, limit)
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
