package model_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

const lfsPointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 5\n"

// noted opens the folder and wants notes with the given parts, in this order.
func (f folder) noted(t *testing.T, parts ...string) {
	t.Helper()
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Notes) != len(parts) {
		t.Fatalf("notes %q, want %d", m.Notes, len(parts))
	}
	for i, p := range parts {
		if !strings.Contains(m.Notes[i], p) {
			t.Errorf("note %q, want it to say %q", m.Notes[i], p)
		}
	}
}

// TestNotedTensors: buffers that older checkpoints store decide nothing.
func TestNotedTensors(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	f.noted(t)
	mask := checkpoints.TensorView{Name: "model.layers.0.self_attn.bias", DType: kernels.F32, Shape: []int{1, 1, 2, 2}, Data: make([]byte, 16)}
	f.tensors(same,
		checkpoints.F32Tensor("model.layers.0.self_attn.rotary_emb.inv_freq", []int{2}, []float32{1, 0.1}),
		checkpoints.F32Tensor("model.layers.1.self_attn.rotary_emb.cos_cached", []int{1}, []float32{1}),
		checkpoints.F32Tensor("model.layers.1.self_attn.masked_bias", nil, []float32{-1e4}), mask)
	f.noted(t, `weights: 4 tensors are not used: "model.layers.0.self_attn.bias", "model.layers.0.self_attn.rotary_emb.inv_freq"`)
	// A mask may hold infinities, which do not make a pass infinite.
	for i := range 4 {
		copy(mask.Data[4*i:], []byte{0, 0, 0x80, 0xff})
	}
	f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		if v.Name == mask.Name {
			return &mask
		}
		return &v
	})
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.ExplainNonFinite(); !strings.Contains(err.Error(), "although all weights are finite") {
		t.Error(err)
	}
	// A bias that would be added is no mask.
	f.tensors(same, checkpoints.F32Tensor("model.layers.1.self_attn.bias", []int{1}, []float32{1}))
	f.refused(t, `"model.layers.1.self_attn.bias": surplus`)
}

// TestSurplusIsShort: names come from the file, in any number.
func TestSurplusIsShort(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	var more []checkpoints.TensorView
	for i := range 2000 {
		more = append(more, checkpoints.F32Tensor(fmt.Sprintf("\x1b[2J%04d", i), []int{1}, []float32{1}))
	}
	err := f.tensors(same, more...).refused(t, `"\x1b[2J0019": surplus`, "and 1980 more")
	if strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 4000 {
		t.Errorf("the error has %d bytes: %.80q", len(err.Error()), err)
	}
}

// TestNotedTokens: ids that the model does not have are nowhere, which is for the user
// to know.
func TestNotedTokens(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	f.config(map[string]any{"eos_token_id": []int{1, 40, -1}, "bos_token_id": 99})
	f.noted(t, "config.json: bos_token_id 99 is not one of the 40 tokens", "config.json: eos_token_id 40, -1 are not of the 40 tokens")
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	if m.Config.BOS != -1 || !slices.Equal(m.Config.EOS, []int32{1}) {
		t.Errorf("begin %d, end %v", m.Config.BOS, m.Config.EOS)
	}
	f.write("generation_config.json", []byte(`{"eos_token_id": [1, 77]}`))
	f.noted(t, "bos_token_id", "generation_config.json: eos_token_id 77 is not one of the 40 tokens")
}

// TestNotedTokenizer: one with more tokens than the embedding has rows works for the
// texts that it makes other tokens of.
func TestNotedTokenizer(t *testing.T) {
	f := newFolder(t, modeltest.Llama{})
	var tokens []string
	for i := range 48 {
		tokens = append(tokens, fmt.Sprintf(`"w%d": %d`, i, i))
	}
	f.write("tokenizer.json", []byte(`{"version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null,
		"decoder": null, "model": {"type": "WordLevel", "vocab": {`+strings.Join(tokens, ", ")+`}, "unk_token": "w0"}}`))
	f.noted(t, "tokenizer.json: 48 tokens for 40 rows of the embedding")
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"w3 w39": "", "w3 w40": "id 40, want 0 to 39"} {
		ids, err := m.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		_, err = runner.New(m).Prefill(t.Context(), kvcache.New(m), ids, runner.PrefillOptions{})
		if got := fmt.Sprint(err); want == "" && err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
}

// TestForeignFiles: a byte order mark is nothing, and what was not downloaded is called
// by its name.
func TestForeignFiles(t *testing.T) {
	marked := newFolder(t, modeltest.Llama{})
	marked.write("generation_config.json", []byte(`{"eos_token_id": 7}`))
	marked.write("tokenizer_config.json", []byte(`{"bos_token": "b"}`))
	marked.write("tokenizer.json", []byte(`{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"w0": 0, "b": 1}, "unk_token": "w0"}}`))
	for _, name := range []string{"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"} {
		marked.write(name, append([]byte("\xef\xbb\xbf"), marked.fs[name].Data...))
	}
	m, err := marked.open()
	if err != nil {
		t.Fatal(err)
	}
	tokenizer, err := m.NeedTokenizer()
	if err != nil || tokenizer.Config().BOS != "b" || !slices.Equal(m.Config.EOS, []int32{7}) {
		t.Errorf("with byte order marks: %v, end tokens %v", err, m.Config.EOS)
	}
	for _, name := range []string{"config.json", "generation_config.json", "model.safetensors"} {
		f := newFolder(t, modeltest.Llama{})
		f.write(name, []byte(lfsPointer))
		f.refused(t, name+": a Git LFS pointer, not the file itself")
		f.write(name, []byte("<!doctype html>\n<title>Sign in</title>"))
		f.refused(t, name+": an HTML page, not the file itself")
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja"} {
		f := newFolder(t, modeltest.Llama{})
		f.write("tokenizer.json", []byte(`{"version": "1.0", "model": {"type": "WordLevel", "vocab": {"w0": 0}, "unk_token": "w0"}}`))
		f.write(name, []byte(lfsPointer))
		m, err := f.open()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.NeedTokenizer(); err == nil || !strings.Contains(err.Error(), name+": a Git LFS pointer") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
