package lora

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// trained is an adapter whose every number is random, as after training.
func trained(t *testing.T, m *model.Model, modules []model.Module) *Lookahead {
	t.Helper()
	a, err := New(m, model.AdapterConfig{Rows: 5, Rank: 3, Alpha: 6, Modules: modules, InitToken: -1, InitNoise: 1, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(6, 6))
	for _, p := range a.Parameters() {
		values := make([]float64, p.Tensor.Len())
		for i := range values {
			values[i] = 0.3 * rng.NormFloat64()
		}
		kernels.Convert(p.Tensor, kernels.FromF64(values, p.Tensor.Shape...))
	}
	return a
}

// probeScores runs the adapter as the eviction runtime does.
func probeScores(t *testing.T, m *model.Model, a model.QueryRows, prompt []int32) [][]float32 {
	t.Helper()
	var out [][]float32
	r, cache := runner.New(m), kvcache.New(m)
	_, err := r.Prefill(context.Background(), cache, prompt, runner.PrefillOptions{
		Capture: runner.Capture{Probes: []model.QueryRows{a}},
		Observe: func(o *runner.Observation) error { out = append(out, o.Probes[0].Float32s()); return nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestExportAndLoad: an adapter that went through its folder gives the same
// scores to the last bit.
func TestExportAndLoad(t *testing.T) {
	m := modeltest.Llama{Layers: 3}.Open(t, "cpu")
	hash, err := m.SHA256(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for name, modules := range map[string][]model.Module{"all": model.Modules, "qv": {model.QProj, model.VProj}, "none": nil} {
		t.Run(name, func(t *testing.T) {
			a := trained(t, m, modules)
			stored := a.Export()
			stored.Base = checkpoints.BaseModel{Name: m.Name, SHA256: hash}
			stored.Loss, stored.PoolingKernel = "kl", 7
			if len(stored.LoRA) > 0 {
				stored.InvocationTokens = []int{1}
			}
			dir := filepath.Join(t.TempDir(), "adapter")
			if err := checkpoints.WriteAdapter(dir, stored, false); err != nil {
				t.Fatal(err)
			}
			back, err := checkpoints.ReadAdapter(dir)
			if err != nil {
				t.Fatal(err)
			}
			b, err := m.LoadAdapter(t.Context(), back)
			if err != nil {
				t.Fatal(err)
			}
			prompt := modeltest.Tokens(m, 2, 30)
			want, got := probeScores(t, m, a, prompt), probeScores(t, m, b.(model.RowsAdapter), prompt)
			for l := range want {
				if !slices.Equal(got[l], want[l]) {
					t.Fatalf("layer %d: scores differ after export and load", l)
				}
			}
			back.Base.SHA256 = strings.Repeat("0", 64)
			if _, err := m.LoadAdapter(t.Context(), back); !errors.Is(err, checkpoints.ErrWrongBase) {
				t.Fatalf("load onto another base: %v, want ErrWrongBase", err)
			}
			other := modeltest.Llama{Layers: 3, Hidden: 24, Seed: 5}.Open(t, "cpu")
			if _, err := Load(other, back); err == nil || !strings.Contains(err.Error(), "shape [5 16], want [5 24]") {
				t.Fatalf("load into other shapes: %v", err)
			}
			if len(modules) == len(model.Modules) {
				shallow := modeltest.Llama{Layers: 2}.Open(t, "cpu")
				if _, err := Load(shallow, back); err == nil {
					t.Fatal("load of a three-layer adapter into a two-layer model: no error")
				}
			}
		})
	}
}

// TestLastLayerIsLeftOut: in the last layer only queries and keys reach a score.
func TestLastLayerIsLeftOut(t *testing.T) {
	m := modeltest.Llama{Layers: 2}.Open(t, "reference")
	a := trained(t, m, model.Modules)
	for _, module := range model.Modules {
		if a.LowRank(0, module) == nil {
			t.Errorf("layer 0 has no %s", module)
		}
		want := module == model.QProj || module == model.KProj
		if got := a.LowRank(1, module) != nil; got != want {
			t.Errorf("last layer %s: LoRA %v, want %v", module, got, want)
		}
	}
}

// TestNewStartsFromTheFrozenModel: with B = 0 the rows' scores are those of plain
// embeddings, and the prompt's own keys and values do not see the adapter at all.
func TestNewStartsFromTheFrozenModel(t *testing.T) {
	m := modeltest.Llama{}.Open(t, "cpu")
	a, err := New(m, model.AdapterConfig{Rows: 3, Rank: 2, Alpha: 4, Modules: model.Modules, InitToken: 7})
	if err != nil {
		t.Fatal(err)
	}
	prompt := modeltest.Tokens(m, 3, 12)
	want, got := probeScores(t, m, model.TokenRows{7, 7, 7}, prompt), probeScores(t, m, a, prompt)
	for l := range want {
		compare.Close(t, "scores", got[l], want[l], 1e-6)
	}
	plain, probed := kvcache.New(m), kvcache.New(m)
	r := runner.New(m)
	if _, err := r.Prefill(context.Background(), plain, prompt, runner.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Prefill(context.Background(), probed, prompt, runner.PrefillOptions{
		Capture: runner.Capture{Probes: []model.QueryRows{trained(t, m, model.Modules)}}, Observe: func(*runner.Observation) error { return nil },
	}); err != nil {
		t.Fatal(err)
	}
	for l := range m.Config.Layers {
		for h := range m.Config.KVHeads {
			p, q := plain.View(l)[h], probed.View(l)[h]
			if !slices.Equal(p.K.F32(), q.K.F32()) || !slices.Equal(p.V.F32(), q.V.F32()) {
				t.Fatalf("layer %d head %d: the prompt's keys or values differ with an adapter", l, h)
			}
		}
	}
}

// TestExpertsByOption: factors of experts are theirs one by one in a folder, under the names that PEFT gives linear layers of
// experts, and come back to the bit; a prompt's keys and values do not see them, and they change scores. A model without experts
// has none, and an adapter that lacks an expert's is refused.
func TestExpertsByOption(t *testing.T) {
	m, err := model.Open(modeltest.GoldenNamed(t, "qwen3-moe").Folder, model.Options{Device: "cpu"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	modules, err := model.ParseModules("qv,experts")
	if err != nil {
		t.Fatal(err)
	}
	a := trained(t, m, modules)
	stored := a.Export()
	stored.Base = checkpoints.BaseModel{Name: m.Name, SHA256: strings.Repeat("0", 64)}
	stored.Loss, stored.PoolingKernel, stored.InvocationTokens = "kl", 7, []int{1}
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := checkpoints.WriteAdapter(dir, stored, false); err != nil {
		t.Fatal(err)
	}
	file, err := checkpoints.OpenSafetensors(filepath.Join(dir, "adapter_model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	e := m.Network.Layers[0].Experts
	numbers := int64(5 * m.Config.Hidden)
	for _, name := range file.Names() {
		view, err := file.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		numbers += int64(view.Len())
	}
	if n := parameterCount(m, model.AdapterConfig{Rows: 5, Rank: 3, Modules: modules}); n != numbers {
		t.Errorf("counted %d numbers, stored are %d", n, numbers)
	}
	view, err := file.Tensor("base_model.model.model.layers.0.mlp.experts.2.down_proj.lora_B.weight")
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, view.Len())
	if err := view.ReadF32(got); err != nil {
		t.Fatal(err)
	}
	if want := a.LowRank(0, model.ExpertDown).B.Rows(2*m.Config.Hidden, 3*m.Config.Hidden).Float32s(); !slices.Equal(got, want) || !slices.Equal(view.Shape, []int{m.Config.Hidden, 3}) {
		t.Error("an expert's factors are not those of its rows")
	}
	back, err := checkpoints.ReadAdapter(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := Load(m, back)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range b.Parameters() {
		if !slices.Equal(p.Tensor.Float32s(), a.Parameters()[i].Tensor.Float32s()) || p.Name != a.Parameters()[i].Name {
			t.Errorf("%s differs after export and load", p.Name)
		}
	}
	prompt := modeltest.Tokens(m, 2, 30)
	with, without := probeScores(t, m, a, prompt), probeScores(t, m, trained(t, m, modules[:2]), prompt)
	if last := len(with) - 1; slices.Equal(with[last], without[last]) {
		t.Error("factors of experts change no score")
	}
	plain, probed := kvcache.New(m), kvcache.New(m)
	r := runner.New(m)
	for _, run := range []struct {
		cache  *kvcache.Cache
		probes []model.QueryRows
	}{{plain, nil}, {probed, []model.QueryRows{a}}} {
		if _, err := r.Prefill(t.Context(), run.cache, prompt, runner.PrefillOptions{Capture: runner.Capture{Probes: run.probes}, Observe: func(*runner.Observation) error { return nil }}); err != nil {
			t.Fatal(err)
		}
	}
	err = r.Probe(t.Context(), plain, a, false, func(o *runner.Observation) error { // alone, without the prompt's rows in the experts' products
		compare.Close(t, fmt.Sprintf("layer %d", o.Layer), with[o.Layer], o.Probes[0].Float32s(), 1e-5, compare.Floor(1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for l := range m.Config.Layers {
		for h, p := range plain.View(l) {
			if q := probed.View(l)[h]; !slices.Equal(p.K.F32(), q.K.F32()) || !slices.Equal(p.V.F32(), q.V.F32()) {
				t.Fatalf("layer %d head %d: the prompt's keys or values differ with an adapter", l, h)
			}
		}
	}
	delete(back.LoRA, checkpoints.LoRAKey{Layer: 0, Module: "experts.1.up_proj"})
	if _, err := Load(m, back); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("layer 0 experts.1.up_proj, want those of all %d experts", len(e.Each))) {
		t.Errorf("without an expert's factors: %v", err)
	}
	if _, err := New(modeltest.Llama{}.Open(t, "cpu"), model.AdapterConfig{Rows: 3, Rank: 2, Alpha: 4, Modules: modules}); err == nil || !strings.Contains(err.Error(), "has none") {
		t.Errorf("experts of a dense model: %v", err)
	}
}
