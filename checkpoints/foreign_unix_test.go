//go:build unix

package checkpoints

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// within fails the test where f takes longer than opening a file does.
func within(t *testing.T, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(5 * time.Second):
		t.Fatal("waits")
		return nil
	}
}

// TestOnlyRegularWeights: opening a FIFO would wait for a writer, and devices have no end.
func TestOnlyRegularWeights(t *testing.T) {
	for _, name := range []string{"model.safetensors", "model.safetensors.index.json", "model-00002-of-00002.safetensors"} {
		for what, put := range map[string]func(path string) error{
			"a FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
		} {
			t.Run(name+" is "+what, func(t *testing.T) {
				dir := t.TempDir()
				writeFiles(t, dir, sharded(t))
				os.Remove(filepath.Join(dir, name))
				if err := put(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				err := within(t, func() error {
					_, err := OpenWeights(dir)
					return err
				})
				if err == nil || !strings.Contains(err.Error(), name+": "+what+", want a regular file") {
					t.Errorf("error %v, want %s named as %s", err, name, what)
				}
			})
		}
	}
}
