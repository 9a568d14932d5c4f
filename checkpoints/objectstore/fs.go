package objectstore

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"path"
	"time"
)

// FS is a folder of a store as a file system, of the objects directly in it; fs.Sub has the objects of a folder below. Its
// operations end with ctx. What ReadFile returns was compared with what the store
// knows about the object.
func FS(ctx context.Context, s Store, folder string) fs.FS { return &folderFS{ctx, s, folder} }

type folderFS struct {
	ctx    context.Context
	store  Store
	folder string
}

var (
	_ fs.StatFS     = (*folderFS)(nil)
	_ fs.ReadFileFS = (*folderFS)(nil)
	_ fs.ReadDirFS  = (*folderFS)(nil)
	_ fs.SubFS      = (*folderFS)(nil)
)

// Sub implements fs.SubFS.
func (f *folderFS) Sub(dir string) (fs.FS, error) {
	if !fs.ValidPath(dir) {
		return nil, &fs.PathError{Op: "sub", Path: dir, Err: fs.ErrInvalid}
	}
	return FS(f.ctx, f.store, path.Join(f.folder, dir)), nil
}

// Open implements fs.FS.
func (f *folderFS) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	o, err := f.store.Open(f.ctx, Join(f.folder, name))
	if err != nil {
		return nil, err
	}
	return &file{io.NewSectionReader(o, 0, o.Info().Size), o}, nil
}

// Stat implements fs.StatFS.
func (f *folderFS) Stat(name string) (fs.FileInfo, error) {
	if name == "." {
		return entry{name: ".", dir: true}, nil
	}
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	info, err := f.store.Stat(f.ctx, Join(f.folder, name))
	if err != nil {
		return nil, err
	}
	return entryOf(info), nil
}

// maxReadFile bounds what is read into memory at once.
const maxReadFile = 1 << 30

// ReadFile implements fs.ReadFileFS.
func (f *folderFS) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrInvalid}
	}
	data, err := Get(f.ctx, f.store, Join(f.folder, name), maxReadFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &fs.PathError{Op: "read", Path: f.store.URL(Join(f.folder, name)), Err: fs.ErrNotExist}
	}
	return data, err
}

// ReadDir implements fs.ReadDirFS.
func (f *folderFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if name != "." {
		return nil, &fs.PathError{Op: "list", Path: name, Err: fs.ErrNotExist}
	}
	list, err := f.store.List(f.ctx, f.folder)
	if err != nil {
		return nil, err
	}
	out := make([]fs.DirEntry, len(list))
	for i, info := range list {
		out[i] = fs.FileInfoToDirEntry(entryOf(info))
	}
	return out, nil
}

// file is an open object.
type file struct {
	*io.SectionReader
	object Object
}

func (f *file) Stat() (fs.FileInfo, error) { return entryOf(f.object.Info()), nil }
func (f *file) Close() error               { return f.object.Close() }

// entry describes an object as a file.
type entry struct {
	name     string
	size     int64
	modified time.Time
	dir      bool
}

func entryOf(i Info) entry { return entry{name: path.Base(i.Key), size: i.Size, modified: i.Modified} }

func (e entry) Name() string       { return e.name }
func (e entry) Size() int64        { return e.size }
func (e entry) ModTime() time.Time { return e.modified }
func (e entry) IsDir() bool        { return e.dir }
func (e entry) Sys() any           { return nil }
func (e entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o555
	}
	return 0o444
}
