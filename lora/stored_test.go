package lora

import (
	"reflect"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestStored: an adapter of parameters by their names is the one that Export makes, and names
// that are not the kind's are refused.
func TestStored(t *testing.T) {
	m := modeltest.Llama{Layers: 3}.Open(t, "cpu")
	c := model.AdapterConfig{Rows: 2, Rank: 2, Alpha: 8, Modules: []model.Module{model.QProj, model.VProj}, InitToken: 3, Seed: 1}
	a, err := New(m, c)
	if err != nil {
		t.Fatal(err)
	}
	parameters := make(map[string]checkpoints.Matrix)
	for _, p := range a.Parameters() {
		parameters[p.Name] = checkpoints.Matrix{Rows: p.Tensor.Dim0(), Cols: p.Tensor.Width(), Data: p.Tensor.Float32s()}
	}
	got, err := stored(c, parameters, Kind)
	if err != nil || !reflect.DeepEqual(got, a.Export()) {
		t.Fatalf("stored is not what Export makes: %v", err)
	}
	low := a.LowRank(1, model.QProj)
	factors := got.LoRA[checkpoints.LoRAKey{Layer: 1, Module: "q_proj"}]
	if got.Rank != 2 || got.Alpha != 8 || !reflect.DeepEqual(factors.A.Data, low.A.Float32s()) || !reflect.DeepEqual(factors.B.Data, low.B.Float32s()) {
		t.Errorf("rank %d, alpha %g or the factors of layer 1 are not those of the adapter", got.Rank, got.Alpha)
	}
	for _, name := range []string{"soft_tokens", "layers.1.q_proj.lora_C", "layers.x.q_proj.lora_A", "layers.1.lora_A", "layers"} {
		_, err := stored(c, map[string]checkpoints.Matrix{name: {}}, Kind)
		if err == nil || !strings.Contains(err.Error(), "unknown parameter \""+name+"\"") {
			t.Errorf("%s: error %v, want one that names it", name, err)
		}
	}
}
