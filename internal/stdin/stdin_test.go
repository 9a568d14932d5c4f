package stdin

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	for content, want := range map[string]string{
		`{"prompt":"a"}`: "stdin.jsonl", "\n [1]": "stdin.json", "PAR1…": "stdin.parquet", "\x1f\x8b…": "stdin.jsonl.gz",
		"\x28\xb5\x2f\xfd…": "stdin.jsonl.zst", "hello": "stdin.txt", "": "stdin.txt",
	} {
		var f File
		path, err := f.Path(t.Context(), strings.NewReader(content))
		if err != nil || filepath.Base(path) != want {
			t.Fatalf("%q: %s, %v; want %s", content, path, err, want)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != content {
			t.Errorf("%q: %q, %v", content, got, err)
		}
		if again, err := f.Path(t.Context(), nil); again != path || err != nil {
			t.Errorf("the second time: %s, %v", again, err)
		}
		f.Remove()
		if _, err := os.Stat(filepath.Dir(path)); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", filepath.Dir(path), err)
		}
	}
}

// TestPathEnds: a terminal that nothing comes from does not keep a command from ending.
func TestPathEnds(t *testing.T) {
	silent, w := io.Pipe()
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var f File
	defer f.Remove()
	if path, err := f.Path(ctx, silent); err == nil {
		t.Errorf("%s, want an error", path)
	}
}

// endless is a device without an end.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	clear(p)
	return len(p), nil
}

// TestNoText: a stream of zeros is refused at its beginning, and leaves no file.
func TestNoText(t *testing.T) {
	in := &endless{}
	var f File
	defer f.Remove()
	if path, err := f.Path(t.Context(), in); err == nil || !strings.Contains(err.Error(), "standard input: got a zero byte at 0") {
		t.Errorf("%s, error %v", path, err)
	}
	if in.read > 1<<16 {
		t.Errorf("%d bytes read", in.read)
	}
	if left, err := os.ReadDir(f.dir.Path); err != nil || len(left) > 0 {
		t.Errorf("left %v, error %v", left, err)
	}
}
