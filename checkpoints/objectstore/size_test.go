package objectstore

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestCacheBoundsSmallFiles: what the readers of a model would refuse is not fetched.
func TestCacheBoundsSmallFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.json")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<20+1); err != nil {
		t.Skip(err)
	}
	_, err := Cache{Dir: t.TempDir()}.Folder(t.Context(), Local(dir), ".", []string{"config.json"})
	if err == nil || !strings.Contains(err.Error(), "config.json: 1048577 bytes, want at most 1048576") {
		t.Errorf("error %v", err)
	}
}
