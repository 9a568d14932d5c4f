package hub

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestNotesAreShown: names of folders reach no terminal as they are.
func TestNotesAreShown(t *testing.T) {
	folder, err := modeltest.Llama{}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "mo\x1b[2Jdel")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	for name, file := range folder {
		if err := os.WriteFile(filepath.Join(dir, name), file.Data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	w, err := checkpoints.OpenWeights(dir)
	if err != nil {
		t.Fatal(err)
	}
	tensors := []checkpoints.TensorView{checkpoints.F32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", []int{2}, []float32{1, 1})}
	for _, name := range w.Names() {
		view, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, view.Len())
		if err := view.ReadF32(values); err != nil {
			t.Fatal(err)
		}
		tensors = append(tensors, checkpoints.F32Tensor(name, view.Shape, values))
	}
	w.Close()
	if err := checkpoints.WriteSafetensorsFile(filepath.Join(dir, "model.safetensors"), tensors, nil); err != nil {
		t.Fatal(err)
	}
	var log said
	m, err := Open(t.Context(), dir, objectstore.Settings{}, &log, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if s := log.String(); !strings.Contains(s, `model mo\x1b[2Jdel: weights: 1 tensors are not used`) || strings.ContainsAny(s, "\x1b\x07") {
		t.Errorf("said %q", s)
	}
}
