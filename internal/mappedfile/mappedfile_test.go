package mappedfile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOpen(t *testing.T) {
	dir := t.TempDir()
	for _, content := range []string{"", "weights"} {
		path := filepath.Join(dir, "file")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		data, unmap, err := Open(path)
		if err != nil || string(data) != content {
			t.Fatalf("%q, error %v, want %q", data, err, content)
		}
		if err := unmap(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{dir: dir + ": a folder, want a regular file", os.DevNull: "a device", filepath.Join(dir, "none"): "no such file"} {
		if _, _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
}
