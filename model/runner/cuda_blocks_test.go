//go:build gpu && linux && (amd64 || arm64)

package runner_test

import (
	"path/filepath"
	"reflect"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestCUDAModelInBlocks: a file in blocks stays in blocks on a device, in the memory that is
// forecast. Prompts have the bits of the same weights in bf16; steps are as close to them as these
// weights are rounded, and have the same bits recorded and not.
func TestCUDAModelInBlocks(t *testing.T) {
	modeltest.NeedCUDA(t)
	path := filepath.Join("..", "gguf", "testdata", "blocks.gguf")
	open := func(path string) (m *model.Model, placed int64) {
		m, err := model.Open(path, model.Options{Device: "cuda"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		counted, _ := m.Counted()
		if f := m.NewForecast(counted, 1000, nil); f.Parts[0].Bytes < m.WeightBytes() || f.Parts[0].Bytes > m.WeightBytes()*11/10 {
			t.Errorf("%s: %d bytes of weights are forecast, want %d and little more", path, f.Parts[0].Bytes, m.WeightBytes())
		}
		for _, layer := range m.Network.Layers {
			for _, module := range model.Modules {
				placed += int64(layer.Linear(module).Weight.Bytes())
			}
		}
		return m, placed
	}
	file, fileBytes := open(path)
	folder, folderBytes := open(modeltest.FolderOfGGUF(t, path))
	if 2*fileBytes > folderBytes {
		t.Errorf("linear layers take %d bytes, in bf16 %d", fileBytes, folderBytes)
	}
	for name, want := range map[string]kernels.DType{"auto": kernels.BF16, "float32": kernels.F32, "q8_0": kernels.Invalid} {
		if err := file.SetCacheDType(name); (err == nil) != (want != kernels.Invalid) || err == nil && file.CacheDType() != want {
			t.Errorf("caches of %s are in %s (%v)", name, file.CacheDType(), err)
		}
	}
	if err := file.SetCacheDType("float32"); err != nil {
		t.Fatal(err)
	}
	folder.Network.Embedding = file.Network.Embedding // whose rows are taken as they are
	tokens := modeltest.Tokens(file, 1, 60)
	run := func(m *model.Model) (keys [][]float32, steps [][]float32, r *runner.Runner) {
		r = runner.New(m)
		cache := kvcache.New(m)
		if _, err := r.Prefill(background, cache, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		for l := range m.Config.Layers {
			keys = append(keys, cache.View(l)[0].K.Float32s())
		}
		for _, id := range []int32{5, 7, 2} { // the first one is not recorded
			logits, err := r.Step(background, cache, id, runner.Capture{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			steps = append(steps, logits)
		}
		return keys, steps, r
	}
	keys, steps, r := run(file)
	wantKeys, wantSteps, want := run(folder)
	if !reflect.DeepEqual(keys, wantKeys) {
		t.Error("a prompt's keys differ")
	}
	// Every projection has a format of its own: of those that are one launch in one type, five are.
	if got, want := r.RecordedOperations(), want.RecordedOperations()+4*file.Config.Layers; got == 0 || got > want {
		t.Errorf("a step takes %d launches, want %d", got, want)
	}
	for i := range steps {
		compare.Close(t, "step", steps[i], wantSteps[i], 2e-2, compare.Floor(1))
	}
	t.Setenv("GLIMPSE_CUDA_GRAPHS", "0")
	if _, plain, _ := run(file); !reflect.DeepEqual(plain, steps) {
		t.Error("recorded steps have other bits")
	}
}
