package filelock

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestLock: a second holder waits, is told so, and gets it when the first lets go
// or removes the file, as filelock does.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "x.lock")
	unlock, err := Lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, waited := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(got)
		second, err := Lock(t.Context(), path, func() { close(waited) })
		if err != nil {
			t.Error(err)
			return
		}
		second()
	}()
	<-waited
	select {
	case <-got:
		t.Fatal("two hold the lock")
	default:
	}
	os.Remove(path)
	unlock()
	select {
	case <-got:
	case <-time.After(10 * time.Second):
		t.Fatal("the lock was not let go")
	}
}

// TestTryLock: one holder at a time, and the next when it is let go.
func TestTryLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	unlock, free, err := TryLock(path)
	if err != nil || !free {
		t.Fatalf("free lock: %v, error %v", free, err)
	}
	if _, free, err := TryLock(path); err != nil || free {
		t.Fatalf("held lock: %v, error %v; want false", free, err)
	}
	unlock()
	unlock, free, err = TryLock(path)
	if err != nil || !free {
		t.Fatalf("lock that was let go: %v, error %v", free, err)
	}
	unlock()
	if _, _, err := TryLock(filepath.Join(path, "below a file")); err == nil {
		t.Fatal("a lock file that cannot be made is no error")
	}
}
