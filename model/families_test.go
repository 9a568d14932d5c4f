package model_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// goldenFolder is a golden folder to be changed.
func goldenFolder(t testing.TB, name string) folder {
	t.Helper()
	f := folder{t, fstest.MapFS{}}
	for file, data := range modeltest.Files(t, filepath.Join(modeltest.Testdata(t), "golden", name)) {
		f.write(file, data)
	}
	return f
}

// TestFamiliesRefuse: what a family does not compute is refused, by key.
func TestFamiliesRefuse(t *testing.T) {
	scaling := func(kv ...any) map[string]any {
		s := map[string]any{"type": "longrope", "short_factor": ones(6), "long_factor": ones(6)}
		for i := 0; i < len(kv); i += 2 {
			s[kv[i].(string)] = kv[i+1]
		}
		return map[string]any{"rope_scaling": s}
	}
	parameters := func(key string, value any) map[string]any { // of Ministral 3
		p := map[string]any{"rope_type": "yarn", "rope_theta": 1e6, "factor": 4, "original_max_position_embeddings": 32, "llama_4_scaling_beta": 0.4}
		p[key] = value
		return map[string]any{"rope_parameters": p}
	}
	for name, c := range map[string]struct {
		model  string
		change map[string]any
		want   string
	}{
		"granite biases":           {"granite", map[string]any{"attention_bias": true}, "attention_bias, mlp_bias: got true, false, want false"},
		"granite embeddings":       {"granite", map[string]any{"embedding_multiplier": 0}, "embedding_multiplier: got 0"},
		"granite attention":        {"granite", map[string]any{"attention_multiplier": -1}, "attention_multiplier: got -1"},
		"granite blocks":           {"granite", map[string]any{"residual_multiplier": 1e300}, "residual_multiplier: got 1e+300"},
		"granite logits":           {"granite", map[string]any{"logits_scaling": 0}, "logits_scaling: got 0"},
		"smollm3 layers":           {"smollm3", map[string]any{"no_rope_layers": []int{1, 0}}, "no_rope_layers: got 2, want num_hidden_layers 3"},
		"smollm3 layer":            {"smollm3", map[string]any{"no_rope_layers": []int{1, 0, 2}}, "no_rope_layers: got 2, want 0 or 1"},
		"smollm3 interval":         {"smollm3", map[string]any{"no_rope_layers": nil, "no_rope_layer_interval": 0}, "no_rope_layer_interval: got 0"},
		"smollm3 window":           {"smollm3", map[string]any{"layer_types": []string{"full_attention", "full_attention", "sliding_attention"}}, "sliding_attention without a sliding_window"},
		"seed-oss output biases":   {"seed-oss", map[string]any{"attention_out_bias": true}, "model.layers.0.self_attn.o_proj.bias: missing"},
		"ministral layer type":     {"ministral", map[string]any{"layer_types": []string{"full_attention", "chunked_attention"}}, `layer_types: got "chunked_attention"`},
		"phi short factors":        {"phi3.5", scaling("short_factor", ones(5)), "rope_scaling.short_factor: got 5 factors, want one for each of 6 pairs"},
		"phi long factors":         {"phi3.5", scaling("long_factor", nil), "rope_scaling.long_factor: got 0 factors"},
		"phi factor":               {"phi3.5", scaling("long_factor", []float64{1, 1, 0, 1, 1, 1}), "rope_scaling.long_factor: got 0, want positive numbers"},
		"phi attention factor":     {"phi3.5", scaling("attention_factor", 0), "rope_scaling.attention_factor: got 0"},
		"phi original context":     {"phi3.5", map[string]any{"original_max_position_embeddings": 0.5}, "original_max_position_embeddings: got 0.5"},
		"phi context of 1":         {"phi3.5", map[string]any{"original_max_position_embeddings": 1}, "rope_scaling.attention_factor: got +Inf"},
		"phi partial rotation":     {"phi4-mini", map[string]any{"partial_rotary_factor": 0.7}, "partial_rotary_factor: got 0.7 of head_dim 16"},
		"phi no rotation":          {"phi4-mini", map[string]any{"partial_rotary_factor": 0}, "partial_rotary_factor: got 0"},
		"phi too much rotation":    {"phi4-mini", map[string]any{"partial_rotary_factor": 1.5}, "partial_rotary_factor: got 1.5"},
		"partial elsewhere":        {"seed-oss", map[string]any{"rope_parameters": map[string]any{"partial_rotary_factor": 0.5}}, "partial_rotary_factor: got 0.5, want 1"},
		"falcon norms":             {"falcon-40b", map[string]any{"num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn: got 3, want 1 or 2"},
		"falcon groups":            {"falcon-40b", map[string]any{"num_kv_heads": 3}, "num_key_value_heads: got 3, want a divisor"},
		"too many experts per row": {"mixtral", map[string]any{"num_experts_per_tok": 5}, "experts per token: got 5, want 1 to 4"},
		"no experts":               {"qwen3-moe", map[string]any{"num_experts": 0}, "number of experts: got 0, want 1"},
		"experts beyond memory":    {"qwen3-moe", map[string]any{"num_experts": 16000, "num_hidden_layers": 4000}, "number of experts: got 16000 in each of 4000 layers, want at most 131072 in all"},
		"expert of no width":       {"qwen3-moe", map[string]any{"moe_intermediate_size": 0}, "width of an expert: got 0"},
		"layers of experts":        {"qwen3-moe", map[string]any{"decoder_sparse_step": 0}, "decoder_sparse_step: got 0, want at least 1"},
		"dense layer":              {"qwen3-moe", map[string]any{"mlp_only_layers": []int{3}}, "mlp_only_layers: got 3, want 0 to 2"},
		"dense layer missing":      {"qwen3-moe", map[string]any{"mlp_only_layers": []int{}}, "model.layers.1.mlp.gate.weight: missing"},
		"shared expert":            {"qwen2-moe", map[string]any{"shared_expert_intermediate_size": -1}, "width of the shared expert: got -1"},
		"groups of experts":        {"glm4-moe", map[string]any{"n_group": 4}, "n_group, topk_group: got 4 and 1 for 6 experts"},
		"scale of experts":         {"glm4-moe", map[string]any{"routed_scaling_factor": 0}, "routed_scaling_factor, num_nextn_predict_layers: got 0"},
		"olmo3 layer type":         {"olmo3", map[string]any{"layer_types": []string{"full_attention"}}, "layer_types: got 1, want num_hidden_layers 3"},
		"glm rotation":             {"glm4", map[string]any{"partial_rotary_factor": 0.2}, "partial_rotary_factor: got 0.2 of head_dim 16"},
		"queries without growth":   {"ministral3", parameters("llama_4_scaling_beta", nil), "rope_parameters: got llama_4_scaling_beta none, original_max_position_embeddings 32"},
		"queries that shrink":      {"ministral3", parameters("llama_4_scaling_beta", -0.1), "rope_parameters: got llama_4_scaling_beta -0.1"},
		"growth from nowhere":      {"ministral3", parameters("original_max_position_embeddings", nil), "rope_parameters: got llama_4_scaling_beta 0.4, original_max_position_embeddings 0"},
		"no attention":             {"qwen3.5", map[string]any{"layer_types": nil}, "layer_types: got linear_attention alone, want a layer with full_attention"},
		"attention of no layer":    {"qwen3.5", map[string]any{"layer_types": nil, "full_attention_interval": 0}, "full_attention_interval: got 0, want at least 1"},
		"another kind of layer":    {"qwen3.5", map[string]any{"layer_types": []string{"mamba", "full_attention"}}, `layer_types: got "mamba", want full_attention or linear_attention`},
		"too few kinds of layers":  {"qwen3.5", map[string]any{"layer_types": []string{"full_attention"}}, "layer_types: got 1, want num_hidden_layers 2 of them"},
		"bias of a convolution":    {"lfm2", map[string]any{"conv_bias": true}, "conv_bias: got true, want false"},
		"convolution of one row":   {"lfm2", map[string]any{"conv_L_cache": 1}, "conv_L_cache: got 1, want 2 to 64"},
		"convolutions alone":       {"lfm2", map[string]any{"layer_types": []string{"conv", "conv", "conv"}}, "layer_types: got conv alone, want a layer with full_attention"},
		"multiples of an MLP":      {"lfm2", map[string]any{"block_auto_adjust_ff_dim": true, "block_multiple_of": 0}, "block_multiple_of, block_ffn_dim_multiplier: got 0 and 1"},
		"value heads of a net":     {"qwen3.5", map[string]any{"linear_num_value_heads": 5}, "linear_num_value_heads: got 5, want a multiple of linear_num_key_heads 2"},
		"key heads of a net":       {"qwen3-next", map[string]any{"linear_num_key_heads": 0}, "linear_num_key_heads: got 0, want 1 to 256"},
		"width of a net's heads":   {"qwen3-next", map[string]any{"linear_value_head_dim": 513}, "linear_value_head_dim: got 513, want 1 to 512"},
		"convolution of a row":     {"qwen3-next", map[string]any{"linear_conv_kernel_dim": 1}, "linear_conv_kernel_dim: got 1, want 2 to 64"},
		"shape of a net":           {"qwen3-next", map[string]any{"linear_key_head_dim": 5}, "model.layers.1.linear_attn.conv1d.weight: shape [40 1 4], want [44 1 4]"},
		"falcon serial":            {"falcon-40b", map[string]any{"parallel_attn": false}, "parallel_attn: got false"},
	} {
		t.Run(name, func(t *testing.T) {
			goldenFolder(t, c.model).config(c.change).refused(t, c.want)
		})
	}
}

func ones(n int) []float64 { return slices.Repeat([]float64{1}, n) }

// TestLongRoPEForms: the names and places that the same scaling has had.
func TestLongRoPEForms(t *testing.T) {
	want, err := goldenFolder(t, "phi4-mini").open()
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Theta float64        `json:"rope_theta"`
		Raw   map[string]any `json:"rope_scaling"`
	}
	modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "golden", "phi4-mini", "config.json"), &config)
	first := map[string]any{"type": "su", "short_factor": config.Raw["short_factor"], "long_factor": config.Raw["long_factor"]}
	newest := map[string]any{"rope_type": "longrope", "short_factor": config.Raw["short_factor"], "long_factor": config.Raw["long_factor"],
		"rope_theta": config.Theta, "partial_rotary_factor": 0.75}
	for name, change := range map[string]map[string]any{
		"su":              {"rope_scaling": first},
		"rope_parameters": {"rope_scaling": nil, "rope_theta": nil, "partial_rotary_factor": nil, "rope_parameters": newest},
	} {
		m, err := goldenFolder(t, "phi4-mini").config(change).open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := m.Config
		if !slices.Equal(got.RoPEFreqs, want.Config.RoPEFreqs) || !slices.Equal(got.LongRoPE.Freqs, want.Config.LongRoPE.Freqs) ||
			got.LongRoPE.After != 48 || got.RoPEScale != want.Config.RoPEScale || len(got.RoPEFreqs) != 6 {
			t.Errorf("%s: %+v, want %+v", name, got, want.Config)
		}
	}
}

// TestLongRoPEIsChosenOnce: the first pass, or Expect, chooses the frequencies of a
// sequence; what follows keeps them, beyond the original context too, alone and in a batch
// with others.
func TestLongRoPEIsChosenOnce(t *testing.T) {
	for _, device := range kernels.Backends.Names() {
		t.Run(device, func(t *testing.T) {
			m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "phi3.5").Folder), device)
			ids := modeltest.GoldenNamed(t, "phi3.5").Prompts[1].IDs
			ctx, r, after := context.Background(), runner.New(m), m.Config.LongRoPE.After
			prefill := func(n, expected int) (*kvcache.Cache, []float32) {
				t.Helper()
				c := kvcache.New(m)
				c.Expect(expected)
				logits, err := r.Prefill(ctx, c, ids[:n], runner.PrefillOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return c, logits
			}
			_, short := prefill(after, 0)
			_, long := prefill(after, after+1)
			if e := modeltest.RowError(short, long); e < 1e-3 {
				t.Fatalf("both kinds of frequencies give the same, within %.2g", e)
			}
			if _, same := prefill(after, after); modeltest.RowError(same, short) != 0 {
				t.Errorf("a prompt that is expected to have %d tokens is taken for a long one", after)
			}
			// Two sequences go past the original context, each with its own frequencies.
			const steps = 4
			var want [2][][]float32
			for i, expected := range []int{0, len(ids)} {
				c, _ := prefill(after-1, expected)
				for _, id := range ids[after-1:][:steps] {
					logits, err := r.Step(ctx, c, id, runner.Capture{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					want[i] = append(want[i], logits)
				}
			}
			if e := modeltest.RowError(want[0][steps-1], want[1][steps-1]); e < 1e-3 {
				t.Fatalf("past the original context both sequences give the same, within %.2g", e)
			}
			a, _ := prefill(after-1, 0)
			b, _ := prefill(after-1, len(ids))
			c, err := b.Fork(nil)
			if err != nil {
				t.Fatal(err)
			}
			for s, id := range ids[after-1:][:steps] {
				got, err := r.StepBatch(ctx, []*kvcache.Cache{a, b, c}, []int32{id, id, id}, 4)
				if err != nil {
					t.Fatal(err)
				}
				for i, w := range [][]float32{want[0][s], want[1][s], want[1][s]} {
					if e := modeltest.RowError(got[i], w); !(e <= 1e-5) {
						t.Errorf("step %d: sequence %d of the batch: error %.2g", s, i, e)
					}
				}
			}
		})
	}
}

// TestSmolLM3Layers: which layers rotate and which have a window.
func TestSmolLM3Layers(t *testing.T) {
	for name, c := range map[string]struct {
		change  map[string]any
		still   []bool
		windows []int
	}{
		"list":     {map[string]any{"no_rope_layers": []int{0, 1, 1}}, []bool{true, false, false}, nil},
		"interval": {map[string]any{"no_rope_layers": nil, "no_rope_layer_interval": 3}, []bool{false, false, true}, nil},
		"default":  {map[string]any{"no_rope_layers": nil, "no_rope_layer_interval": nil}, []bool{false, false, false}, nil},
		"windows": {map[string]any{"layer_types": nil, "use_sliding_window": true, "sliding_window": 8},
			[]bool{false, true, false}, []int{0, 8, 0}},
		"window off": {map[string]any{"layer_types": nil, "use_sliding_window": false, "sliding_window": 8}, []bool{false, true, false}, nil},
	} {
		m, err := goldenFolder(t, "smollm3").config(c.change).open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		still := make([]bool, m.Config.Layers)
		for l := range still {
			still[l] = !m.Config.Rotates(l)
		}
		if !slices.Equal(still, c.still) || !slices.Equal(modeltest.Windows(m), c.windows) {
			t.Errorf("%s: without rotation %v, windows %v, want %v, %v", name, still, modeltest.Windows(m), c.still, c.windows)
		}
	}
}

// TestFusedSites: the rows of fused weights that modules are.
func TestFusedSites(t *testing.T) {
	for name, want := range map[string][]string{
		"phi3.5":     {"qkv_proj.weight[0:48]", "qkv_proj.weight[48:96]", "qkv_proj.weight[96:144]", "gate_up_proj.weight[0:64]", "gate_up_proj.weight[64:128]"},
		"falcon-40b": {"weight[heads 0:2 of every 4]", "weight[heads 2 of every 4]", "weight[heads 3 of every 4]"},
	} {
		m, err := goldenFolder(t, name).open()
		if err != nil {
			t.Fatal(err)
		}
		family, err := model.Families.Lookup(m.Config.Architecture)
		if err != nil {
			t.Fatal(err)
		}
		all := fmt.Sprint(family.Sites(&m.Config))
		for _, w := range want {
			if !slices.ContainsFunc(family.Sites(&m.Config), func(s model.Site) bool { return len(s.Tensor) >= len(w) && s.Tensor[len(s.Tensor)-len(w):] == w }) {
				t.Errorf("%s: no %s in %s", name, w, all)
			}
		}
	}
}

// TestGemma: what is refused by key, files of other versions, and the text model of one of text and images.
func TestGemma(t *testing.T) {
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"activation":    {map[string]any{"hidden_activation": "gelu"}, `hidden_activation: got "gelu"`},
		"bidirectional": {map[string]any{"use_bidirectional_attention": true}, "use_bidirectional_attention: got true"},
		"query scale":   {map[string]any{"query_pre_attn_scalar": 0}, "query_pre_attn_scalar: got"},
		"attention cap": {map[string]any{"attn_logit_softcapping": -1}, "attn_logit_softcapping: got -1"},
		"logit cap":     {map[string]any{"final_logit_softcapping": 0}, "final_logit_softcapping: got 0"},
	} {
		t.Run(name, func(t *testing.T) { goldenFolder(t, "gemma2").config(c.change).refused(t, c.want) })
	}
	want, err := goldenFolder(t, "gemma3").open()
	if err != nil {
		t.Fatal(err)
	}
	var text map[string]any
	modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "golden", "gemma3", "config.json"), &text)
	delete(text, "architectures")
	images := goldenFolder(t, "gemma3").renamed(func(name string) string { return "language_model." + name })
	var gone = map[string]any{"architectures": []string{"Gemma3ForConditionalGeneration"}, "model_type": "gemma3", "text_config": text}
	for key := range text {
		if gone[key] == nil {
			gone[key] = nil
		}
	}
	got, err := images.config(gone).open()
	if err != nil {
		t.Fatal(err)
	}
	if got.Config.Architecture != "Gemma3ForCausalLM" || got.Config.Hidden != want.Config.Hidden || !slices.Equal(modeltest.Windows(got), modeltest.Windows(want)) {
		t.Errorf("the text model of one of images: %+v, want %+v", got.Config, want.Config)
	}
	if !slices.ContainsFunc(got.Notes, func(n string) bool {
		return strings.Contains(n, "of Gemma3ForConditionalGeneration the text model is read")
	}) {
		t.Errorf("notes %q, want one of the text model", got.Notes)
	}
	// Files of transformers 4: one theta for each kind of layer, the scaling of those that see everything.
	older, err := goldenFolder(t, "gemma3").config(map[string]any{"rope_parameters": nil, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": map[string]any{"rope_type": "linear", "factor": 8}}).open()
	if err != nil {
		t.Fatal(err)
	}
	for l := range want.Config.Layers {
		if a, b := older.Config.RoPEOf(l), want.Config.RoPEOf(l); !slices.Equal(a.RoPEFreqs, b.RoPEFreqs) || l == 0 && a.RoPEFreqs[1] == want.Config.RoPEOf(2).RoPEFreqs[1] {
			t.Errorf("layer %d rotates by %v, want %v", l, a.RoPEFreqs, b.RoPEFreqs)
		}
	}
}

// TestMistral3: defaults of Ministral 3, and the text model of one of text and images, which is Ministral 3's or Mistral's.
func TestMistral3(t *testing.T) {
	family, err := model.Families.Lookup("Ministral3ForCausalLM")
	if err != nil {
		t.Fatal(err)
	}
	c, err := family.ParseConfig([]byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	if s := c.PositionScale; s == nil || *s != (model.PositionScale{Beta: 0.1, Context: 16384}) || c.RoPEScale != 1 || c.MaxPositions != 262144 || slices.Equal(c.RoPEFreqs, model.PlainRoPE(1e6, 128)) {
		t.Errorf("defaults: %+v", c)
	}
	for position, want := range map[int]float64{0: 1, 16383: 1, 16384: 1 + 0.1*math.Log(2), 262143: 1 + 0.1*math.Log(16)} {
		if got := c.PositionScale.At(position); math.Abs(got-want) > 1e-15 {
			t.Errorf("scale of position %d: %v, want %v", position, got, want)
		}
	}
	for name, architecture := range map[string]string{"ministral3": "Ministral3ForCausalLM", "mistral-window": "MistralForCausalLM"} {
		var text map[string]any
		modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "golden", name, "config.json"), &text)
		images := map[string]any{"text_config": text}
		for key := range text {
			images[key] = nil
		}
		images["architectures"], images["model_type"] = []string{"Mistral3ForConditionalGeneration"}, "mistral3"
		m, err := goldenFolder(t, name).renamed(func(name string) string { return "language_model." + name }).config(images).open()
		if err != nil {
			t.Fatal(err)
		}
		if m.Config.Architecture != architecture || (m.Config.PositionScale != nil) != (name == "ministral3") {
			t.Errorf("the text model of one of images: %+v, want one of %s", m.Config, architecture)
		}
	}
}

// TestGemma4: what is refused by key, the forms of its KV heads, and the text model of one of text and images.
func TestGemma4(t *testing.T) {
	layers := func(heads, dim int) map[string]any {
		return map[string]any{"per_layer_config": map[string]any{"1": map[string]int{"head_dim": 16, "num_key_value_heads": 1}, "2": map[string]int{"head_dim": dim, "num_key_value_heads": heads}}}
	}
	for name, c := range map[string]struct {
		change map[string]any
		want   string
	}{
		"activation":       {map[string]any{"hidden_activation": "gelu"}, `hidden_activation: got "gelu"`},
		"bidirectional":    {map[string]any{"use_bidirectional_attention": "all"}, `use_bidirectional_attention: got "all"`},
		"layer embeddings": {map[string]any{"hidden_size_per_layer_input": 8}, "vocab_size_per_layer_input: got 262144, want vocab_size 256"},
		"their default":    {map[string]any{"hidden_size_per_layer_input": nil, "vocab_size_per_layer_input": 256}, "model.embed_tokens_per_layer.weight: missing, want shape [256 768]"},
		"their width":      {map[string]any{"hidden_size_per_layer_input": -8, "vocab_size_per_layer_input": 256}, "hidden_size_per_layer_input: got -8"},
		"their padding":    {map[string]any{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 256, "pad_token_id": 256}, "pad_token_id: got 256, want 0 to 255"},
		"shared KV":        {map[string]any{"num_kv_shared_layers": 3}, "num_kv_shared_layers: got 3, want 0 to 2"},
		"unlike shared KV": {map[string]any{"num_kv_shared_layers": 2}, "num_kv_shared_layers: got 2, want a layer of full_attention"},
		"experts":          {map[string]any{"enable_moe_block": true, "num_experts": 4, "moe_intermediate_size": 8}, "experts per token: got 0, want 1 to 4"},
		"logit cap":        {map[string]any{"final_logit_softcapping": 0}, "final_logit_softcapping: got 0"},
		"unequal layers":   {layers(2, 16), "per_layer_config: got 2 KV heads of width 16 in layer 2 and 1 of 16 before"},
		"odd heads":        {layers(3, 16), "layer 2: got 3 KV heads of width 16 for 4 query heads"},
		"odd width":        {layers(1, 15), "layer 2: got 1 KV heads of width 15"},
		"values":           {map[string]any{"attention_k_eq_v": false}, "model.layers.1.self_attn.v_proj.weight: missing"},
	} {
		t.Run(name, func(t *testing.T) { goldenFolder(t, "gemma4").config(c.change).refused(t, c.want) })
	}
	scalar := checkpoints.F32Tensor("model.layers.1.layer_scalar", []int{1}, []float32{-1})
	goldenFolder(t, "gemma4").tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		if v.Name == scalar.Name {
			return nil
		}
		return &v
	}, scalar).refused(t, "model.layers.1.layer_scalar: got -1, want a positive number")
	want, err := goldenFolder(t, "gemma4").open()
	if err != nil {
		t.Fatal(err)
	}
	first, err := goldenFolder(t, "gemma4").config(map[string]any{"per_layer_config": nil, "global_head_dim": 16, "num_global_key_value_heads": 1, "use_bidirectional_attention": "vision"}).open()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(kvShapes(first), kvShapes(want)) || first.Config.KVHeads != 1 || first.Config.HeadDim != 16 || first.Config.KV(0) != (model.KVShape{Heads: 2, Dim: 8}) {
		t.Errorf("KV heads %v, want %v", kvShapes(first), kvShapes(want))
	}
	if freqs := want.Config.RoPEFreqs; len(freqs) != 8 || freqs[1] == 0 || freqs[2] != 0 || freqs[7] != 0 {
		t.Errorf("frequencies %v, want 2 of 8 that rotate", freqs)
	}
	for name, architecture := range map[string]string{"gemma4": "Gemma4", "gemma4-unified": "Gemma4Unified"} {
		var text map[string]any
		modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "golden", name, "config.json"), &text)
		delete(text, "architectures")
		images := map[string]any{"text_config": text}
		for key := range text {
			images[key] = nil
		}
		images["architectures"], images["model_type"] = []string{architecture + "ForConditionalGeneration"}, strings.TrimSuffix(text["model_type"].(string), "_text")
		m, err := goldenFolder(t, name).renamed(func(name string) string { return "model.language_model." + strings.TrimPrefix(name, "model.") }).config(images).open()
		if err != nil {
			t.Fatal(err)
		}
		if m.Config.Architecture != architecture+"ForCausalLM" || !slices.Equal(kvShapes(m), kvShapes(want)[:m.Config.Layers]) {
			t.Errorf("the text model of one of images: %+v, want one of %s", m.Config, architecture)
		}
	}
}

// TestGemma4SharedKV: what layers that read the keys and values of others have stored of their own is a note, and their MLPs are as
// wide as config.json says.
func TestGemma4SharedKV(t *testing.T) {
	own := checkpoints.F32Tensor("model.layers.4.self_attn.k_proj.weight", []int{1}, []float32{1})
	m, err := goldenFolder(t, "gemma4-e2b").tensors(same, own).open()
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, `1 tensors are not used: "model.layers.4.self_attn.k_proj.weight"`) {
		t.Errorf("notes %q", notes)
	}
	if m.Network.Layers[4].Linear(model.KProj) != nil || m.Network.Layers[2].Linear(model.KProj) == nil {
		t.Error("keys of layer 4, want those of layer 2")
	}
	for l, width := range []int{16, 16, 16, 32, 32, 32} {
		if got := m.Network.Layers[l].Linear(model.UpProj).Weight.Dim0(); got != width {
			t.Errorf("layer %d: an MLP of %d, want %d", l, got, width)
		}
	}
	if got := m.Config.ScoredLayers(); got != 6 {
		t.Errorf("scores of %d layers, want 6: the last reads a cache that is scored", got)
	}
	goldenFolder(t, "gemma4-e2b").config(map[string]any{"use_double_wide_mlp": false}).refused(t, "model.layers.3.mlp.gate_proj.weight: shape [32 16], want [16 16]")
}

// TestFurtherLayers: layers that predict further tokens are a note where config.json has them, and surplus where not.
func TestFurtherLayers(t *testing.T) {
	further := checkpoints.F32Tensor("model.layers.3.eh_proj.weight", []int{1}, []float32{1})
	m, err := goldenFolder(t, "glm4-moe").config(map[string]any{"num_nextn_predict_layers": 1}).tensors(same, further).open()
	if err != nil {
		t.Fatal(err)
	}
	if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, `1 tensors are not used: "model.layers.3.eh_proj.weight"`) {
		t.Errorf("notes %q", notes)
	}
	goldenFolder(t, "glm4-moe").tensors(same, further).refused(t, `"model.layers.3.eh_proj.weight": surplus`)
}

// TestOlmo3Rotations: layers with a window are rotated without the scaling of the others, in both forms of config.json.
func TestOlmo3Rotations(t *testing.T) {
	var config struct {
		Theta float64        `json:"rope_theta"`
		Raw   map[string]any `json:"rope_scaling"`
	}
	modeltest.ReadJSON(t, filepath.Join(modeltest.Testdata(t), "golden", "olmo3", "config.json"), &config)
	full := map[string]any{"rope_theta": config.Theta}
	for k, v := range config.Raw {
		full[k] = v
	}
	byType := map[string]any{"full_attention": full, "sliding_attention": map[string]any{"rope_type": "default", "rope_theta": config.Theta}}
	for name, change := range map[string]map[string]any{
		"rope_scaling": {}, "rope_parameters": {"rope_scaling": nil, "rope_theta": nil, "rope_parameters": full},
		"rope_parameters by type": {"rope_scaling": nil, "rope_theta": nil, "rope_parameters": byType},
	} {
		m, err := goldenFolder(t, "olmo3").config(change).open()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plain := model.PlainRoPE(config.Theta, m.Config.HeadDim)
		for l := range m.Config.Layers {
			of := m.Config.RoPEOf(l)
			if slides := m.Config.Window(l) > 0; slides != slices.Equal(of.RoPEFreqs, plain) || slides != (of.RoPEScale-1 == 0) || slides != (l < 2) {
				t.Errorf("%s: layer %d: window %d, rotations %v times %v", name, l, m.Config.Window(l), of.RoPEFreqs, of.RoPEScale)
			}
		}
	}
}

// TestLFM2Config: older names of keys, and the width of the MLP as published models and transformers have it.
func TestLFM2Config(t *testing.T) {
	family, err := model.Families.Lookup("Lfm2ForCausalLM")
	if err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]struct {
		inner     int
		attending []int
		tied      bool
		eps       float64
	}{
		`{"num_hidden_layers": 3}`: {8192, []int{0, 1, 2}, true, 1e-5},
		`{"num_hidden_layers": 4, "block_ff_dim": 6656, "full_attn_idxs": [1, 3], "tie_embedding": false, "norm_eps": 1e-6}`:                                      {4608, []int{1, 3}, false, 1e-6},
		`{"num_hidden_layers": 2, "intermediate_size": 7000, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 8, "layer_types": ["conv", "full_attention"]}`: {6072, []int{1}, true, 1e-5},
		`{"num_hidden_layers": 1, "intermediate_size": 7000, "block_auto_adjust_ff_dim": false}`:                                                                  {7000, []int{0}, true, 1e-5},
	} {
		c, err := family.ParseConfig(json.RawMessage(raw))
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		var attending []int
		for l := range c.Layers {
			if !c.Recurrent(l) {
				attending = append(attending, l)
			}
		}
		if c.Intermediate != want.inner || !slices.Equal(attending, want.attending) || c.TieEmbeddings != want.tied || c.RMSNormEps != want.eps {
			t.Errorf("%s: MLP of %d, attention in %v, tied %v, epsilon %v, want %+v", raw, c.Intermediate, attending, c.TieEmbeddings, c.RMSNormEps, want)
		}
	}
}

// kvShapes are the shapes of the keys and values of a model's layers.
func kvShapes(m *model.Model) (shapes []model.KVShape) {
	for l := range m.Config.Layers {
		shapes = append(shapes, m.Config.KV(l))
	}
	return shapes
}
