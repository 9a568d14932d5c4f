package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// TestProcessorsAreThoseOfTheContainer: threads are counted by GOMAXPROCS, which follows the limits of control groups and what
// a person has set. runtime.NumCPU follows neither.
func TestProcessorsAreThoseOfTheContainer(t *testing.T) {
	root, self := os.DirFS("../.."), "internal/archtest/processors_test.go"
	err := fs.WalkDir(root, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || path == self {
			return err
		}
		source, err := fs.ReadFile(root, path)
		if bytes.Contains(source, []byte("runtime.NumCPU")) {
			t.Errorf("%s calls runtime.NumCPU, want runtime.GOMAXPROCS(0) or parallel.Threads()", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
