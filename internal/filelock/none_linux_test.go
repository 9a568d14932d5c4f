package filelock_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/atomicfile"
	"glimpse/internal/filelock"
	"glimpse/internal/filelock/locktest"
	"glimpse/internal/outputs"
	"glimpse/internal/tempdir"

	"golang.org/x/sys/unix"
)

// TestNoLocks: where a file system has no locks, what needs one is refused and says
// why; what only sweeps up after dead processes works without sweeping.
func TestNoLocks(t *testing.T) {
	if os.Getenv("GLIMPSE_TEST_NO_LOCKS") == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestNoLocks$", "-test.v")
		child.Env = append(os.Environ(), "GLIMPSE_TEST_NO_LOCKS=1")
		out, err := child.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestNoLocks") {
			t.Fatalf("error %v: %s", err, out)
		}
		return
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "x")
	if err := os.WriteFile(path, []byte("old"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := locktest.None(unix.ENOTSUP); err != nil {
		t.Fatalf("seccomp: %v", err)
	}
	refused := func(what string, unlock func(), err error) {
		t.Helper()
		if !errors.Is(err, filelock.ErrNoLocks) || !strings.Contains(err.Error(), path) || unlock != nil {
			t.Errorf("%s: error %v, want ErrNoLocks with the path", what, err)
		}
	}
	unlock, err := filelock.Lock(t.Context(), path, nil)
	refused("Lock", unlock, err)
	unlock, _, err = filelock.TryLock(path)
	refused("TryLock", unlock, err)
	unlock, _, err = filelock.TryLockExisting(path)
	refused("TryLockExisting", unlock, err)
	unlock, err = outputs.Lock(path)
	refused("LockOutput", unlock, err)

	stale := filepath.Join(dir, ".x.tmp-0123456789abcdef")
	if err := os.WriteFile(stale, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := atomicfile.WriteFile(path, []byte("new")); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(path); string(data) != "new" {
		t.Errorf("the file has %q, error %v", data, err)
	}
	if _, err := os.Stat(stale); err != nil {
		t.Errorf("a file that another process may be writing has gone: %v", err)
	}
	temp, err := tempdir.New(dir, "kind-")
	if err != nil {
		t.Fatal(err)
	}
	if err := temp.Remove(); err != nil {
		t.Error(err)
	}
}
