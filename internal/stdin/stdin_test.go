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
