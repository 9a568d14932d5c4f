package gguf

import (
	"slices"
	"strconv"
)

const gemma4 = "Gemma4ForCausalLM"

// layers are the numbers of a key of every layer; one number is that of all.
func (m *metadata) layers(key string, c config) []int {
	n := max(1, min(c.int("num_hidden_layers"), 1<<12)) // which is checked elsewhere
	if kind := m.file.Kind(m.prefix + key); kind == "" || kind[0] != 'a' {
		return slices.Repeat([]int{m.need(key)}, n)
	}
	out := make([]int, n)
	values, ok := value(m, m.prefix+key, m.file.Ints)
	if ok && len(values) != n {
		m.reportFault("key %q: got %d numbers, want one for each of %d layers", m.prefix+key, len(values), n)
		return out
	}
	for l, v := range values {
		if out[l] = int(v); v < 1 || v > 1<<31-1 {
			m.reportFault("key %q: got %d in layer %d, want at least 1", m.prefix+key, v, l)
		}
	}
	return out
}

// gemma4Config is of Gemma 4, whose layers with a window have KV heads and a rotation of their own, and whose last layers may read the
// keys and values of those before.
func gemma4Config(m *metadata, c config) {
	n := c.int("num_hidden_layers")
	c["hidden_activation"], c["attention_bias"], c["sliding_window"] = "gelu_pytorch_tanh", m.hasTensor("blk.0.attn_q.bias"), m.need("attention.sliding_window")
	c["torch_dtype"] = "bfloat16" // embeddings are scaled in it
	slides, ok := value(m, m.prefix+"attention.sliding_window_pattern", m.file.Bools)
	if !ok || len(slides) != n {
		m.reportFault("key %q: got %d values, want one for each of %d layers", m.prefix+"attention.sliding_window_pattern", len(slides), n)
		return
	}
	whole, own := c.int("head_dim"), map[string]any{}
	c["head_dim"] = m.need("attention.key_length_swa")
	if dim := m.need("attention.value_length_swa"); dim != c["head_dim"] {
		m.reportFault("key %q: got %d, want %d, the length of keys", m.prefix+"attention.value_length_swa", dim, c["head_dim"])
	}
	heads, types := m.layers("attention.head_count_kv", c), make([]string, n)
	for l, s := range slides {
		types[l] = map[bool]string{true: "sliding_attention", false: "full_attention"}[s]
		if s {
			c["num_key_value_heads"] = heads[l]
			continue
		}
		own[strconv.Itoa(l)] = map[string]int{"head_dim": whole, "num_key_value_heads": heads[l]}
		if !m.hasTensor("blk."+strconv.Itoa(l)+".attn_v.weight") && m.hasTensor("blk."+strconv.Itoa(l)+".attn_k.weight") {
			c["attention_k_eq_v"] = true
		}
	}
	c["layer_types"], c["per_layer_config"] = types, own
	m.gemma4Rotations(c)
	m.gemma4Shared(c)
	c["hidden_size_per_layer_input"], c["vocab_size_per_layer_input"] = 0, c["vocab_size"]
	if width, ok := m.int("embedding_length_per_layer_input"); ok {
		c["hidden_size_per_layer_input"] = width
	}
	if id, ok := value(m, "tokenizer.ggml.padding_token_id", m.file.Int); ok {
		c["pad_token_id"] = int(id)
	}
	m.numbers(c, false, map[string]string{"final_logit_softcapping": "final_logit_softcapping"})
	if experts, ok := m.int("expert_count"); ok && experts > 0 {
		c["enable_moe_block"], c["num_experts"], c["top_k_experts"] = true, experts, m.need("expert_used_count")
		c["moe_intermediate_size"] = m.need("expert_feed_forward_length")
	}
}

// gemma4Rotations sets the two rotations. Layers without a window rotate the first of a head's pairs; files say so by factors that
// take the others' frequencies to nothing.
func (m *metadata) gemma4Rotations(c config) {
	full := map[string]any{"rope_type": "proportional", "rope_theta": c["rope_theta"]}
	delete(c, "rope_theta")
	delete(c, "rope_scaling")
	const nothing = 1e29
	factors, rotated := m.factors(ropeTensors[0]), 0
	for rotated < len(factors) && is(factors[rotated], 1) {
		rotated++
	}
	for _, f := range factors[rotated:] {
		if float(f) < nothing {
			m.reportFault("tensor %q: got %s after %d factors of 1, want 1 or %v", ropeTensors[0], f, rotated, nothing)
			return
		}
	}
	if rotated == 0 {
		m.reportFault("tensor %q: got no pair that is rotated, want factors of 1 first", ropeTensors[0])
		return
	}
	full["partial_rotary_factor"] = float64(rotated) / float64(len(factors))
	windows := map[string]any{"rope_type": "default", "rope_theta": 10000}
	if theta, ok := m.number("rope.freq_base_swa"); ok {
		windows["rope_theta"] = theta
	}
	if dim, ok := m.int("rope.dimension_count_swa"); ok && dim != c["head_dim"] {
		m.reportFault("key %q: got %d, want %d, all dimensions of a head", m.prefix+"rope.dimension_count_swa", dim, c["head_dim"])
	}
	c["rope_parameters"] = map[string]any{"full_attention": full, "sliding_attention": windows}
}

// gemma4Shared sets how many layers read the keys and values of others, and whether their MLPs are twice as wide.
func (m *metadata) gemma4Shared(c config) {
	shared, _ := m.int("attention.shared_kv_layers")
	n, widths := c.int("num_hidden_layers"), m.layers("feed_forward_length", c)
	if shared < 0 || shared >= n {
		m.reportFault("key %q: got %d, want 0 to %d", m.prefix+"attention.shared_kv_layers", shared, n-1)
		return
	}
	c["num_kv_shared_layers"], c["use_double_wide_mlp"] = shared, widths[n-1] == 2*widths[0] && shared > 0
	for l, width := range widths {
		want := widths[0]
		if l >= n-shared && c["use_double_wide_mlp"] == true {
			want *= 2
		}
		if width != want {
			m.reportFault("key %q: got %d in layer %d, want %d", m.prefix+"feed_forward_length", width, l, want)
			return
		}
	}
}
