package atomicfile

import (
	"fmt"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// A reader in another goroutine never misses the folder while it is replaced.
func TestReplacedDirIsNeverAbsent(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	if err := buildDir(t, path, false, map[string]string{"x": "start"}).Commit(); err != nil {
		t.Fatal(err)
	}
	stop, result := make(chan struct{}), make(chan error)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				result <- nil
				return
			default:
			}
			// Not os.Stat, which the log of a test that can be cached takes a line for.
			var st unix.Stat_t
			if err := unix.Stat(filepath.Join(path, "x"), &st); err != nil {
				result <- fmt.Errorf("look %d: %w", n, err)
				return
			}
		}
	}()
	for i := range 100 {
		d := buildDir(t, path, true, map[string]string{"x": fmt.Sprint(i)})
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-result; err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(path, "x"), "99")
	wantNames(t, parent, "d")
}

// A disk that refuses in the middle of a write (here: the process's limit on
// file sizes) leaves the old content and no temporary.
func TestWriteFailsInTheMiddle(t *testing.T) {
	const limit = 16 << 20 // the test log of "go test" must stay below it
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	limitFileSize(t, limit)
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n, err := f.Write(make([]byte, 2*limit))
	if n != limit || err == nil {
		t.Fatalf("write of %d bytes under a limit of %d: %d, %v", 2*limit, limit, n, err)
	}
	wantError(t, f.Commit(), "commit "+path)
	wantError(t, WriteFile(filepath.Join(dir, "b"), make([]byte, 2*limit)), "write "+filepath.Join(dir, "b"))
	wantContent(t, path, "old")
	wantNames(t, dir, "a")
}

func limitFileSize(t *testing.T, limit uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ) // so that the write returns an error
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
		signal.Reset(unix.SIGXFSZ)
	})
}
