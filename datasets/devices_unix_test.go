//go:build unix

package datasets

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestNoRegularFiles: data on devices, FIFOs and holes is refused at once, in every format, and
// what a shell's process substitution names is read.
func TestNoRegularFiles(t *testing.T) {
	dir := t.TempDir()
	for _, ext := range []string{".jsonl", ".json", ".parquet", ".txt", ".jsonl.gz", ".jsonl.zst"} {
		fifo, zero, hole := filepath.Join(dir, "fifo"+ext), filepath.Join(dir, "zero"+ext), filepath.Join(dir, "hole"+ext)
		if err := errors.Join(syscall.Mkfifo(fifo, 0o600), os.Symlink("/dev/zero", zero), os.WriteFile(hole, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(hole, 3<<30); err != nil {
			t.Skipf("a file with a hole: %v", err)
		}
		for path, want := range map[string]string{fifo: "a FIFO, want a regular file", zero: "a device, want a regular file", hole: ""} {
			done := make(chan error, 2)
			go func() {
				r, err := OpenRows(path, FormatAuto)
				if err == nil {
					_, err = r.Next()
					r.Close()
				}
				done <- err
			}()
			go func() {
				r, err := OpenPairs(path)
				if err == nil {
					r.Close()
				}
				done <- err
			}()
			for range 2 {
				select {
				case err := <-done:
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("%s: error %v, want %q", filepath.Base(path), err, want)
					}
				case <-time.After(20 * time.Second):
					t.Fatalf("%s: no answer", filepath.Base(path))
				}
			}
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.WriteString(w, `{"prompt": "a"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	rows, err := OpenRows("/dev/fd/"+fmt.Sprint(r.Fd()), FormatJSONL)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if _, err := rows.Next(); err != nil {
		t.Error(err)
	}
}
