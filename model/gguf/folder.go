package gguf

import (
	"bytes"
	"encoding/json"
	"io/fs"
	"time"
)

// folder is the files of a folder by their names.
type folder map[string]entry

type entry struct {
	data []byte
	err  error // of opening it
}

// addFile writes v as JSON.
func (f folder) addFile(name string, v any) {
	data, err := json.Marshal(v)
	f[name] = entry{data, err}
}

// Open implements fs.FS.
func (f folder) Open(name string) (fs.File, error) {
	e, ok := f[name]
	if !ok {
		e.err = fs.ErrNotExist
	}
	if e.err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: e.err}
	}
	return &memoryFile{Reader: bytes.NewReader(e.data), name: name}, nil
}

// memoryFile is an open file, and what is known of it.
type memoryFile struct {
	*bytes.Reader
	name string
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f, nil }
func (f *memoryFile) Close() error               { return nil }
func (f *memoryFile) Name() string               { return f.name }
func (f *memoryFile) Mode() fs.FileMode          { return 0o444 }
func (f *memoryFile) ModTime() time.Time         { return time.Time{} }
func (f *memoryFile) IsDir() bool                { return false }
func (f *memoryFile) Sys() any                   { return nil }
