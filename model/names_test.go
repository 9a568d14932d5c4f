package model_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/model/modeltest"
)

// renamed rewrites the names of the weights.
func (f folder) renamed(name func(string) string, more ...checkpoints.TensorView) folder {
	return f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		v.Name = name(v.Name)
		return &v
	}, more...)
}

// TestOpenTakesWrappedNames: what torch.compile, FSDP, DataParallel, PEFT and models of images put
// before or between the names changes no weight, and a note says it.
func TestOpenTakesWrappedNames(t *testing.T) {
	plain, err := newFolder(t, modeltest.Llama{}).open()
	if err != nil {
		t.Fatal(err)
	}
	prefix := func(p string) func(string) string { return func(s string) string { return p + s } }
	base := func(p string) func(string) string {
		return func(s string) string {
			if rest, ok := strings.CutPrefix(s, "model."); ok {
				return p + rest
			}
			return s
		}
	}
	tower := checkpoints.F32Tensor("vision_tower.model.layers.0.mlp.up_proj.weight", []int{1}, []float32{1})
	later := checkpoints.F32Tensor("model.visual.blocks.0.weight", []int{1}, []float32{1})
	for name, c := range map[string]struct {
		name func(string) string
		more []checkpoints.TensorView
		note string
	}{
		"torch.compile":        {prefix("_orig_mod."), nil, `as "_orig_mod.lm_head.weight" for "lm_head.weight"`},
		"DataParallel":         {prefix("module."), nil, `"module.`},
		"DDP of compiled":      {prefix("module._orig_mod."), nil, `"module._orig_mod.`},
		"PEFT":                 {prefix("base_model.model."), nil, `"base_model.model.`},
		"compiled layers":      {func(s string) string { return strings.Replace(s, "layers.1.", "layers.1._orig_mod.", 1) }, nil, "layers.1._orig_mod."},
		"AutoModel":            {base(""), nil, `as "embed_tokens.weight" for "model.embed_tokens.weight"`},
		"LLaVA":                {prefix("language_model."), []checkpoints.TensorView{tower}, "1 tensors vision_tower.* are not used"},
		"later transformers":   {base("model.language_model."), []checkpoints.TensorView{later}, "1 tensors model.visual.* are not used"},
		"as save_pretrained's": {prefix(""), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := newFolder(t, modeltest.Llama{}).renamed(c.name, c.more...).open()
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			for l := range plain.Network.Layers {
				got, want := m.Network.Layers[l].Linear("down_proj").Weight, plain.Network.Layers[l].Linear("down_proj").Weight
				if !slices.Equal(got.F32(), want.F32()) {
					t.Errorf("layer %d has other weights", l)
				}
			}
		})
	}
}

// TestOpenRefusesSurplusByModule: many tensors of a module that the family does not have are one
// line; two names of one tensor are refused.
func TestOpenRefusesSurplusByModule(t *testing.T) {
	one := func(name string) checkpoints.TensorView { return checkpoints.F32Tensor(name, []int{1}, []float32{1}) }
	err := newFolder(t, modeltest.Llama{}).tensors(same, one("mtp.fc.weight"), one("mtp.norm.weight"), one("model.layers.0.self_attn.gate.a"), one("model.layers.0.self_attn.gate.b")).
		refused(t, `2 tensors "mtp.*": surplus, the architecture LlamaForCausalLM has no such module`, `2 tensors "model.layers.0.self_attn.gate.*": surplus`)
	if n := strings.Count(err.Error(), "surplus"); n != 2 {
		t.Errorf("%d lines of surplus tensors, want 2: %v", n, err)
	}
	newFolder(t, modeltest.Llama{}).tensors(same, one("_orig_mod.model.norm.weight")).refused(t, `"_orig_mod.model.norm.weight" and "model.norm.weight" are the same one`)
}

// TestOpenRefusesLoRABesideTheWeights: what PEFT wraps and has not merged is told apart from a
// prefix.
func TestOpenRefusesLoRABesideTheWeights(t *testing.T) {
	newFolder(t, modeltest.Llama{}).renamed(func(s string) string {
		return "base_model.model." + strings.Replace(s, "q_proj.weight", "q_proj.base_layer.weight", 1)
	}, checkpoints.F32Tensor("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight", []int{1}, []float32{1})).
		refused(t, "LoRA factors stand beside the weights", "merge_and_unload()", "model.layers.0.self_attn.q_proj.weight: missing")
}

// TestOldSpelling: the first Llama models name their class otherwise.
func TestOldSpelling(t *testing.T) {
	m, err := newFolder(t, modeltest.Llama{}).config(map[string]any{"architectures": []string{"LLaMAForCausalLM"}}).open()
	if err != nil || m.Config.Architecture != "LlamaForCausalLM" {
		t.Errorf("error %v, want LlamaForCausalLM", err)
	}
}

// TestOpenTakesFalconWithoutItsBase: the module that AutoModel leaves out has another name in
// another family.
func TestOpenTakesFalconWithoutItsBase(t *testing.T) {
	files := fstest.MapFS{}
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join("testdata", "golden", "falcon", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	m, err := folder{t, files}.renamed(func(s string) string { return strings.TrimPrefix(s, "transformer.") }).open()
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, `for "transformer.h.0.`) {
		t.Errorf("notes %q, want one of the names", notes)
	}
}

// TestOpenTakesTheTextModel: a folder of a model of text and images gives its text model, whose settings are an object of
// their own and whose tensors have another prefix. One that no family reads is refused by its type.
func TestOpenTakesTheTextModel(t *testing.T) {
	for _, name := range []string{"mistral-v0.3", "qwen3-moe"} {
		f := goldenFolder(t, name)
		plain, err := goldenFolder(t, name).open()
		if err != nil {
			t.Fatal(err)
		}
		var text map[string]any
		if err := json.Unmarshal(f.fs["config.json"].Data, &text); err != nil {
			t.Fatal(err)
		}
		delete(text, "architectures")
		tied := text["tie_word_embeddings"]
		delete(text, "tie_word_embeddings") // which the outer one says
		outer := func(change map[string]any) folder {
			data, err := json.Marshal(map[string]any{
				"architectures": []string{"SomethingForConditionalGeneration"}, "model_type": "something", "tie_word_embeddings": tied, "vision_config": map[string]any{"hidden_size": 5}, "text_config": change,
			})
			if err != nil {
				t.Fatal(err)
			}
			f.write("config.json", data)
			return f
		}
		vision := checkpoints.F32Tensor("model.vision_tower.patch.weight", []int{1}, []float32{1})
		m, err := outer(text).renamed(func(s string) string {
			if rest, ok := strings.CutPrefix(s, "model."); ok {
				return "model.language_model." + rest
			}
			return s
		}, vision).open()
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"config.json: of SomethingForConditionalGeneration the text model is read, " + plain.Config.Architecture, "only text is read"} {
			if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, want) {
				t.Errorf("%s: notes %q, want %q", name, notes, want)
			}
		}
		got, want := m.Config, plain.Config
		if got.Architecture != want.Architecture || got.TieEmbeddings != want.TieEmbeddings || got.HeadDim != want.HeadDim || m.Network.Parameters() != plain.Network.Parameters() {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		text["model_type"] = "paper_text"
		outer(text).refused(t, `model_type: unknown "paper"`)
	}
}
