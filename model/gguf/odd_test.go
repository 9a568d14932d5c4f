package gguf

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	container "glimpse/checkpoints/gguf"
	"glimpse/model/tokenizer"
)

// bytesVocabulary is a byte-level vocabulary of what the texts below have, and merges that tell by which pattern words are cut.
func bytesVocabulary(changes map[string]any) map[string]any {
	all := map[string]any{
		"tokenizer.ggml.tokens":     []string{"a", "b", "3", "4", "!", "`", "Ġ", "34", "Ġ!", "Ġ`", "<end>", "Â", "½", "Â½"},
		"tokenizer.ggml.token_type": []int32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1}, "tokenizer.ggml.merges": []string{"3 4", "Ġ !", "Ġ `", "Â ½"}, "tokenizer.ggml.eos_token_id": int32(10),
	}
	maps.Copy(all, changes)
	return all
}

// TestOddFiles: what llama.cpp takes, with a warning or without a word, is taken with a note, and computes the same.
func TestOddFiles(t *testing.T) {
	plain, err := open(t, nil)
	if err != nil {
		t.Fatal(err)
	}
	config, err := fs.ReadFile(plain.Folder, "config.json")
	if err != nil || len(plain.Notes) > 0 {
		t.Fatalf("a plain file: %v, notes %q, want none", err, plain.Notes)
	}
	const pre = "words are cut as llama.cpp cuts them then"
	// 4 digits are cut into 3 and 1, a mark is apart from the space before it, ` is none of these. The characters that stand for
	// bytes are no text: ½ is one character of two bytes, whose second is written ½.
	byDefault := map[string]string{"a3334": "0 2 2 2 3", "a !": "0 6 4", "a `": "0 9", "3434": "7 2 3", "½": "13"}
	doubled := []string{"a", "b", "ab", "<end>", "a", "ab"}
	for name, c := range map[string]struct {
		changes map[string]any
		note    string
		ids     map[string]string // by text
		texts   map[int32]string  // by id
	}{
		"pre-tokenizer missing":          {bytesVocabulary(map[string]any{"tokenizer.ggml.pre": nil}), `key "tokenizer.ggml.pre": is missing: ` + pre, byDefault, nil},
		"pre-tokenizer by default":       {bytesVocabulary(map[string]any{"tokenizer.ggml.pre": "default"}), `key "tokenizer.ggml.pre": got "default": ` + pre, byDefault, nil},
		"pre-tokenizer empty":            {bytesVocabulary(map[string]any{"tokenizer.ggml.pre": ""}), `key "tokenizer.ggml.pre": got "default": ` + pre, byDefault, nil},
		"pre-tokenizer named":            {bytesVocabulary(nil), "", map[string]string{"a3334": "0 2 2 7", "a !": "0 8", "a `": "0 9"}, nil},
		"token twice":                    {map[string]any{"tokenizer.ggml.tokens": doubled, "tokenizer.ggml.token_type": []int32{1, 1, 1, 3, 1, 1}}, `tokens 0 and 4 are both "a": texts are encoded as the first`, map[string]string{"abba": "2 1 0"}, map[int32]string{0: "a", 4: "a", 5: "ab"}},
		"special token twice":            {map[string]any{"tokenizer.ggml.tokens": []string{"a", "b", "ab", "<end>", "<end>"}, "tokenizer.ggml.token_type": []int32{1, 1, 1, 3, 3}, "tokenizer.ggml.eos_token_id": int32(4)}, `tokens 3 and 4 are both "<end>"`, map[string]string{"ab<end>": "2 3"}, map[int32]string{4: "<end>"}},
		"more types than tokens":         {map[string]any{"tokenizer.ggml.token_type": []int32{1, 1, 1, 3, 1}}, `key "tokenizer.ggml.token_type": got 5 for 4 tokens: the last 1 are ignored`, map[string]string{"ab<end>": "2 3"}, nil},
		"rows":                           {map[string]any{"llama.vocab_size": int32(5)}, `key "llama.vocab_size": got 5, but token_embd.weight has 4 rows, which count`, nil, nil},
		"key that nothing knows":         {map[string]any{"llama.merged_from": "two others"}, `key "llama.merged_from": got "two others", which is ignored: llama.cpp computes by no key of this name`, nil, nil},
		"group that nothing knows":       {map[string]any{"llama.vision.block_count": int32(24)}, `key "llama.vision.block_count": got 24, which is ignored`, nil, nil},
		"list that nothing knows":        {map[string]any{"llama.languages": []string{"en"}}, `key "llama.languages": got array of string, which is ignored`, nil, nil},
		"scale that is none":             {map[string]any{"llama.logit_scale": float32(0), "llama.residual_scale": float32(1)}, "", nil, nil},
		"groups of experts that are one": {map[string]any{"llama.expert_group_count": int32(1), "llama.expert_weights_scale": float32(1)}, "", nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := open(t, c.changes)
			if err != nil {
				t.Fatal(err)
			}
			if notes := strings.Join(m.Notes, "\n"); !strings.Contains(notes, c.note) || c.note == "" && notes != "" {
				t.Errorf("notes %q, want %q", notes, c.note)
			}
			if c.ids == nil { // the architecture's keys
				if got, err := fs.ReadFile(m.Folder, "config.json"); err != nil || string(got) != string(config) {
					t.Errorf("config.json is %s (%v), want that without the key: %s", got, err, config)
				}
				return
			}
			tok, err := tokenizer.LoadDir(m.Folder)
			if err != nil {
				t.Fatal(err)
			}
			for text, want := range c.ids {
				if got, err := tok.Encode(text, false); err != nil || strings.Trim(fmt.Sprint(got), "[]") != want {
					t.Errorf("%q: ids %v (%v), want %s", text, got, err, want)
				}
			}
			for id, want := range c.texts {
				if got, err := tok.Decode([]int32{id}, false); err != nil || got != want {
					t.Errorf("id %d: %q (%v), want %q", id, got, err, want)
				}
			}
			if special := tok.IsSpecial(4); special != (name == "special token twice") {
				t.Errorf("id 4 is special: %t", special)
			}
		})
	}
}

// TestTrailingBytes: what follows the tensors of a file is noted, of a split one for the part.
func TestTrailingBytes(t *testing.T) {
	file, err := container.Parse("m.gguf", append(write(t, base(), 4), make([]byte, 4096)...))
	if err != nil {
		t.Fatal(err)
	}
	m, err := translate(file)
	if err != nil || len(m.Notes) != 1 || !strings.HasPrefix(m.Notes[0], `m.gguf: 4096 bytes follow tensor "token_embd.weight" at offset `) {
		t.Errorf("notes %q (%v), want one of 4096 bytes", m.Notes, err)
	}
}

// TestComputedKeys: every key by which llama.cpp computes in some architecture is known here, or refused by its name.
func TestComputedKeys(t *testing.T) {
	// LLM_KV_NAMES of llama.cpp, those of architectures.
	names := strings.Fields(`vocab_size context_length embedding_length embedding_length_out embedding_length_per_layer_input features_length block_count
		leading_dense_block_count feed_forward_length expert_feed_forward_length expert_shared_feed_forward_length expert_chunk_feed_forward_length swiglu_clamp_exp
		swiglu_clamp_shexp use_parallel_residual expert_count expert_used_count expert_shared_count expert_group_count expert_group_used_count
		expert_weights_scale expert_weights_norm expert_gating_func expert_group_scale experts_per_group moe_every_n_layers moe_latent_size nextn_predict_layers
		n_deepstack_layers deepstack_mapping hidden_activation pooling_type logit_scale decoder_start_token_id decoder_block_count attn_logit_softcapping
		router_logit_softcapping final_logit_softcapping swin_norm rescale_every_n_layers time_mix_extra_dim time_decay_extra_dim residual_scale embedding_scale
		token_shift_count interleave_moe_layer_step full_attention_interval attention.head_count attention.head_count_kv attention.max_alibi_bias attention.clamp_kqv
		attention.key_length attention.value_length attention.layer_norm_epsilon attention.layer_norm_rms_epsilon attention.group_norm_epsilon
		attention.group_norm_groups attention.causal attention.q_lora_rank attention.kv_lora_rank attention.decay_lora_rank attention.iclr_lora_rank
		attention.relative_buckets_count attention.sliding_window attention.sliding_window_pattern attention.scale attention.output_scale attention.value_scale
		attention.temperature_length attention.temperature_scale attention.key_length_mla attention.value_length_mla attention.key_length_swa
		attention.indexer.head_count attention.compress_ratios attention.shared_kv_layers attention.recurrent_layers hyper_connection.count hash_layer_count
		rope.dimension_count rope.dimension_count_swa rope.dimension_sections rope.freq_base_swa rope.scaling.type
		rope.scaling.alpha rope.scaling.attn_factor ssm.conv_kernel ssm.dt_b_c_rms
		kda.head_dim wkv.head_size posnet.block_count convnext.block_count target_layers norm_before_residual shortconv.l_cache dense_2_feat_in`)
	known := slices.Collect(maps.Keys(base()))
	known = append(known, "llama.vocab_size", "llama.attention.head_count_kv", "llama.attention.sliding_window") // which have their own tests
	if got, err := open(t, map[string]any{"llama.attention.causal": true, "llama.pooling_type": int32(0)}); err != nil || len(got.Notes) > 0 {
		t.Errorf("neutral values: %v, notes %q", err, got.Notes)
	}
	for _, name := range names {
		key := "llama." + name
		if slices.Contains(known, key) {
			continue
		}
		for _, value := range []any{int32(7), float32(7), "7"} {
			if _, err := open(t, map[string]any{key: value}); err == nil || !strings.Contains(err.Error(), `"llama.`) {
				t.Errorf("%s of %T: error %v, want one of the key", key, value, err)
			}
		}
	}
}
