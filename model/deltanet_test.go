package model_test

import (
	"cmp"
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// asReleased is a folder of text and images whose experts are stored a layer at a time, gate before up, beside parts that predict
// further tokens.
func (f folder) asReleased(t *testing.T) folder {
	stacked := map[string]*checkpoints.TensorView{}
	var parts []checkpoints.TensorView
	f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		if strings.Contains(v.Name, ".experts.") {
			parts = append(parts, v)
			return nil
		}
		return &v
	}, checkpoints.F32Tensor("mtp.layers.0.mlp.experts.0.up_proj.weight", []int{1}, []float32{1}), checkpoints.F32Tensor("mtp.norm.weight", []int{1}, []float32{1}),
		checkpoints.F32Tensor("model.visual.blocks.0.weight", []int{1}, []float32{1}))
	place := strings.NewReplacer("gate_proj", "0", "up_proj", "1", "down_proj", "2")
	slices.SortFunc(parts, func(a, b checkpoints.TensorView) int {
		return cmp.Compare(place.Replace(a.Name), place.Replace(b.Name))
	})
	var more []checkpoints.TensorView
	for _, v := range parts {
		prefix, rest, _ := strings.Cut(v.Name, ".experts.")
		name, rows := prefix+".experts.gate_up_proj", 2*v.Shape[0]
		if strings.Contains(rest, "down_proj") {
			name, rows = prefix+".experts.down_proj", v.Shape[0]
		}
		if stacked[name] == nil {
			stacked[name] = &checkpoints.TensorView{Name: name, DType: v.DType, Shape: []int{3, rows, v.Shape[1]}}
		}
		stacked[name].Data = append(stacked[name].Data, v.Data...)
	}
	for _, v := range stacked {
		more = append(more, *v)
	}
	return f.tensors(same, more...).renamed(func(name string) string {
		if rest, ok := strings.CutPrefix(name, "model."); ok && !strings.HasPrefix(rest, "visual.") {
			return "model.language_model." + rest
		}
		return name
	})
}

// TestHybridFoldersAsReleased: such a folder is the model of the one that transformers saves, to the bit.
func TestHybridFoldersAsReleased(t *testing.T) {
	plain := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "qwen3.5-moe").Folder), "cpu")
	var text map[string]any
	modeltest.ReadJSON(t, modeltest.GoldenNamed(t, "qwen3.5-moe").Folder+"/config.json", &text)
	text["model_type"] = "qwen3_5_moe_text"
	rope := text["rope_parameters"].(map[string]any)
	rope["mrope_section"], rope["mrope_interleaved"] = []int{1, 1, 0}, true
	released, err := goldenFolder(t, "qwen3.5-moe").asReleased(t).config(map[string]any{
		"architectures": []string{"Qwen3_5MoeForConditionalGeneration"}, "model_type": "qwen3_5_moe", "text_config": text,
	}).open()
	if err != nil {
		t.Fatal(err)
	}
	if released.Config.Architecture != "Qwen3_5MoeForCausalLM" {
		t.Errorf("is a %s", released.Config.Architecture)
	}
	if notes := strings.Join(released.Notes, "\n"); !strings.Contains(notes, `2 tensors are not used: "mtp.layers`) || !strings.Contains(notes, "1 tensors model.visual.* are not used") {
		t.Errorf("notes %q", notes)
	}
	logits := func(m *model.Model) []float32 {
		y, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), modeltest.Tokens(m, 3, 30), runner.PrefillOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return y
	}
	if !slices.Equal(logits(released), logits(plain)) {
		t.Error("other logits")
	}
}

// TestWhichLayersAttend: by their names, or one of so many.
func TestWhichLayersAttend(t *testing.T) {
	for name, change := range map[string]map[string]any{
		"interval": {"layer_types": nil, "full_attention_interval": 2}, "names": {},
	} {
		m, err := goldenFolder(t, "qwen3.5").config(change).open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := &m.Config
		if !c.Recurrent(0) || c.Recurrent(1) || c.FirstAttention() != 1 || c.CacheBytesPerToken(kernels.F32) != int64(8*c.KVHeads*c.HeadDim) || c.Scored(0) || c.ScoredLayers() != 2 {
			t.Errorf("%s: layers %v, first %d, %d bytes a token, %d scored", name, c.Mixers, c.FirstAttention(), c.CacheBytesPerToken(kernels.F32), c.ScoredLayers())
		}
	}
}

// TestRecurrentRuns: rows of several sequences that go through a recurrent layer together have the bits that they have by themselves, one after
// the other or at once, from the state that they begin with; rows after them give zeros, and a state that is begun from another
// leaves that as it is.
func TestRecurrentRuns(t *testing.T) {
	for name, layer := range map[string]int{"qwen3-next": 1, "lfm2": 0} {
		t.Run(name, func(t *testing.T) {
			m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, name).Folder), "reference64")
			recurrentRuns(t, m, m.Network.Layers[layer].Recurrent)
		})
	}
}

func recurrentRuns(t *testing.T, m *model.Model, d model.Recurrent) {
	b := m.Backend
	numbers := func(s model.State) (out []float64) {
		for _, x := range s {
			out = append(out, x.Float64s()...)
		}
		return out
	}
	arena := kernels.NewArena(b)
	rows := kernels.FromF64(modeltest.RandomTensor(kernels.F32, 3, 12, m.Config.Hidden).Float64s(), 12, m.Config.Hidden)
	state := func() model.State { return model.NewState(b, b, d, true) }
	run := func(from, to int, runs ...model.Run) []float64 {
		y := b.Alloc(kernels.F64, to-from, m.Config.Hidden)
		d.Forward(y, model.MixerPass{On: b, Arena: arena, H: rows.Rows(from, to), Runs: runs}, 1)
		return y.Float64s()
	}
	first, second := state(), state()
	var want []float64
	for i := range 5 {
		want = append(want, run(i, i+1, model.Run{Rows: 1, State: first})...)
	}
	mark := numbers(first)
	other := state()
	other.Set(b, first)
	want = append(want, run(5, 8, model.Run{Rows: 3, State: other})...)
	want = append(want, run(8, 11, model.Run{Rows: 3, State: second})...)
	want = append(want, make([]float64, m.Config.Hidden)...)

	a, copied, c := state(), model.NewState(b, b, d, false), state()
	got := run(0, 12, model.Run{Rows: 5, State: a}, model.Run{Rows: 3, State: copied, From: a}, model.Run{Rows: 3, State: c})
	if !slices.Equal(got, want) {
		t.Error("other outputs than by themselves")
	}
	for name, s := range map[string][2]model.State{"first": {a, first}, "copied": {copied, other}, "third": {c, second}} {
		if !slices.Equal(numbers(s[0]), numbers(s[1])) {
			t.Errorf("the %s run leaves another state", name)
		}
	}
	if !slices.Equal(numbers(a), mark) || slices.Equal(numbers(copied), mark) {
		t.Error("a copied state moves what it was copied from, or not itself")
	}
	if n := a.Bytes(); n != model.StateBytes(d, kernels.F64) {
		t.Errorf("a state takes %d bytes, want %d", n, model.StateBytes(d, kernels.F64))
	}
}
