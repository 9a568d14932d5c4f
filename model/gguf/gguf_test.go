package gguf

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	container "glimpse/checkpoints/gguf"
	"glimpse/model/tokenizer"
)

// write makes a GGUF file of metadata, with one matrix [rows, 4] in F32 for the embedding.
func write(t testing.TB, values map[string]any, rows int) []byte {
	t.Helper()
	kinds := func(v any) uint32 {
		switch v.(type) {
		case bool:
			return 7
		case int32:
			return 5
		case float32:
			return 6
		case string:
			return 8
		case []int32, []float32, []bool, []string:
			return 9
		}
		t.Fatalf("no type for %T", v)
		return 0
	}
	var add func(to []byte, v any) []byte
	add = func(to []byte, v any) []byte {
		list := func(n int, kind any) []byte {
			to = binary.LittleEndian.AppendUint32(to, kinds(kind))
			return binary.LittleEndian.AppendUint64(to, uint64(n))
		}
		switch v := v.(type) {
		case string:
			return append(binary.LittleEndian.AppendUint64(to, uint64(len(v))), v...)
		case []string:
			to = list(len(v), "")
			for _, s := range v {
				to = add(to, s)
			}
			return to
		case []int32:
			to = list(len(v), int32(0))
		case []float32:
			to = list(len(v), float32(0))
		case []bool:
			to = list(len(v), false)
		}
		to, err := binary.Append(to, binary.LittleEndian, v)
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	file := append([]byte("GGUF"), 3, 0, 0, 0)
	file = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(file, 1), uint64(len(values)))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		file = binary.LittleEndian.AppendUint32(add(file, key), kinds(values[key]))
		file = add(file, values[key])
	}
	file = binary.LittleEndian.AppendUint32(add(file, "token_embd.weight"), 2)
	file = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(file, 4), uint64(rows))
	file = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(file, 0), 0)
	file = append(file, make([]byte, (32-len(file)%32)%32)...)
	file = append(file, make([]byte, 16*rows)...)
	return append(file, make([]byte, (32-len(file)%32)%32)...)
}

// base is the metadata of a model of Llama's architecture.
func base() map[string]any {
	return map[string]any{
		"general.architecture": "llama", "llama.context_length": int32(128), "llama.embedding_length": int32(4), "llama.block_count": int32(2),
		"llama.feed_forward_length": int32(8), "llama.attention.head_count": int32(2), "llama.attention.layer_norm_rms_epsilon": float32(1e-5),
		"tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": []string{"a", "b", "ab", "<end>"},
		"tokenizer.ggml.token_type": []int32{1, 1, 1, 3}, "tokenizer.ggml.merges": []string{"a b"}, "tokenizer.ggml.eos_token_id": int32(3),
	}
}

// open translates a file of the metadata with changes; nil takes a key away.
func open(t testing.TB, changes map[string]any) (*Model, error) {
	t.Helper()
	values := base()
	maps.Copy(values, changes)
	maps.DeleteFunc(values, func(_ string, v any) bool { return v == nil })
	file, err := container.Parse("m.gguf", write(t, values, 4))
	if err != nil {
		t.Fatal(err)
	}
	return translate(file)
}

// TestConfig: what keys become in config.json and generation_config.json.
func TestConfig(t *testing.T) {
	for name, c := range map[string]struct {
		changes map[string]any
		file    string // "" is config.json
		want    string // a part of it
	}{
		"sizes":                {nil, "", `"head_dim":2,"hidden_size":4,"intermediate_size":8,"max_position_embeddings":128`},
		"KV heads as heads":    {nil, "", `"num_key_value_heads":2`},
		"KV heads":             {map[string]any{"llama.attention.head_count_kv": int32(1)}, "", `"num_key_value_heads":1`},
		"equal layers":         {map[string]any{"llama.feed_forward_length": []int32{8, 8}}, "", `"intermediate_size":8`},
		"shortest decimal":     {nil, "", `"rms_norm_eps":1e-05,`},
		"theta by default":     {nil, "", `"rope_theta":10000,`},
		"theta":                {map[string]any{"llama.rope.freq_base": float32(5e5)}, "", `"rope_theta":500000,`},
		"tied":                 {nil, "", `"tie_word_embeddings":true`},
		"rows":                 {map[string]any{"llama.vocab_size": int32(4)}, "", `"vocab_size":4`},
		"type":                 {nil, "", `"torch_dtype":"float32"`},
		"window":               {map[string]any{"llama.attention.sliding_window": int32(16)}, "", `"architectures":["MistralForCausalLM"]`},
		"no window":            {map[string]any{"llama.attention.sliding_window": int32(0)}, "", `"architectures":["LlamaForCausalLM"]`},
		"no experts":           {map[string]any{"llama.expert_count": int32(0)}, "", `LlamaForCausalLM`},
		"old linear scaling":   {map[string]any{"llama.rope.scale_linear": float32(4)}, "", `"rope_scaling":{"factor":4,"rope_type":"linear"}`},
		"scaling that is none": {map[string]any{"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": float32(4)}, "", `"rope_theta":10000,"tie`},
		"yarn":                 {map[string]any{"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": float32(4), "llama.rope.scaling.original_context_length": int32(32), "llama.rope.scaling.yarn_beta_fast": float32(16)}, "", `"rope_scaling":{"beta_fast":16,"factor":4,"original_max_position_embeddings":32,"rope_type":"yarn"}`},
		"all ends":             {map[string]any{"tokenizer.ggml.eot_token_id": int32(2), "tokenizer.ggml.eom_token_id": int32(3)}, "generation_config.json", `"eos_token_id":[3,2]`},
		"suppressed":           {map[string]any{"tokenizer.ggml.suppress_tokens": []int32{1}}, "generation_config.json", `"suppress_tokens":[1]`},
		"sampling":             {map[string]any{"general.sampling.temp": float32(0.6), "general.sampling.top_k": int32(-1)}, "generation_config.json", `"do_sample":true,"eos_token_id":[3],"temperature":0.6,"top_k":0`},
		"templates":            {map[string]any{"tokenizer.chat_template": "T", "tokenizer.chat_template.tool_use": "U", "tokenizer.chat_templates": []string{"tool_use"}}, "tokenizer_config.json", `"chat_template":[{"name":"default","template":"T"},{"name":"tool_use","template":"U"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := open(t, c.changes)
			if err != nil {
				t.Fatal(err)
			}
			file := c.file
			if file == "" {
				file = "config.json"
			}
			got, err := fs.ReadFile(m.Folder, file)
			if err != nil || !strings.Contains(string(got), c.want) {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// TestRefused: what is odd is an error that names the key; what is odd of the tokenizer is one only
// for who needs it.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		changes map[string]any
		want    string // "tokenizer: " and what it says, or what translate says
	}{
		"no architecture":      {map[string]any{"general.architecture": nil}, `key "general.architecture" is missing`},
		"another architecture": {map[string]any{"general.architecture": "mamba"}, `key "general.architecture": unknown architecture "mamba", want one of: falcon, gemma2, gemma3, gemma4, glm4, glm4moe, gpt-oss, granite, lfm2, llama, mistral3, olmo2, phi3, qwen2, qwen2moe, qwen3, qwen35, qwen35moe, qwen3moe, qwen3next, seed_oss, smollm3`},
		"other type":           {map[string]any{"general.architecture": int32(1)}, `key "general.architecture": a value of type int32, want a string`},
		"missing size":         {map[string]any{"llama.block_count": nil}, `key "llama.block_count" is missing`},
		"no epsilon":           {map[string]any{"llama.attention.layer_norm_rms_epsilon": nil}, `key "llama.attention.layer_norm_rms_epsilon" is missing`},
		"negative size":        {map[string]any{"llama.block_count": int32(-1)}, `key "llama.block_count": got -1, want at least 1`},
		"unequal layers":       {map[string]any{"llama.feed_forward_length": []int32{8, 4}}, `key "llama.feed_forward_length": got 8 in layer 0 and 4 in layer 1, want the same in all layers`},
		"no layers":            {map[string]any{"llama.feed_forward_length": []int32{}}, `key "llama.feed_forward_length": got no values`},
		"odd head":             {map[string]any{"llama.attention.key_length": int32(3)}, "got 2 heads of 3 dimensions and 2 KV heads"},
		"KV heads":             {map[string]any{"llama.attention.head_count_kv": int32(0)}, "got 2 heads of 2 dimensions and 0 KV heads"},
		"values":               {map[string]any{"llama.attention.value_length": int32(8)}, `key "llama.attention.value_length": got 8, want 2, the length of keys`},
		"partial rotation":     {map[string]any{"llama.rope.dimension_count": int32(4)}, `key "llama.rope.dimension_count": got 4, want 2, all dimensions of a head`},
		"scaling":              {map[string]any{"llama.rope.scaling.type": "ntk"}, `key "llama.rope.scaling.type": got "ntk", want none, linear, yarn or longrope`},
		"experts":              {map[string]any{"llama.expert_count": int32(8)}, `key "llama.expert_used_count" is missing`},
		"unknown key":          {map[string]any{"llama.attention.temperature_scale": float32(0.1)}, `key "llama.attention.temperature_scale": got 0.1, want 0 of LlamaForCausalLM`},
		"key of another":       {map[string]any{"llama.attention.output_scale": float32(0.1)}, `key "llama.attention.output_scale": unknown of LlamaForCausalLM, got 0.1, which could change what the model computes`},
		"key of later":         {map[string]any{"llama.rope.local.freq_base": float32(1e4)}, `key "llama.rope.local.freq_base": unknown of LlamaForCausalLM, got 10000, which could change`},
		"growth":               {map[string]any{"llama.attention.sliding_window": int32(4), "llama.attention.temperature_scale": float32(0.1)}, `key "llama.attention.temperature_scale": got 0.1, want it beside key "llama.rope.scaling.type" of yarn alone`},
		"not a number":         {map[string]any{"llama.rope.freq_base": "10000"}, `key "llama.rope.freq_base": a value of type string, want a float`},
		"other tokenizer":      {map[string]any{"tokenizer.ggml.model": "bert"}, `tokenizer: key "tokenizer.ggml.model": got "bert", want gpt2, llama or gemma4`},
		"other pre-tokenizer":  {map[string]any{"tokenizer.ggml.pre": "viking"}, `tokenizer: key "tokenizer.ggml.pre": unknown pre-tokenizer "viking", want one of: a.x-4.0, command-r`},
		"no tokens":            {map[string]any{"tokenizer.ggml.tokens": nil}, `tokenizer: key "tokenizer.ggml.tokens" is missing`},
		"types":                {map[string]any{"tokenizer.ggml.token_type": []int32{1}}, `tokenizer: key "tokenizer.ggml.token_type": got 1, want 4, one for each token`},
		"no text":              {map[string]any{"tokenizer.ggml.tokens": []string{"a", "\xff", "ab", "<end>"}}, `tokenizer: key "tokenizer.ggml.tokens": token 1 is "\xff", want valid UTF-8`},
		"merge":                {map[string]any{"tokenizer.ggml.merges": []string{"ab"}}, `tokenizer: key "tokenizer.ggml.merges": merge 0 is "ab"`},
		"no merges":            {map[string]any{"tokenizer.ggml.merges": nil}, `tokenizer: key "tokenizer.ggml.merges" is missing`},
		"no scores":            {map[string]any{"tokenizer.ggml.model": "llama"}, `tokenizer: key "tokenizer.ggml.scores": got 0, want 4`},
	} {
		t.Run(name, func(t *testing.T) {
			want, later := strings.CutPrefix(c.want, "tokenizer: ")
			m, err := open(t, c.changes)
			if later {
				if err != nil {
					t.Fatal(err)
				}
				_, err = tokenizer.LoadDir(m.Folder)
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %s", err, want)
			}
		})
	}
}

// texts are those that fixtures' tokenizers are compared on.
var texts = []string{
	"The keys of a cache, 12345 of them: it's 3.14!", "  two  spaces\n\n\tand\ttabs \r\n", "naïve café — “quoted” €5", "漢字とかな 🙂 e\u0301", "a<|x|> <bos>b<eos>", "def f(x):\n    return x**2", "",
}

// TestTokenizers: a tokenizer gives the same ids from a GGUF file as from its tokenizer.json.
func TestTokenizers(t *testing.T) {
	files := map[string]string{} // the pre-tokenizer by tokenizer.json
	for name, pre := range map[string]string{"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen": "qwen2", "falcon": "falcon"} {
		files[filepath.Join("..", "tokenizer", "testdata", name+".json")] = pre
	}
	texts := slices.Clone(texts)
	if data := os.Getenv("GLIMPSE_DATA"); data != "" {
		files[filepath.Join(data, "tokenizers", "llama3.json")], files[filepath.Join(data, "tokenizers", "qwen.json")] = "llama-bpe", "qwen2"
		var more struct{ Strings []string }
		raw, err := os.ReadFile(filepath.Join(data, "tokenizers", "strings.json"))
		if err != nil || json.Unmarshal(raw, &more) != nil {
			t.Fatal(err)
		}
		texts = append(texts, more.Strings...)
	} else {
		t.Log("without GLIMPSE_DATA: real tokenizers are left out")
	}
	for path, pre := range files {
		t.Run(path, func(t *testing.T) {
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, flag := range []string{"single_word", "lstrip", "rstrip", "normalized"} { // which GGUF does not have
				raw = []byte(strings.NewReplacer(fmt.Sprintf("%q: true", flag), fmt.Sprintf("%q: false", flag), fmt.Sprintf("%q:true", flag), fmt.Sprintf("%q:false", flag)).Replace(string(raw)))
			}
			config := []byte(`{"add_prefix_space": false, "tokenizer_class": "PreTrainedTokenizerFast"}`)
			want, err := tokenizer.LoadDir(fstest.MapFS{"tokenizer.json": {Data: raw}, "tokenizer_config.json": {Data: config}})
			if err != nil {
				t.Fatal(err)
			}
			var f struct {
				Added []struct {
					ID      int
					Content string
					Special bool
				} `json:"added_tokens"`
				Model struct {
					Vocab  map[string]int
					Merges json.RawMessage
				}
			}
			if err := json.Unmarshal(raw, &f); err != nil {
				t.Fatal(err)
			}
			tokens, types := make([]string, want.VocabSize()), slices.Repeat([]int32{unusedToken}, want.VocabSize())
			for id := range tokens {
				tokens[id] = fmt.Sprintf("[PAD%d]", id)
			}
			for token, id := range f.Model.Vocab {
				tokens[id], types[id] = token, normalToken
			}
			for _, a := range f.Added {
				tokens[a.ID], types[a.ID] = a.Content, userToken
				if a.Special {
					types[a.ID] = controlToken
				}
			}
			var merges []string
			if json.Unmarshal(f.Model.Merges, &merges) != nil {
				merges = nil
				var pairs [][2]string
				if err := json.Unmarshal(f.Model.Merges, &pairs); err != nil {
					t.Fatal(err)
				}
				for _, p := range pairs {
					merges = append(merges, p[0]+" "+p[1])
				}
			}
			changes := map[string]any{"tokenizer.ggml.pre": pre, "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types, "tokenizer.ggml.merges": merges, "tokenizer.ggml.eos_token_id": nil}
			prefix, suffix := affixes(t, want)
			for key, ids := range map[string][]int32{"bos": prefix, "eos": suffix} {
				changes["tokenizer.ggml.add_"+key+"_token"] = len(ids) > 0
				if len(ids) > 0 {
					changes["tokenizer.ggml."+key+"_token_id"] = ids[0]
				}
			}
			m, err := open(t, changes)
			if err != nil {
				t.Fatal(err)
			}
			same(t, m, want, texts)
		})
	}
}

// affixes are the ids that Encode puts around a text.
func affixes(t *testing.T, tok *tokenizer.Tokenizer) (prefix, suffix []int32) {
	t.Helper()
	text, err := tok.Encode("a", false)
	if err != nil {
		t.Fatal(err)
	}
	all, err := tok.Encode("a", true)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.Index(all, text[0])
	return all[:at], all[at+len(text):]
}

func same(t *testing.T, m *Model, want *tokenizer.Tokenizer, texts []string) {
	t.Helper()
	got, err := tokenizer.LoadDir(m.Folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range texts {
		ids, err := want.Encode(text, true)
		if err != nil {
			t.Fatal(err)
		}
		if mine, err := got.Encode(text, true); err != nil || !slices.Equal(mine, ids) {
			t.Errorf("%q: got %v (%v), want %v", text, mine, err, ids)
			continue
		}
		back, _ := want.Decode(ids, true)
		if mine, err := got.Decode(ids, true); err != nil || mine != back {
			t.Errorf("%v: decoded %q (%v), want %q", ids, mine, err, back)
		}
	}
}

// TestSentencePiece: a tokenizer of SentencePiece gives the ids that transformers gives with its
// tokenizer.model (lab/golden/gguf_fixtures.py).
func TestSentencePiece(t *testing.T) {
	var golden struct {
		SentencePiece []struct {
			Text, Decoded string
			IDs           []int32
		}
	}
	raw, err := os.ReadFile(filepath.Join("testdata", "golden.json"))
	if err != nil || json.Unmarshal(raw, &golden) != nil || len(golden.SentencePiece) < 10 {
		t.Fatalf("%d texts (%v)", len(golden.SentencePiece), err)
	}
	m, err := Open(filepath.Join("testdata", "spm.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	tok, err := tokenizer.LoadDir(m.Folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range golden.SentencePiece {
		if ids, err := tok.Encode(g.Text, true); err != nil || !slices.Equal(ids, g.IDs) {
			t.Errorf("%q: got %v (%v), want %v", g.Text, ids, err, g.IDs)
		}
		if text, err := tok.Decode(g.IDs, false); err != nil || text != g.Decoded {
			t.Errorf("%v: decoded %q (%v), want %q", g.IDs, text, err, g.Decoded)
		}
	}
}

// TestGemma4Refused: keys of layers that do not go together, by key.
func TestGemma4Refused(t *testing.T) {
	own := map[string]any{}
	for key, value := range base() {
		own[strings.Replace(key, "llama.", "gemma4.", 1)] = value
		if strings.HasPrefix(key, "llama.") {
			own[key] = nil
		}
	}
	maps.Copy(own, map[string]any{
		"general.architecture": "gemma4", "gemma4.attention.sliding_window": int32(8), "gemma4.attention.head_count_kv": []int32{1, 1}, "gemma4.attention.shared_kv_layers": int32(1),
		"gemma4.attention.key_length_swa": int32(2), "gemma4.attention.value_length_swa": int32(2), "gemma4.feed_forward_length": []int32{8, 16},
	})
	for want, change := range map[string]map[string]any{
		`key "gemma4.attention.sliding_window_pattern": got 0 values, want one for each of 2 layers`: {},
		`key "gemma4.attention.head_count_kv": got 1 numbers, want one for each of 2 layers`:         {"gemma4.attention.head_count_kv": []int32{1}},
		`key "gemma4.feed_forward_length": got 0 in layer 1, want at least 1`:                        {"gemma4.feed_forward_length": []int32{8, 0}},
		`key "gemma4.attention.value_length_swa": got 4, want 2, the length of keys`:                 {"gemma4.attention.value_length_swa": int32(4), "gemma4.attention.sliding_window_pattern": []bool{true, false}},
		`tensor "rope_freqs.weight": got no pair that is rotated, want factors of 1 first`:           {"gemma4.attention.sliding_window_pattern": []bool{true, false}},
		`key "gemma4.attention.shared_kv_layers": got 2, want 0 to 1`:                                {"gemma4.attention.sliding_window_pattern": []bool{true, false}, "gemma4.attention.shared_kv_layers": int32(2)},
		`key "gemma4.feed_forward_length": got 12 in layer 1, want 8`:                                {"gemma4.attention.sliding_window_pattern": []bool{true, false}, "gemma4.feed_forward_length": []int32{8, 12}},
	} {
		changed := maps.Clone(own)
		maps.Copy(changed, change)
		if _, err := open(t, changed); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}

// TestGemma4Tokenizer: ids and texts are those of transformers' GemmaTokenizer (5.24) of the same tokens and merges.
func TestGemma4Tokenizer(t *testing.T) {
	of := map[string]any{
		"tokenizer.ggml.model": "gemma4", "tokenizer.ggml.pre": nil, "tokenizer.ggml.eos_token_id": int32(1), "tokenizer.ggml.bos_token_id": int32(2), "tokenizer.ggml.unknown_token_id": int32(3),
		"tokenizer.ggml.add_bos_token": true, "tokenizer.ggml.add_space_prefix": false,
		"tokenizer.ggml.tokens":     []string{"<pad>", "<eos>", "<bos>", "<unk>", "▁", "a", "b", "ab", "▁ab", "\n", "\n\n", "<0xC3>", "<0xA9>", "▁▁", "<|turn>"},
		"tokenizer.ggml.token_type": []int32{3, 3, 3, 2, 1, 1, 1, 1, 1, 1, 1, 6, 6, 1, 4},
		"tokenizer.ggml.merges":     []string{"a b", "▁ ab", "\n \n", "▁ ▁"},
	}
	m, err := open(t, of)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.LoadDir(m.Folder)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string][]int32{
		"ab ab": {7, 8}, "  a\n\n\nb ab": {13, 5, 10, 9, 6, 8}, " é": {4, 11, 12}, "<|turn>ab<eos> x": {14, 7, 1, 4, 3}, "": nil, "▁ab": {8},
	} {
		ids, err := tok.Encode(text, true)
		if err != nil || !slices.Equal(ids, append([]int32{2}, want...)) {
			t.Errorf("%q: got %v (%v), want %v after 2", text, ids, err, want)
		}
		back := strings.NewReplacer("x", "<unk>", "▁", " ").Replace(text)
		if decoded, err := tok.Decode(want, false); err != nil || decoded != back {
			t.Errorf("%v: decoded %q (%v), want %q", want, decoded, err, back)
		}
	}
	for name, change := range map[string]map[string]any{
		"a space before texts": {"tokenizer.ggml.add_space_prefix": true}, "merges": {"tokenizer.ggml.merges": nil},
	} {
		changed := maps.Clone(of)
		maps.Copy(changed, change)
		m, err := open(t, changed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tokenizer.LoadDir(m.Folder); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestNames: what a model in a file is called.
func TestNames(t *testing.T) {
	for path, want := range map[string]string{
		"dir/m-Q4_0.gguf": "m-Q4_0", "m-00001-of-00002.gguf": "m", "m-00002-of-00002.gguf": "m", "m-00003-of-00002.gguf": "m-00003-of-00002", "sha256-0a": "sha256-0a",
	} {
		if got := Name(path); got != want {
			t.Errorf("%s is called %q, want %q", path, got, want)
		}
	}
}

// FuzzTranslate: no file makes the translation panic, nor what reads it.
func FuzzTranslate(f *testing.F) {
	for _, name := range []string{"llama", "phi3", "falcon-40b", "spm"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".gguf"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add(write(f, base(), 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := container.Parse("f.gguf", data)
		if err != nil {
			return
		}
		m, err := translate(file)
		if err != nil {
			return
		}
		tokenizer.LoadDir(m.Folder)
		w, err := m.Weights()
		if err != nil {
			return
		}
		for _, name := range w.Names() {
			w.Tensor(name)
		}
	})
}

// TestVectors: what converters widened to float32 is again as the original has it, and what that
// would round stays.
func TestVectors(t *testing.T) {
	const norm = "blk.0.attn_norm.weight"
	for name, want := range map[string]string{"llama": "F16", "llama-biases": "BF16"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name+".gguf"))
		if err != nil {
			t.Fatal(err)
		}
		for _, rounded := range []bool{false, true} {
			file, err := container.Parse(name, slices.Clone(raw))
			if err != nil {
				t.Fatal(err)
			}
			if tensor, _ := file.Tensor(norm); rounded {
				tensor.Data[0] |= 1
			}
			m, err := translate(file)
			if err != nil {
				t.Fatal(err)
			}
			w, err := m.Weights()
			if err != nil {
				t.Fatal(err)
			}
			for _, tensor := range w.Names() {
				want := want
				if rounded && tensor == "model.layers.0.input_layernorm.weight" {
					want = "F32"
				}
				view, err := w.Tensor(tensor)
				if info, _ := w.Info(tensor); err != nil || info.DType != want || view.DType.String() != want || len(view.Data) != info.Bytes {
					t.Errorf("%s, rounded %t: %s is %s, as view %s of %d bytes (%v), want %s", name, rounded, tensor, info.DType, view.DType, len(view.Data), err, want)
				}
			}
		}
	}
}

// TestFusedQKV: queries, keys and values that a converter joined are the same as those of the file
// without.
func TestFusedQKV(t *testing.T) {
	apart, err := Open(filepath.Join("testdata", "llama-biases.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer apart.Close()
	joined, err := Open(filepath.Join("testdata", "llama-fused.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	defer joined.Close()
	a, err := apart.Weights()
	if err != nil {
		t.Fatal(err)
	}
	b, err := joined.Weights()
	if err != nil || !slices.Equal(a.Names(), b.Names()) {
		t.Fatalf("tensors %v (%v), want %v", b.Names(), err, a.Names())
	}
	for _, name := range a.Names() {
		want, err := a.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := b.Tensor(name); err != nil || !slices.Equal(got.Data, want.Data) || !slices.Equal(got.Shape, want.Shape) {
			t.Errorf("%s differs: shape %v (%v), want %v", name, got.Shape, err, want.Shape)
		}
	}
}
