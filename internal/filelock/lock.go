package filelock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
)

const (
	lockEvery   = 50 * time.Millisecond
	noticeAfter = time.Second
)

// ErrNoLocks reports a system or a file system without file locks.
var ErrNoLocks = errors.New("this file system has no locks, without which two processes could write the same file: want a folder on one that has them")

// Lock takes the lock file, creating it and its folder, and waits for it as long as
// ctx lasts; waiting (may be nil) is called once when that takes long. The file
// stays when the lock is let go.
func Lock(ctx context.Context, path string, waiting func()) (unlock func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		return nil, err
	}
	start := time.Now()
	for {
		unlock, free, err := TryLock(path)
		if err != nil || free {
			return unlock, err
		}
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

// TryLock is Lock without waiting: free is false where another process has it. The
// folder must be there.
func TryLock(path string) (unlock func(), free bool, err error) {
	return try(flock.New(path, flock.SetFlag(os.O_RDWR|os.O_CREATE), flock.SetPermissions(0o664)))
}

// TryLockExisting takes the lock of a file or folder that is there: free is false where
// another process has it, or where it has gone.
func TryLockExisting(path string) (unlock func(), free bool, err error) {
	unlock, free, err = try(flock.New(path, flock.SetFlag(os.O_RDONLY)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, false, nil
	}
	return unlock, free, err
}

// Sweep removes the chosen entries of a folder that nobody holds locked: left by dead
// processes. What it may not remove, it leaves. It does nothing where another is sweeping,
// or where locks say nothing about others.
func Sweep(dir string, chosen func(fs.DirEntry) bool) {
	unlock, free, err := TryLockExisting(dir)
	if err != nil || !free {
		return
	}
	defer unlock()
	// There are file systems where a lock that is held can be taken again.
	if again, free, err := TryLockExisting(dir); err != nil || free {
		if err == nil {
			again()
		}
		return
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if !chosen(e) {
			continue
		}
		path := filepath.Join(dir, e.Name())
		if unlock, free, err := TryLockExisting(path); err == nil && free {
			os.RemoveAll(path)
			unlock()
		}
	}
}

func try(l *flock.Flock) (unlock func(), free bool, err error) {
	locked, err := l.TryLock()
	for errors.Is(err, syscall.EINTR) { // of a network file system
		locked, err = l.TryLock()
	}
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return nil, false, fmt.Errorf("lock %s: %w (%w)", l.Path(), ErrNoLocks, err)
	case errors.As(err, new(*os.PathError)): // it could not be opened
		return nil, false, err
	case err != nil:
		return nil, false, &os.PathError{Op: "lock", Path: l.Path(), Err: err}
	case !locked:
		return nil, false, nil
	}
	unlock = func() { l.Unlock() }
	// Python's filelock removes the file when it lets go.
	if !named(l) {
		unlock()
		return nil, false, nil
	}
	return unlock, true, nil
}

// named tells that the locked file is still the one of that name.
func named(l *flock.Flock) bool {
	a, err := os.Stat(l.Path())
	if err != nil {
		return false
	}
	b, err := l.Stat()
	return err == nil && os.SameFile(a, b)
}
