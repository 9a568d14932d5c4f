package model_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestGGUFShapes: what is known of a file without its weights is what it has with them.
func TestGGUFShapes(t *testing.T) {
	for _, name := range []string{"llama", "phi3", "falcon-40b"} {
		path := filepath.Join("gguf", "testdata", name+".gguf")
		m, err := model.Open(path, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		shapes, err := model.OpenShapes(path, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		if got, want := shapes.WeightBytes(), m.WeightBytes(); got != want || shapes.Name != name || m.Name != name || !reflect.DeepEqual(shapes.Config, m.Config) {
			t.Errorf("%s: %d bytes and %+v, opened as %s %d bytes and %+v", shapes.Name, got, shapes.Config, m.Name, want, m.Config)
		}
	}
}

// TestGGUFIsAFolder: a folder with the files and tensors of a GGUF file is the same model.
func TestGGUFIsAFolder(t *testing.T) {
	file, err := model.Open(filepath.Join("gguf", "testdata", "granite.gguf"), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	folder, err := model.Open(modeltest.FolderOfGGUF(t, filepath.Join("gguf", "testdata", "granite.gguf")), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	want, err := folder.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.SHA256(t.Context()); err != nil || got != want {
		t.Errorf("weights are %s (%v), want %s", got, err, want)
	}
	if got, want := file.WeightBytes(), folder.WeightBytes(); got != want {
		t.Errorf("%d bytes, want %d", got, want)
	}
	if err := file.SameVocabulary(folder); err != nil {
		t.Error(err)
	}
}
