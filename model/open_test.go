package model_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/model"
	"glimpse/model/builtin"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// folder is a good model folder to be spoilt.
type folder struct {
	t  testing.TB
	fs fstest.MapFS
}

func newFolder(t testing.TB, shape modeltest.Llama) folder {
	t.Helper()
	files, err := shape.Folder()
	if err != nil {
		t.Fatal(err)
	}
	return folder{t, files}
}

func (f folder) write(name string, data []byte) {
	f.fs[name] = &fstest.MapFile{Data: data, Mode: 0o644}
}

// config changes keys of config.json; nil removes one.
func (f folder) config(change map[string]any) folder {
	f.t.Helper()
	var c map[string]any
	if err := json.Unmarshal(f.fs["config.json"].Data, &c); err != nil {
		f.t.Fatal(err)
	}
	for k, v := range change {
		if c[k] = v; v == nil {
			delete(c, k)
		}
	}
	data, err := json.Marshal(c)
	if err != nil {
		f.t.Fatal(err)
	}
	f.write("config.json", data)
	return f
}

// tensors rewrites the weights; change returns nil to leave a tensor out.
func (f folder) tensors(change func(checkpoints.TensorView) *checkpoints.TensorView, more ...checkpoints.TensorView) folder {
	f.t.Helper()
	w, err := checkpoints.OpenWeightsFS(f.fs, ".")
	if err != nil {
		f.t.Fatal(err)
	}
	defer w.Close()
	var out []checkpoints.TensorView
	for _, name := range w.Names() {
		v, err := w.Tensor(name)
		if err != nil {
			f.t.Fatal(err)
		}
		v.Data = slices.Clone(v.Data)
		if changed := change(v); changed != nil {
			out = append(out, *changed)
		}
	}
	var file bytes.Buffer
	if err := checkpoints.WriteSafetensors(&file, append(out, more...), nil); err != nil {
		f.t.Fatal(err)
	}
	f.write("model.safetensors", file.Bytes())
	return f
}

func same(v checkpoints.TensorView) *checkpoints.TensorView { return &v }

// values are the elements of a stored tensor.
func values(t testing.TB, v checkpoints.TensorView) []float32 {
	t.Helper()
	out := make([]float32, v.Len())
	if err := v.ReadF32(out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (f folder) open() (*model.Model, error) {
	m, err := model.OpenFS(f.fs, "spoilt", model.Options{Device: "cpu"})
	if err == nil {
		f.t.Cleanup(func() { m.Close() })
	}
	return m, err
}

// refused opens the folder and wants an error with all of the given parts.
func (f folder) refused(t *testing.T, parts ...string) error {
	t.Helper()
	_, err := f.open()
	if err == nil {
		t.Error("accepted")
		return nil
	}
	for _, p := range append(parts, "open model spoilt: ") {
		if !strings.Contains(err.Error(), p) {
			t.Errorf("error %q, want it to say %q", err, p)
		}
	}
	return err
}

func TestOpenRefusesBadWeights(t *testing.T) {
	shape := modeltest.Llama{}
	for name, c := range map[string]struct {
		spoil func(f folder)
		want  []string
	}{
		"no config":  {func(f folder) { delete(f.fs, "config.json") }, []string{"config.json"}},
		"no weights": {func(f folder) { delete(f.fs, "model.safetensors") }, []string{"model.safetensors"}},
		"weights in the older format": {func(f folder) {
			delete(f.fs, "model.safetensors")
			f.write("pytorch_model.bin", []byte("PK"))
		}, []string{"pytorch_model.bin must first be converted"}},
		"empty weights": {func(f folder) { f.write("model.safetensors", nil) }, []string{"model.safetensors"}},
		"truncated weights": {func(f folder) {
			data := f.fs["model.safetensors"].Data
			f.write("model.safetensors", data[:len(data)-1])
		}, []string{"model.safetensors"}},
		"truncated header": {func(f folder) { f.write("model.safetensors", f.fs["model.safetensors"].Data[:100]) }, []string{"model.safetensors"}},
		"garbage":          {func(f folder) { f.write("model.safetensors", bytes.Repeat([]byte{0xff}, 4096)) }, []string{"model.safetensors"}},
		"wrong shape": {func(f folder) {
			f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				if v.Name == "model.layers.1.self_attn.k_proj.weight" {
					v = checkpoints.F32Tensor(v.Name, []int{16, 8}, values(t, v))
				}
				return &v
			})
		}, []string{"model.layers.1.self_attn.k_proj.weight: shape [16 8], want [8 16]"}},
		"integers": {func(f folder) {
			f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				if v.Name == "model.norm.weight" {
					v.DType = kernels.I32
				}
				return &v
			})
		}, []string{"model.norm.weight: stored as I32, want a floating-point type"}},
		"everything at once": {func(f folder) {
			f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				switch v.Name {
				case "model.layers.0.mlp.up_proj.weight", "model.norm.weight":
					return nil
				case "model.embed_tokens.weight":
					v = checkpoints.F32Tensor(v.Name, []int{20, 32}, values(t, v))
				}
				return &v
			}, checkpoints.F32Tensor("model.layers.2.mlp.up_proj.weight", []int{1}, []float32{1}),
				checkpoints.F32Tensor("model.layers.0.self_attn.q_proj.bias", []int{1}, []float32{1}))
		}, []string{
			"model.layers.0.mlp.up_proj.weight: missing, want shape [24 16]", "model.norm.weight: missing, want shape [16]",
			"model.embed_tokens.weight: shape [20 32], want [40 16]",
			`"model.layers.2.mlp.up_proj.weight": surplus`, `"model.layers.0.self_attn.q_proj.bias": surplus`,
		}},
		"head of a tied model is all that may be surplus": {func(f folder) {
			f.config(map[string]any{"tie_word_embeddings": true}).tensors(same, checkpoints.F32Tensor("score.weight", []int{1}, []float32{1}))
		}, []string{`"score.weight": surplus`}},
		"untied model without a head": {func(f folder) {
			f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				if v.Name == "lm_head.weight" {
					return nil
				}
				return &v
			})
		}, []string{"lm_head.weight: missing, want shape [40 16]"}},
		"more layers than the file has": {func(f folder) { f.config(map[string]any{"num_hidden_layers": 3}) }, []string{"model.layers.2.input_layernorm.weight: missing", "model.layers.2.mlp.down_proj.weight: missing"}},
		"biases that the file lacks": {func(f folder) { f.config(map[string]any{"attention_bias": true, "mlp_bias": true}) }, []string{
			"model.layers.0.self_attn.q_proj.bias: missing, want shape [16]", "model.layers.1.self_attn.o_proj.bias: missing, want shape [16]",
			"model.layers.0.mlp.gate_proj.bias: missing, want shape [24]", "model.layers.1.mlp.down_proj.bias: missing, want shape [16]",
		}},
		"other vocabulary": {func(f folder) {
			f.config(map[string]any{"vocab_size": 41})
		}, []string{"model.embed_tokens.weight: shape [40 16], want [41 16]", "lm_head.weight: shape [40 16], want [41 16]"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFolder(t, shape)
			c.spoil(f)
			f.refused(t, c.want...)
		})
	}
}

func TestOpenRefusesBadConfigs(t *testing.T) {
	rope := func(kv ...any) map[string]any {
		s := map[string]any{}
		for i := 0; i < len(kv); i += 2 {
			s[kv[i].(string)] = kv[i+1]
		}
		return map[string]any{"rope_scaling": s}
	}
	for name, c := range map[string]struct {
		change map[string]any
		want   []string
	}{
		"unknown architecture":        {map[string]any{"architectures": []string{"GPT2LMHeadModel"}}, []string{`unknown architecture "GPT2LMHeadModel", want one of: `, "LlamaForCausalLM"}},
		"no architecture":             {map[string]any{"architectures": nil, "model_type": nil}, []string{"architectures: got none, and no model_type, want one of: ", "LlamaForCausalLM"}},
		"empty architectures":         {map[string]any{"architectures": []string{}, "model_type": "t5"}, []string{"architectures: got none", `model_type: unknown "t5"`}},
		"hidden_size 0":               {map[string]any{"hidden_size": 0}, []string{"hidden_size: got 0, want 1 to"}},
		"hidden_size text":            {map[string]any{"hidden_size": "16"}, []string{"hidden_size"}},
		"hidden_size fraction":        {map[string]any{"hidden_size": 16.5}, []string{"hidden_size"}},
		"num_hidden_layers":           {map[string]any{"num_hidden_layers": -2}, []string{"num_hidden_layers: got -2"}},
		"num_hidden_layers huge":      {map[string]any{"num_hidden_layers": 1 << 40}, []string{"num_hidden_layers: got 1099511627776"}},
		"num_attention_heads":         {map[string]any{"num_attention_heads": 0}, []string{"num_attention_heads: got 0"}},
		"num_key_value_heads":         {map[string]any{"num_key_value_heads": 0}, []string{"num_key_value_heads: got 0"}},
		"num_key_value_heads 3":       {map[string]any{"num_key_value_heads": 3}, []string{"num_key_value_heads: got 3, want a divisor of num_attention_heads 4"}},
		"num_key_value_heads below 0": {map[string]any{"num_key_value_heads": -4}, []string{"num_key_value_heads: got -4"}},
		"head_dim odd":                {map[string]any{"head_dim": 5}, []string{"head_dim: got 5, want an even number"}},
		"head_dim not given":          {map[string]any{"head_dim": nil, "num_attention_heads": 5}, []string{"hidden_size: got 16, want a multiple of num_attention_heads 5"}},
		"intermediate_size":           {map[string]any{"intermediate_size": -1}, []string{"intermediate_size: got -1"}},
		"vocab_size":                  {map[string]any{"vocab_size": 0}, []string{"vocab_size: got 0"}},
		"max_position_embeddings":     {map[string]any{"max_position_embeddings": 0}, []string{"max_position_embeddings: got 0"}},
		"rms_norm_eps":                {map[string]any{"rms_norm_eps": 0}, []string{"rms_norm_eps: got 0, want a positive number"}},
		"rms_norm_eps below 0":        {map[string]any{"rms_norm_eps": -1e-5}, []string{"rms_norm_eps: got -1e-05"}},
		"several at once":             {map[string]any{"vocab_size": 0, "rms_norm_eps": 0, "head_dim": 3}, []string{"vocab_size: got 0", "rms_norm_eps: got 0", "head_dim: got 3"}},
		"rope_theta":                  {map[string]any{"rope_theta": 0}, []string{"rope_theta: got 0, want a positive number"}},
		"quantization_config":         {map[string]any{"quantization_config": map[string]any{"quant_method": "awq", "bits": 3}}, []string{`quantization_config: awq: bits: got 3, want 4`}},
		"partial_rotary_factor":       {map[string]any{"partial_rotary_factor": 0.5}, []string{"partial_rotary_factor: got 0.5, want 1"}},
		"hidden_act":                  {map[string]any{"hidden_act": "gelu"}, []string{`hidden_act: got "gelu", want "silu"`}},
		"eos_token_id text":           {map[string]any{"eos_token_id": "</s>"}, []string{"eos_token_id"}},
		"rope_scaling type":           {rope("rope_type", "dynamic", "factor", 4), []string{`rope_scaling: unknown type "dynamic", want one of: default, linear, llama3, longrope, proportional, yarn`}},
		"rope_scaling without factor": {rope("type", "mrope", "mrope_section", []int{1}), []string{`unknown type "mrope"`}},
		"rope_scaling factor only":    {rope("factor", 2), []string{`unknown type ""`}},
		"rope_scaling factor":         {rope("type", "linear", "factor", 0.5), []string{"rope_scaling.factor: got 0.5, want at least 1"}},
		"rope_scaling no factor":      {rope("type", "linear"), []string{"rope_scaling.factor: got 0"}},
		"rope_scaling llama3":         {rope("rope_type", "llama3", "factor", 8, "low_freq_factor", 4, "high_freq_factor", 1, "original_max_position_embeddings", 8192), []string{"low_freq_factor 4", "high_freq_factor 1"}},
		"rope_scaling yarn range":     {rope("type", "yarn", "factor", 4, "beta_fast", 1, "beta_slow", 32), []string{"beta_fast 1, beta_slow 32", "slow <= fast"}},
		"rope_scaling yarn context":   {rope("type", "yarn", "factor", 1e6), []string{"original_max_position_embeddings 4096 times factor 1e+06"}},
		"rope_scaling yarn attention": {rope("type", "yarn", "factor", 4, "attention_factor", -1), []string{"rope_scaling.attention_factor: got -1"}},
		"rope_scaling text":           {map[string]any{"rope_scaling": "linear"}, []string{"rope_scaling"}},
		"rope_parameters type":        {map[string]any{"rope_parameters": map[string]any{"rope_type": "dynamic", "rope_theta": 1e4}}, []string{`unknown type "dynamic"`}},
		"rope_parameters theta":       {map[string]any{"rope_parameters": map[string]any{"rope_theta": -1}}, []string{"rope_theta: got -1"}},
		"rope_parameters text":        {map[string]any{"rope_parameters": 3}, []string{"rope_parameters"}},
		"both forms of rope": {map[string]any{"rope_parameters": map[string]any{"rope_theta": 1e4},
			"rope_scaling": map[string]any{"type": "linear", "factor": 2}}, []string{"rope_parameters and rope_scaling: got both"}},
	} {
		t.Run(name, func(t *testing.T) {
			newFolder(t, modeltest.Llama{}).config(c.change).refused(t, append(c.want, "config.json")...)
		})
	}
	for name, file := range map[string]string{"config.json": "{", "generation_config.json": "[1]"} {
		t.Run("broken "+name, func(t *testing.T) {
			f := newFolder(t, modeltest.Llama{})
			f.write(name, []byte(file))
			f.refused(t, name)
		})
		t.Run("huge "+name, func(t *testing.T) {
			f := newFolder(t, modeltest.Llama{})
			f.write(name, bytes.Repeat([]byte(" "), 2<<20))
			f.refused(t, name, "want at most")
		})
	}
}

func TestOpenRefusesBadPaths(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := model.Open(filepath.Join(dir, "nothing"), model.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing folder: %v", err)
	}
	if _, err := model.Open(file, model.Options{}); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("a file: %v", err)
	}
	if _, err := model.Open(dir, model.Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("empty folder: %v", err)
	}
	if _, err := model.Open("", model.Options{Device: "abacus"}); err == nil || !strings.Contains(err.Error(), `unknown device "abacus", want one of: cpu`) {
		t.Errorf("unknown device: %v", err)
	}
}

// TestEndTokens: generation_config.json knows more of them than config.json.
func TestEndTokens(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	f.config(map[string]any{"eos_token_id": 3, "bos_token_id": 2})
	check := func(name string, bos int32, eos ...int32) {
		t.Helper()
		m, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		if m.Config.BOS != bos || !slices.Equal(m.Config.EOS, eos) {
			t.Errorf("%s: begin %d, end %v, want %d and %v", name, m.Config.BOS, m.Config.EOS, bos, eos)
		}
	}
	check("config.json alone", 2, 3)
	f.write("generation_config.json", []byte(`{"eos_token_id": [3, 5, 7], "temperature": 0.6}`))
	check("both", 2, 3, 5, 7)
	f.config(map[string]any{"eos_token_id": nil, "bos_token_id": nil})
	check("generation_config.json alone", 1, 3, 5, 7)
	f.write("generation_config.json", []byte(`{"bos_token_id": 4, "eos_token_id": null}`))
	f.config(map[string]any{"eos_token_id": 3})
	check("generation_config.json says there is none", 4)
	f.config(map[string]any{"eos_token_id": nil})
	delete(f.fs, "generation_config.json")
	check("neither: as transformers has it for the family", 1, 2)
	f.write("generation_config.json", []byte(`{"temperature": 0.6}`))
	check("generation_config.json without tokens", 1, 2)
	f.write("config.json", []byte(strings.Replace(string(f.fs["config.json"].Data), "{", `{"eos_token_id": null, "bos_token_id": null, `, 1)))
	check("null", -1)
}

// TestEndOfTurn: the token that ends an assistant's turn in the chat template ends responses, whatever
// the files say, and where they do not say it that is noted.
func TestEndOfTurn(t *testing.T) {
	const (
		loop   = "{% for m in messages %}<|start|>{{ m.role }}\n{{ m.content | trim }}"
		header = "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
	)
	for _, c := range []struct {
		name, template string
		given          any
		eos            []int32
		noted          string
	}{
		{"another one", loop + "<|turn|>\n{% endfor %}" + header, 257, []int32{257, 258}, "ends the assistant's turns with <|turn|> (258), which is not in eos_token_id [257]"},
		{"after a space", loop + " {{ eos_token }}{% endfor %}", []int{258, 259}, []int32{258, 259, 257}, "with <|end|> (257), which is not in eos_token_id [258 259]"},
		{"none given", loop + "<|turn|>{% endfor %}" + header, nil, []int32{258}, "(258), which is not in eos_token_id []"},
		{"of the assistant alone", loop + "{{ '<|turn|>' if m.role == 'assistant' else eos_token }}{% endfor %}", 257, []int32{257, 258}, "(258)"},
		{"the same", loop + "<|turn|>\n{% endfor %}" + header, []int{257, 258}, []int32{257, 258}, ""},
		{"no end", loop + "\n{% endfor %}" + header, 257, []int32{257}, ""},
		{"no token", loop + "[END]\n{% endfor %}" + header, 257, []int32{257}, ""},
		{"beyond the model", loop + "<|beyond|>\n{% endfor %}", 257, []int32{257}, ""},
		{"begin", loop + "<|start|>{% endfor %}", 257, []int32{257}, ""},
		{"refused", loop + "{{ raise_exception('no') }}{% endfor %}", 257, []int32{257}, ""},
		{"broken", "{% for %}", 257, []int32{257}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			folder := modeltest.WithFiles(t, map[string]any{
				"tokenizer.json":         modeltest.ByteTokenizer("<|start|>", "<|end|>", "<|turn|>", "<|4|>", "<|5|>", "<|6|>", "<|7|>", "<|8|>", "<|beyond|>"),
				"tokenizer_config.json":  map[string]any{"chat_template": c.template, "eos_token": "<|end|>"},
				"generation_config.json": map[string]any{"bos_token_id": 256, "eos_token_id": c.given, "min_new_tokens": 2},
			})
			m := modeltest.OpenFolder(t, folder, "cpu")
			if !slices.Equal(m.Config.EOS, c.eos) {
				t.Errorf("end tokens %v, want %v", m.Config.EOS, c.eos)
			}
			choice := model.SamplingChoice{From: model.SamplingOfModel}
			sampling, err := choice.Resolve(m)
			if err != nil || !slices.Equal(sampling.Processors.End, c.eos) {
				t.Errorf("not before 2 tokens: %v, %v, want %v", sampling.Processors.End, err, c.eos)
			}
			notes := slices.DeleteFunc(slices.Clone(m.Notes), func(n string) bool { return !strings.Contains(n, "turns") })
			if got := strings.Join(notes, "\n"); !strings.Contains(got, c.noted) || c.noted == "" && got != "" || len(notes) > 1 {
				t.Errorf("notes %q, want %q", notes, c.noted)
			}
		})
	}
}

// TestNoTokenizer: a model without one runs on token ids, and says why there is
// none when it is needed; one of more tokens than the model is only noted.
func TestNoTokenizer(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	for _, broken := range []string{"", "{"} {
		if broken != "" {
			f.write("tokenizer.json", []byte(broken))
		}
		m, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		if tok, err := m.NeedTokenizer(); tok != nil || err == nil || !strings.Contains(err.Error(), "model spoilt: tokenizer: ") {
			t.Errorf("tokenizer.json %q: %v, %v", broken, tok, err)
		}
	}
	large, err := fs.ReadFile(builtin.FS(), "tokenizer.json") // of more than 40 tokens
	if err != nil {
		t.Fatal(err)
	}
	f.write("tokenizer.json", large)
	f.noted(t, "tokenizer.json: 480 tokens for 40 rows")
}

// TestDefaults: keys that config.json may leave out.
func TestDefaults(t *testing.T) {
	m, err := newFolder(t, modeltest.Llama{Hidden: 16, Heads: 4, KVHeads: 4, HeadDim: 4}).
		config(map[string]any{"num_key_value_heads": nil, "head_dim": nil, "rope_theta": nil, "hidden_act": nil, "tie_word_embeddings": nil}).open()
	if err != nil {
		t.Fatal(err)
	}
	if c := m.Config; c.KVHeads != 4 || c.HeadDim != 4 || c.TieEmbeddings || c.RoPEScale != 1 {
		t.Errorf("%+v", c)
	}
	compare.Close(t, "frequencies", m.Config.RoPEFreqs, []float64{1, 0.01}, 1e-6)
}

// TestRoPEForms: the two ways of writing the same frequencies, and the scalings by
// their formulas.
func TestRoPEForms(t *testing.T) {
	frequencies := func(change map[string]any) []float32 {
		t.Helper()
		m, err := newFolder(t, modeltest.Llama{HeadDim: 8}).config(change).open()
		if err != nil {
			t.Fatal(err)
		}
		return m.Config.RoPEFreqs
	}
	plain := make([]float64, 4)
	for i := range plain {
		plain[i] = math.Pow(5e5, -float64(i)/4)
	}
	llama3 := map[string]any{"rope_type": "llama3", "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 1024}
	scaled := slices.Clone(plain)
	for i, f := range plain {
		switch length := 2 * math.Pi / f; {
		case length > 1024:
			scaled[i] = f / 8
		case length > 1024/4:
			smooth := (1024/length - 1) / 3
			scaled[i] = (1-smooth)*f/8 + smooth*f
		}
	}
	thirds := slices.Clone(plain)
	for i := range thirds {
		thirds[i] /= 3
	}
	with := func(m map[string]any, key string, value any) map[string]any {
		m = maps.Clone(m)
		m[key] = value
		return m
	}
	for name, c := range map[string]struct {
		change map[string]any
		want   []float64
	}{
		"theta":                {map[string]any{"rope_theta": 5e5}, plain},
		"null scaling":         {map[string]any{"rope_theta": 5e5, "rope_scaling": json.RawMessage("null")}, plain},
		"default":              {map[string]any{"rope_theta": 5e5, "rope_scaling": map[string]any{"rope_type": "default"}}, plain},
		"linear, older key":    {map[string]any{"rope_theta": 5e5, "rope_scaling": map[string]any{"type": "linear", "factor": 3}}, thirds},
		"llama3":               {map[string]any{"rope_theta": 5e5, "rope_scaling": llama3}, scaled},
		"parameters":           {map[string]any{"rope_theta": nil, "rope_parameters": map[string]any{"rope_theta": 5e5, "rope_type": "default"}}, plain},
		"parameters, no type":  {map[string]any{"rope_theta": nil, "rope_parameters": map[string]any{"rope_theta": 5e5}}, plain},
		"parameters, llama3":   {map[string]any{"rope_theta": nil, "rope_parameters": with(llama3, "rope_theta", 5e5)}, scaled},
		"theta beside":         {map[string]any{"rope_theta": 5e5, "rope_parameters": map[string]any{"rope_type": "default"}}, plain},
		"parameters over both": {map[string]any{"rope_theta": 77, "rope_scaling": json.RawMessage("null"), "rope_parameters": map[string]any{"rope_theta": 5e5}}, plain},
	} {
		compare.Close(t, name, frequencies(c.change), c.want, 1e-6, compare.Floor(0))
	}
}

// TestStorageTypes: a checkpoint in any floating-point type runs on every device,
// and one whose head is stored twice or that holds rotary frequencies opens.
func TestStorageTypes(t *testing.T) {
	tokens := []int32{3, 1, 4, 1, 5, 9, 2, 6}
	base := newFolder(t, modeltest.Llama{})
	exact, err := base.open()
	if err != nil {
		t.Fatal(err)
	}
	want := logitsOf(t, exact, tokens)
	for _, c := range []struct {
		dtype kernels.DType
		tol   float64
	}{{kernels.F64, 1e-5}, {kernels.BF16, 0.03}} {
		f := newFolder(t, modeltest.Llama{}).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
			if c.dtype == kernels.F64 {
				wide := make([]float64, v.Len())
				for i, x := range values(t, v) {
					wide[i] = float64(x)
				}
				v = checkpoints.F64Tensor(v.Name, v.Shape, wide)
				return &v
			}
			data := make([]byte, 0, 2*v.Len())
			for _, x := range values(t, v) {
				h := formats.F32ToBF16(x)
				data = append(data, byte(h), byte(h>>8))
			}
			v.DType, v.Data = c.dtype, data
			return &v
		}, checkpoints.F32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", []int{2}, []float32{1, 0.01}))
		for _, device := range kernels.Backends.Names() {
			m := modeltest.OpenFolder(t, f.fs, device)
			got := logitsOf(t, m, tokens)
			compare.CloseToScale(t, device+" "+c.dtype.String(), got, want, c.tol)
		}
	}
	tied := newFolder(t, modeltest.Llama{Tied: true})
	m, err := tied.open()
	if err != nil {
		t.Fatal(err)
	}
	want = logitsOf(t, m, tokens)
	twice, err := tied.tensors(same, checkpoints.F32Tensor("lm_head.weight", []int{40, 16}, make([]float32, 640))).open()
	if err != nil {
		t.Fatal(err)
	}
	got := logitsOf(t, twice, tokens)
	compare.Close(t, "tied head", got, want, 0)
}

// TestNonFiniteWeightsAreNamed: the error of a pass says which tensor spoils it.
func TestNonFiniteWeightsAreNamed(t *testing.T) {
	for _, name := range []string{"model.layers.1.self_attn.v_proj.weight", "model.layers.0.post_attention_layernorm.weight", "lm_head.weight", "model.norm.weight"} {
		for _, bad := range []float64{math.NaN(), math.Inf(1)} {
			f := newFolder(t, modeltest.Llama{}).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				if v.Name == name {
					x := values(t, v)
					x[5] = float32(bad)
					v = checkpoints.F32Tensor(v.Name, v.Shape, x)
				}
				return &v
			})
			for _, device := range kernels.Backends.Names() {
				m := modeltest.OpenFolder(t, f.fs, device)
				logits, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), []int32{1, 2, 3}, runner.PrefillOptions{})
				if !errors.Is(err, model.ErrNonFinite) || logits != nil || !strings.Contains(err.Error(), name+": element 5 is") {
					t.Errorf("%s: %s: %v", device, name, err)
				}
			}
		}
	}
	// Finite weights whose products are not.
	f := newFolder(t, modeltest.Llama{}).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		if v.Name == "lm_head.weight" {
			x := values(t, v)
			for i := range x {
				x[i] = 3e38
			}
			v = checkpoints.F32Tensor(v.Name, v.Shape, x)
		}
		return &v
	})
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	_, err = runner.New(m).Prefill(context.Background(), kvcache.New(m), []int32{1, 2, 3}, runner.PrefillOptions{})
	if !errors.Is(err, model.ErrNonFinite) || !strings.Contains(err.Error(), "although all weights are") {
		t.Errorf("overflow: %v", err)
	}
}

// logitsOf are the logits of the last of some tokens.
func logitsOf(t *testing.T, m *model.Model, tokens []int32) []float32 {
	t.Helper()
	logits, err := runner.New(m).Prefill(t.Context(), kvcache.New(m), tokens, runner.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return logits
}
