package modeltest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model/gguf"
)

// FolderOfGGUF is a Hugging Face folder with the files and tensors of a GGUF file, widened.
func FolderOfGGUF(t testing.TB, path string) string {
	t.Helper()
	file, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		raw, err := fs.ReadFile(file.Folder, name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), raw, 0o644)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	weights, err := file.Weights()
	if err != nil {
		t.Fatal(err)
	}
	defer weights.Close()
	var tensors []checkpoints.TensorView
	for _, name := range weights.Names() {
		view, err := weights.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if stored, err := view.Tensor(); err != nil {
			t.Fatal(err)
		} else if wide := kernels.Widened(stored); wide != stored {
			view = checkpoints.BF16Tensor(name, view.Shape, wide.U16())
		}
		tensors = append(tensors, view)
	}
	if err := checkpoints.WriteSafetensorsFile(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	return dir
}
