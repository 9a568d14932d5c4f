//go:build unix

package model_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestIrregularFiles: opening a FIFO would wait for a writer, and /dev/zero has no end.
func TestIrregularFiles(t *testing.T) {
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		for what, put := range map[string]func(path string) error{
			"a FIFO":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
			"a device": func(path string) error { return os.Symlink("/dev/zero", path) },
		} {
			t.Run(name+" is "+what, func(t *testing.T) {
				f, dir := newFolder(t, modeltest.Llama{}), t.TempDir()
				f.write("tokenizer.json", []byte(`{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"w0": 0}, "unk_token": "w0"}}`))
				delete(f.fs, name)
				if err := os.CopyFS(dir, f.fs); err != nil {
					t.Fatal(err)
				}
				if err := put(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() {
					m, err := model.Open(dir, model.Options{})
					if err == nil {
						_, err = m.NeedTokenizer()
						m.Close()
					}
					done <- err
				}()
				select {
				case err := <-done:
					if err == nil || !strings.Contains(err.Error(), name+": "+what+", want a regular file") {
						t.Errorf("error %v", err)
					}
				case <-time.After(5 * time.Second):
					t.Fatal("waits")
				}
			})
		}
	}
}
