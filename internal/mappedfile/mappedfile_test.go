package mappedfile

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"", "weights"} {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil || string(file.Data) != content {
			t.Fatalf("%v, error %v, want %q", file, err, content)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{dir: dir + ": a folder, want a regular file", os.DevNull: "a device", filepath.Join(dir, "none"): "no such file"} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
}

// TestVersion: the version of a file changes with what it holds, also where its time and size are set back, and a file that has just been
// written has none.
func TestVersion(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("other systems have no versions")
	}
	path := filepath.Join(t.TempDir(), "file")
	past := time.Now().Add(-time.Hour)
	write := func(content string, when time.Time) string {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, []byte(content), 0o600), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		return file.Version
	}
	first := write("one", past)
	time.Sleep(20 * time.Millisecond) // times of files have ticks
	if second := write("two", past); first == "" || second == "" || first == second {
		t.Errorf("versions %q and %q, want two", first, second)
	}
	if v := write("three", time.Now()); v != "" {
		t.Errorf("a file of this moment has version %q", v)
	}
}
