//go:build unix

package regularfile

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
)

// TestOpen: what is no regular file is refused by its kind and without waiting.
func TestOpen(t *testing.T) {
	dir, err := os.MkdirTemp("", "r") // short: the address of a socket is
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("file"), []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	if l, err := net.Listen("unix", at("socket")); err != nil {
		t.Fatal(err)
	} else {
		defer l.Close()
	}
	for name, to := range map[string]string{"link": "file", "zero": "/dev/zero", "null": os.DevNull, "to-fifo": "fifo", "lost": "nowhere"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("hole"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(at("hole"), 3<<30); err != nil {
		t.Skipf("a file with a hole: %v", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := w.WriteString("piped"); err != nil {
		t.Fatal(err)
	}
	w.Close()
	for path, want := range map[string]string{
		at("file"): "text", at("link"): "text", at("null"): "", fmt.Sprintf("/dev/fd/%d", r.Fd()): "piped",
		at("."):       "error: a folder, want a regular file",
		at("fifo"):    "error: " + at("fifo") + ": a FIFO, want",
		at("to-fifo"): "error: a FIFO",
		at("socket"):  "error: a socket",
		at("zero"):    "error: a device",
		"/dev/zero":   "error: /dev/zero: a device",
		at("lost"):    "error: no such file",
		at("hole"):    "error: 3221225472 bytes, want at most 64",
	} {
		got, err := Read(path, 64)
		if part, refused := strings.CutPrefix(want, "error: "); refused {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %v, want %q", path, err, part)
			}
		} else if err != nil || string(got) != want {
			t.Errorf("%s: %q, error %v, want %q", path, got, err, want)
		}
	}
	if f, err := Open(at("hole")); err != nil { // which is streamed
		t.Error(err)
	} else {
		f.Close()
	}
}

// growing is a file that is longer than it says, as those of /proc are.
type growing struct{ fs.File }

func (g growing) Read(p []byte) (int, error) { return len(p), nil }

type growingFS struct{ fstest.MapFS }

func (g growingFS) Open(name string) (fs.File, error) {
	f, err := g.MapFS.Open(name)
	return growing{f}, err
}

func TestReadIsBounded(t *testing.T) {
	_, err := ReadFS(growingFS{fstest.MapFS{"f": {}}}, "f", 64)
	if err == nil || !strings.Contains(err.Error(), "f: more than 64 bytes") {
		t.Errorf("error %v", err)
	}
}
