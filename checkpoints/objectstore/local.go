package objectstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"glimpse/internal/atomicfile"
	"glimpse/internal/filelock"
	"glimpse/internal/progress"
	"glimpse/internal/regularfile"
)

// Local is the store whose objects are the files below a folder, which need not
// exist. Several machines may share it.
func Local(root string) Store { return local(root) }

type local string

func (l local) path(key string) (string, error) {
	if !fs.ValidPath(key) {
		return "", fmt.Errorf("object %q: want names joined by slashes", key)
	}
	return filepath.Join(string(l), filepath.FromSlash(key)), nil
}

// URL implements Store.
func (l local) URL(key string) string { return filepath.Join(string(l), filepath.FromSlash(key)) }

// Put implements Store.
func (l local) Put(ctx context.Context, key string, src Source, opt PutOptions) error {
	path, err := l.path(key)
	if err != nil {
		return err
	}
	if opt.New {
		if _, err := os.Lstat(path); err == nil {
			return fmt.Errorf("put %s: %w", path, ErrExists)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return fmt.Errorf("put %s: %w", path, err)
	}
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Abort()
	buf := make([]byte, 1<<20)
	for off := int64(0); off < src.Size(); {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("put %s: %w", path, err)
		}
		n, err := src.ReadAt(buf[:min(int64(len(buf)), src.Size()-off)], off)
		if n == 0 && err != nil {
			return fmt.Errorf("put %s: %w", path, err)
		}
		if _, err := f.Write(buf[:n]); err != nil {
			return fmt.Errorf("put %s: %w", path, err)
		}
		off += int64(n)
		if opt.Progress != nil {
			opt.Progress(int64(n))
		}
	}
	if opt.New {
		return f.CommitNew()
	}
	return f.Commit()
}

// Update implements Store. Writers wait for each other at the lock of a hidden file beside the object, which stays.
func (l local) Update(ctx context.Context, key string, limit int64, f func(old []byte) ([]byte, error)) error {
	name, err := l.path(key)
	if err != nil {
		return err
	}
	lock := filepath.Join(filepath.Dir(name), "."+filepath.Base(name)+".lock")
	unlock, err := filelock.Lock(ctx, lock, func() { fmt.Fprintln(progress.Stderr, "waiting for another process to write "+name) })
	if err != nil {
		return fmt.Errorf("update %s: %w", name, err)
	}
	defer unlock()
	return update(ctx, l, key, limit, f)
}

// Stat implements Store.
func (l local) Stat(_ context.Context, key string) (Info, error) {
	path, err := l.path(key)
	if err != nil {
		return Info{}, err
	}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "stat", Path: path, Err: ErrNotExist}
	}
	if err != nil {
		return Info{}, err
	}
	return localInfo(key, info), nil
}

func localInfo(key string, info fs.FileInfo) Info {
	return Info{
		Key: key, Size: info.Size(), Modified: info.ModTime(), Age: max(0, time.Since(info.ModTime())),
		Version: fmt.Sprintf("%d-%d", info.ModTime().UnixNano(), info.Size()),
	}
}

// Open implements Store. A file that is replaced meanwhile is read to its end.
func (l local) Open(ctx context.Context, key string) (Object, error) {
	path, err := l.path(key)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := regularfile.CheckRegular(info); err != nil { // it may wait when it is opened, and have no end
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	info, err = f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &localObject{f, ctx, localInfo(key, info)}, nil
}

type localObject struct {
	*os.File
	ctx  context.Context
	info Info
}

func (o *localObject) Info() Info { return o.info }

func (o *localObject) ReadAt(p []byte, off int64) (int, error) {
	if err := o.ctx.Err(); err != nil {
		return 0, err
	}
	return o.File.ReadAt(p, off)
}

// List implements Store.
func (l local) List(_ context.Context, folder string) ([]Info, error) {
	folder = cmp.Or(folder, ".")
	path, err := l.path(folder)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Info
	for _, e := range entries {
		if !e.Type().IsRegular() || atomicfile.IsTemp(e.Name()) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		out = append(out, localInfo(Join(folder, e.Name()), info))
	}
	return out, nil
}

// Delete implements Store.
func (l local) Delete(_ context.Context, key string) error {
	path, err := l.path(key)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Sweep implements Store.
func (l local) Sweep(_ context.Context, key string) error {
	path, err := l.path(key)
	if err != nil {
		return err
	}
	return atomicfile.Sweep(path)
}

var _ Store = local("")
var _ io.ReaderAt = (*localObject)(nil)
