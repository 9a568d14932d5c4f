package model_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"glimpse/internal/compare"
	"glimpse/internal/simd"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestGGUFShapes: what is known of a file without its weights is what it has with them.
func TestGGUFShapes(t *testing.T) {
	for _, name := range []string{"llama", "phi3", "falcon-40b", "blocks"} {
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

// TestGGUFIsAFolder: a folder with the files and tensors of a GGUF file is the same model. Experts, which a file has in
// one tensor, are views of it.
func TestGGUFIsAFolder(t *testing.T) {
	for _, name := range []string{"granite", "mixtral", "qwen3moe", "glm4moe"} {
		path := filepath.Join("gguf", "testdata", name+".gguf")
		file, err := model.Open(path, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		folder, err := model.Open(modeltest.FolderOfGGUF(t, path), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer folder.Close()
		sameWeights(t, file, folder)
		if got, want := file.WeightBytes(), folder.WeightBytes(); got != want {
			t.Errorf("%s: %d bytes, want %d", name, got, want)
		}
		if err := file.SameVocabulary(folder); err != nil {
			t.Error(err)
		}
		for l, layer := range file.Network.Layers {
			if layer.Experts == nil {
				continue
			}
			first, second := layer.Experts.Each[0].Down.Weight, layer.Experts.Each[1].Down.Weight
			if second.Addr()-first.Addr() != uintptr(first.Bytes()) {
				t.Errorf("%s: layer %d: experts are not where the file has them", name, l)
			}
		}
	}
}

// TestFirstMixtral: a file with a tensor for every expert is the model of one with a tensor for all.
func TestFirstMixtral(t *testing.T) {
	var models []*model.Model
	for _, name := range []string{"mixtral-first", "mixtral"} {
		m, err := model.Open(filepath.Join("gguf", "testdata", name+".gguf"), model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		models = append(models, m)
	}
	sameWeights(t, models[0], models[1])
}

// TestGGUFInBlocks: a file in blocks is the model of the same weights in bf16. Prompts of more than a few rows have its
// bits, steps round their rows to bytes, and the weights take the file's bytes.
func TestGGUFInBlocks(t *testing.T) {
	path := filepath.Join("gguf", "testdata", "blocks.gguf")
	file, err := model.Open(path, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	folder, err := model.Open(modeltest.FolderOfGGUF(t, path), model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer folder.Close()
	sameWeights(t, file, folder)
	if info, err := os.Stat(path); err != nil || file.WeightBytes() > info.Size() || 2*file.WeightBytes() > folder.WeightBytes() {
		t.Errorf("weights of %d bytes, in bf16 %d, of a file of %v (%v)", file.WeightBytes(), folder.WeightBytes(), info, err)
	}
	for l, layer := range file.Network.Layers {
		for _, module := range model.Modules {
			if _, ok := layer.Linear(module).Weight.DType.Format(); !ok {
				t.Errorf("layer %d %s is in %s", l, module, layer.Linear(module).Weight.DType)
			}
		}
	}
	tokens := modeltest.Tokens(file, 1, 60)
	run := func(m *model.Model) (keys [][]float32, step []float32) {
		r, cache := runner.New(m), kvcache.New(m)
		if _, err := r.Prefill(t.Context(), cache, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		for l := range m.Config.Layers {
			keys = append(keys, cache.View(l)[0].K.Float32s())
		}
		if step, err = r.Step(t.Context(), cache, 5, runner.Capture{}, nil); err != nil {
			t.Fatal(err)
		}
		return keys, step
	}
	folder.Network.Embedding = file.Network.Embedding // whose rows are taken as they are
	keys, step := run(file)
	wantKeys, wantStep := run(folder)
	if !reflect.DeepEqual(keys, wantKeys) {
		t.Error("a prompt's keys differ")
	}
	compare.Close(t, "step", step, wantStep, 6e-2, compare.Floor(1))
	if slices.Equal(step, wantStep) && simd.Level() != "portable" {
		t.Error("a step rounds nothing")
	}
}

// sameWeights checks that models have one hash.
func sameWeights(t *testing.T, file, folder *model.Model) {
	t.Helper()
	want, err := folder.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := file.SHA256(t.Context()); err != nil || got != want {
		t.Errorf("weights are %s (%v), want %s", got, err, want)
	}
}
