//go:build unix

package atomicfile

import (
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What is not a regular file is written to and stays what it is.
func TestSpecialFilesStay(t *testing.T) {
	if err := WriteFile("/dev/null", []byte("x")); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat("/dev/null"); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		t.Fatalf("/dev/null is now %v (%v), want a character device", info.Mode(), err)
	}
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o666); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	wantError(t, WriteFile(fifo, []byte("x")), "nobody reads this FIFO")
	if took := time.Since(begin); took > 5*time.Second {
		t.Fatalf("a FIFO without a reader took %v", took)
	}
	reader, err := os.OpenFile(fifo, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, text := range []string{"through", "again"} {
		if err := WriteFile(fifo, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(text))
		if _, err := io.ReadFull(reader, got); err != nil || string(got) != text {
			t.Fatalf("the FIFO gave %q (%v), want %q", got, err, text)
		}
	}
	f, err := Create(fifo)
	if err != nil {
		t.Fatal(err)
	}
	f.Abort()
	wantNames(t, dir, "fifo")
	if info, err := os.Lstat(fifo); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		t.Fatalf("the FIFO is now %v (%v)", info.Mode(), err)
	}
}

// An open file of a process stays that file.
func TestOpenFileOfProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	f.WriteString("before ")
	fd := filepath.Join("/dev/fd", strconv.Itoa(int(f.Fd())))
	if _, err := os.Stat(fd); err != nil {
		t.Skip("no /dev/fd here")
	}
	if err := WriteFile(fd, []byte("within ")); err != nil {
		t.Fatal(err)
	}
	f.Seek(0, io.SeekEnd)
	f.WriteString("after")
	wantContent(t, path, "before within after")
}

// A symbolic link stays one: the file that it leads to is replaced.
func TestSymbolicLinkStays(t *testing.T) {
	dir := t.TempDir()
	file, link := filepath.Join(dir, "sub", "file"), filepath.Join(dir, "link")
	if err := os.Mkdir(filepath.Dir(file), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join("sub", "file"), link); err != nil {
		t.Fatal(err)
	}
	wantError(t, WriteFile(link, []byte("x")), "symbolic link leads nowhere")
	if err := WriteFile(file, []byte("old")); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(link, []byte("new")); err != nil {
		t.Fatal(err)
	}
	wantContent(t, file, "new")
	if to, err := os.Readlink(link); err != nil || to != filepath.Join("sub", "file") {
		t.Fatalf("the link is %q (%v)", to, err)
	}
	wantNames(t, dir, "link", "sub")
}

// sweepDead leaves the temporaries of those that live.
func TestSweepDead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	alive, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	folder, err := CreateDir(path, false)
	if err != nil {
		t.Fatal(err)
	}
	dead, deadDir := tempName(path, newMark), tempName(path, newMark)
	other := tempName(filepath.Join(dir, "output"), newMark)
	for _, name := range []string{dead, other} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(deadDir, "x"), 0o777); err != nil {
		t.Fatal(err)
	}
	sweepDead(path)
	left := names(t, dir)
	if len(left) != 3 {
		t.Fatalf("left are %q, want those of the two that live and one of another file", left)
	}
	alive.Abort()
	folder.Abort()
	wantNames(t, dir, filepath.Base(other))
}

// TestCreateSweeps: whoever writes a file or a folder anew removes what killed writers of
// it have left.
func TestCreateSweeps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	for name, create := range map[string]func() (abort func(), err error){
		"file":   func() (func(), error) { f, err := Create(path); return f.Abort, err },
		"folder": func() (func(), error) { d, err := CreateDir(path, false); return d.Abort, err },
	} {
		if err := os.WriteFile(tempName(path, newMark), nil, 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(tempName(path, newMark), 0o777); err != nil {
			t.Fatal(err)
		}
		abort, err := create()
		if err != nil {
			t.Fatal(err)
		}
		if left := names(t, dir); len(left) != 1 {
			t.Errorf("%s: left are %q, want the one that is being written", name, left)
		}
		abort()
	}
}
