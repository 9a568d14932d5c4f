package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"
)

const (
	lockEvery   = 50 * time.Millisecond
	noticeAfter = time.Second
)

// Lock takes the lock file, creating it and its folder, and waits for it as long as
// ctx lasts; waiting (may be nil) is called once when that takes long. The file
// stays when the lock is let go.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	start := time.Now()
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
		if err != nil {
			return nil, err
		}
		locked, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, &os.PathError{Op: "lock", Path: path, Err: err}
		}
		// Python's filelock removes the file when it lets go: a lock of a file that
		// has lost its name excludes nobody.
		if locked && named(path, f) {
			return func() { f.Close() }, nil
		}
		f.Close()
		if waiting != nil && time.Since(start) > noticeAfter {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockEvery):
		}
	}
}

// TryLock is Lock without waiting: free is false where another process has it.
func TryLock(path string) (unlock func(), free bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o664)
	if err != nil {
		return nil, false, err
	}
	return try(f, path)
}

// TryLockFile takes the lock of a file that is there: free is false where another
// process has it, or where it has gone.
func TryLockFile(path string) (unlock func(), free bool, err error) { return tryExisting(path) }

// TryLockDir takes the lock of a folder that is there, without a file: free is false
// where another process has it, or where it has gone.
func TryLockDir(path string) (unlock func(), free bool, err error) { return tryExisting(path) }

func tryExisting(path string) (unlock func(), free bool, err error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	return try(f, path)
}

func try(f *os.File, path string) (unlock func(), free bool, err error) {
	locked, err := tryLock(f)
	if err != nil {
		f.Close()
		return nil, false, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	if !locked || !named(path, f) {
		f.Close()
		return nil, false, nil
	}
	return func() { f.Close() }, true, nil
}

// named tells that the open file is the one of that name.
func named(path string, f *os.File) bool {
	a, err := os.Stat(path)
	if err != nil {
		return false
	}
	b, err := f.Stat()
	return err == nil && os.SameFile(a, b)
}
