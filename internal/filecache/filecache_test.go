package filecache

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func write(t *testing.T, f *Folder, name, text string) error {
	t.Helper()
	return f.Write(f.Path(name), int64(len(text)), func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	})
}

func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// TestFolder: files that were of use longest ago make room, also those of a program before; what has another name is nobody's, and what cannot be written
// leaves nothing.
func TestFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "files")
	f, err := Open(dir, ".x", 100)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "other"), make([]byte, 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"a", "b"} {
		if err := write(t, f, name, strings.Repeat(name, 40)); err != nil {
			t.Fatal(err)
		}
		at := time.Now().Add(time.Duration(i-10) * time.Minute)
		if err := os.Chtimes(f.Path(name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	f.Use(f.Path("a"))
	if err := write(t, f, "c", strings.Repeat("c", 40)); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"a.x", "c.x", "other"}) {
		t.Errorf("%v are there, want a, which was of use, and c", got)
	}
	if err := write(t, f, "large", strings.Repeat("l", 101)); err == nil || !strings.Contains(err.Error(), "want at most 100") {
		t.Errorf("a file that is too large: error %v", err)
	}
	broken := errors.New("broken")
	if err := f.Write(f.Path("d"), 10, func(w io.Writer) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	f.Remove(f.Path("c"))
	if got := names(t, dir); !slices.Equal(got, []string{"a.x", "other"}) {
		t.Errorf("%v are there, want a", got)
	}
	if _, err := Open(dir, ".x", 30); err != nil {
		t.Fatal(err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"other"}) {
		t.Errorf("%v are there, want nothing within a lower bound", got)
	}
}
