package gguf

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"glimpse/kernels/formats"
)

// config is config.json.
type config map[string]any

func (c config) int(key string) int {
	n, _ := c[key].(int)
	return n
}

// config translates the keys of the architecture.
func (m *metadata) config(arch *architecture) config {
	heads, hidden := m.need("attention.head_count"), m.need("embedding_length")
	c := config{
		"architectures": []string{arch.class}, "model_type": arch.modelType,
		"hidden_size": hidden, "num_hidden_layers": m.need("block_count"),
		"num_attention_heads": heads, "num_key_value_heads": heads, "max_position_embeddings": m.need("context_length"),
	}
	if arch.class == gemma4 { // whose layers differ
		c["intermediate_size"], c["num_key_value_heads"] = m.layers("feed_forward_length", c)[0], m.layers("attention.head_count_kv", c)[0]
	} else {
		if n, ok := m.int("expert_count"); !ok || n == 0 || m.file.Kind(m.prefix+"feed_forward_length") != "" { // a mixture of experts may have no MLP
			c["intermediate_size"] = m.need("feed_forward_length")
		}
		if arch.class == lfm2 { // 0 of layers that do not attend
			c["num_key_value_heads"] = slices.Max(append(m.kvHeads(), 0))
		} else if n, ok := m.int("attention.head_count_kv"); ok {
			c["num_key_value_heads"] = n
		}
	}
	headDim := hidden / max(heads, 1)
	if n, ok := m.int("attention.key_length"); ok {
		headDim = n
	}
	if n, ok := m.int("attention.value_length"); ok && n != headDim {
		m.reportFault("key %q: got %d, want %d, the length of keys", m.prefix+"attention.value_length", n, headDim)
	}
	if kv := c.int("num_key_value_heads"); m.err == nil && (headDim < 2 || headDim%2 != 0 || kv < 1 || heads%kv != 0) {
		m.reportFault("keys %q, %q, %q: got %d heads of %d dimensions and %d KV heads, want an even number of dimensions and a divisor of the heads",
			m.prefix+"attention.head_count", m.prefix+"attention.key_length", m.prefix+"attention.head_count_kv", heads, headDim, kv)
	}
	c["head_dim"] = headDim
	embedding, ok := m.file.Tensor("token_embd.weight")
	if !ok || len(embedding.Shape) != 2 {
		m.reportFault("tensor \"token_embd.weight\": got shape %v, want one of [tokens, %d]", embedding.Shape, hidden)
	} else {
		c["vocab_size"] = embedding.Shape[0]
		if n, ok := m.int("vocab_size"); ok && n != embedding.Shape[0] {
			m.note("key %q: got %d, but token_embd.weight has %d rows, which count", m.prefix+"vocab_size", n, embedding.Shape[0])
		}
	}
	c["tie_word_embeddings"] = !m.hasTensor("output.weight")
	from, to := "attention.layer_norm_rms_epsilon", "rms_norm_eps"
	if arch.class == "FalconForCausalLM" {
		from, to = "attention.layer_norm_epsilon", "layer_norm_epsilon"
	}
	if c[to], ok = m.number(from); !ok && m.err == nil {
		m.reportFault("key %q is missing", m.prefix+from)
	}
	m.rope(c, arch.partial)
	if arch.own != nil {
		arch.own(m, c)
	}
	return c
}

// hasTensor tells whether there is a tensor of the name.
func (m *metadata) hasTensor(tensor string) bool {
	_, ok := m.file.Tensor(tensor)
	return ok
}

// ropeTensors are factors on the wavelengths of RoPE.
var ropeTensors = []string{"rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"}

// rope translates RoPE and its scaling; partial tells that a part of a head may be rotated.
func (m *metadata) rope(c config, partial bool) {
	c["rope_theta"] = json.Number("10000") // llama.cpp's default
	if theta, ok := m.number("rope.freq_base"); ok {
		c["rope_theta"] = theta
	}
	headDim := c.int("head_dim")
	if n, ok := m.int("rope.dimension_count"); ok && n != headDim && !partial {
		m.reportFault("key %q: got %d, want %d, all dimensions of a head", m.prefix+"rope.dimension_count", n, headDim)
	} else if ok && n != headDim {
		factor := float64(n) / float64(headDim)
		if int(factor*float64(headDim)) != n { // which readers compute
			factor = math.Nextafter(factor, 1)
		}
		c["partial_rotary_factor"] = factor
	}
	kind, _ := value(m, m.prefix+"rope.scaling.type", m.file.String)
	factor, scaled := m.number("rope.scaling.factor")
	if !scaled {
		factor, scaled = m.number("rope.scale_linear") // of old files
	}
	scaled = scaled && !is(factor, 0) && !is(factor, 1)
	single, short, long := m.factors(ropeTensors[0]), m.factors(ropeTensors[1]), m.factors(ropeTensors[2])
	switch {
	case short != nil || long != nil || kind == "longrope":
		m.longRoPE(c, short, long)
	case single != nil && (scaled || kind == "yarn"):
		m.reportFault("tensor %q beside key %q %q: got both, want one of them", ropeTensors[0], m.prefix+"rope.scaling.type", kind)
	case single != nil: // Llama 3.1 and later
		c["rope_scaling"] = map[string]any{"rope_type": "longrope", "short_factor": single, "long_factor": single, "attention_factor": 1}
	case kind == "yarn":
		m.yarn(c, factor)
	case kind == "" || kind == "linear":
		if scaled {
			c["rope_scaling"] = map[string]any{"rope_type": "linear", "factor": factor}
		}
	case kind != "none":
		m.reportFault("key %q: got %.60q, want none, linear, yarn or longrope", m.prefix+"rope.scaling.type", kind)
	}
}

// longRoPE sets factors of every frequency.
func (m *metadata) longRoPE(c config, short, long []json.Number) {
	scaling := map[string]any{"rope_type": "longrope", "short_factor": short, "long_factor": long}
	context := float64(c.int("max_position_embeddings"))
	original, given := m.int("rope.scaling.original_context_length")
	if given {
		c["original_max_position_embeddings"] = original
	}
	// The factor on cosines and sines is left out where it is what readers compute themselves.
	usual := math.Sqrt(1 + math.Log(max(1, context/float64(original)))/math.Log(float64(original)))
	if attention, ok := m.number("rope.scaling.attn_factor"); ok && !is(decimal(float64(float32(usual))), float(attention)) {
		scaling["attention_factor"] = attention
	}
	c["rope_scaling"] = scaling
}

// yarn sets the scaling of YaRN.
func (m *metadata) yarn(c config, factor json.Number) {
	scaling := map[string]any{"rope_type": "yarn", "factor": factor}
	if original, ok := m.int("rope.scaling.original_context_length"); ok {
		scaling["original_max_position_embeddings"] = original
	}
	m.numbers(scaling, true, map[string]string{"rope.scaling.yarn_attn_factor": "attention_factor", "rope.scaling.yarn_beta_fast": "beta_fast", "rope.scaling.yarn_beta_slow": "beta_slow"})
	c["rope_scaling"] = scaling
}

func float(n json.Number) float64 {
	x, _ := n.Float64()
	return x
}

// factors are the values of a tensor of ropeTensors; nil where there is none.
func (m *metadata) factors(tensor string) []json.Number {
	t, ok := m.file.Tensor(tensor)
	if !ok {
		return nil
	}
	if _, err := formats.All.Lookup(t.Format.Name); err != nil || len(t.Shape) != 1 {
		m.reportFault("tensor %q: got %s of shape %v, want a list of floats", tensor, t.Format.Name, t.Shape)
		return nil
	}
	values := make([]float32, t.Shape[0])
	t.Format.Decode(values, t.Data)
	out := make([]json.Number, len(values))
	for i, x := range values {
		if !(x > 0) || math.IsInf(float64(x), 0) {
			m.reportFault("tensor %q: element %d is %v, want a positive number", tensor, i, x)
			return nil
		}
		out[i] = decimal(float64(x))
	}
	return out
}

// biasConfig looks for the biases that a family makes optional.
func biasConfig(m *metadata, c config) {
	c["attention_bias"], c["mlp_bias"] = m.hasTensor("blk.0.attn_q.bias"), m.hasTensor("blk.0.ffn_up.bias")
}

func llamaConfig(m *metadata, c config) {
	biasConfig(m, c)
	if experts, ok := m.int("expert_count"); ok && experts > 0 {
		c["architectures"], c["model_type"] = []string{"MixtralForCausalLM"}, "mixtral"
		c["num_local_experts"], c["num_experts_per_tok"] = experts, m.need("expert_used_count")
		if c["attention_bias"] == true || m.hasTensor("blk.0.ffn_gate_inp.bias") {
			m.reportFault("tensors of biases beside key %q: no Mixtral has them", m.prefix+"expert_count")
		}
		return
	}
	if window, ok := m.int("attention.sliding_window"); ok && window > 0 { // Mistral 7B v0.1
		mistralConfig(m, c)
		c["architectures"], c["model_type"], c["sliding_window"] = []string{"MistralForCausalLM"}, "mistral", window
	}
}

// expertsConfig are the keys of experts, whose width is a key of its own.
func expertsConfig(m *metadata, c config, count string) {
	c[count], c["num_experts_per_tok"] = m.need("expert_count"), m.need("expert_used_count")
	c["moe_intermediate_size"] = m.need("expert_feed_forward_length")
	if normalised, ok := value(m, m.prefix+"expert_weights_norm", m.file.Bool); ok {
		c["norm_topk_prob"] = normalised
	}
	var dense []int
	for l := range c.int("num_hidden_layers") {
		if !m.hasTensor(fmt.Sprintf("blk.%d.ffn_gate_inp.weight", l)) {
			dense = append(dense, l)
		}
	}
	c["mlp_only_layers"] = dense
}

func qwen3MoEConfig(m *metadata, c config) {
	c["norm_topk_prob"] = true // which llama.cpp takes for all of them
	biasConfig(m, c)
	expertsConfig(m, c, "num_experts")
}

func qwen2MoEConfig(m *metadata, c config) {
	c["qkv_bias"] = m.hasTensor("blk.0.attn_q.bias")
	expertsConfig(m, c, "num_experts")
	c["shared_expert_intermediate_size"] = m.need("expert_shared_feed_forward_length")
}

// olmoConfig is of OLMo 2, or, with windows, of OLMo 3.
func olmoConfig(m *metadata, c config) {
	biasConfig(m, c)
	window, ok := m.int("attention.sliding_window")
	if !ok || window == 0 {
		return
	}
	c["architectures"], c["model_type"], c["sliding_window"] = []string{"Olmo3ForCausalLM"}, "olmo3", window
	slides, ok := value(m, m.prefix+"attention.sliding_window_pattern", m.file.Bools)
	if !ok {
		return
	}
	var types []string
	for _, s := range slides {
		types = append(types, map[bool]string{true: "sliding_attention", false: "full_attention"}[s])
	}
	c["layer_types"] = types
}

// gemmaConfig is of Gemma 2 and 3. Files do not say the scale of queries, which the largest models have otherwise, nor which
// layers have windows.
func gemmaConfig(m *metadata, c config) {
	layers, third := c.int("num_hidden_layers"), c["model_type"] == "gemma3_text"
	c["hidden_activation"], c["query_pre_attn_scalar"] = "gelu_pytorch_tanh", c.int("head_dim")
	if layers == 62 && third || layers == 46 && !third { // of 27B, as llama.cpp has it
		c["query_pre_attn_scalar"] = c.int("hidden_size") / max(1, c.int("num_attention_heads"))
	}
	c["torch_dtype"] = "bfloat16" // embeddings are scaled in it
	windowConfig(m, c)
	if pattern, ok := m.int("attention.sliding_window_pattern"); ok {
		c["sliding_window_pattern"] = pattern
	}
	m.numbers(c, false, map[string]string{"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping", "rope.freq_base_swa": "rope_local_base_freq"})
	if _, ok := m.number("rope.freq_base"); !ok && third {
		delete(c, "rope_theta")
	}
}

func gptOssConfig(m *metadata, c config) {
	c["attention_bias"], c["sliding_window"] = m.hasTensor("blk.0.attn_q.bias"), m.need("attention.sliding_window")
	c["num_local_experts"], c["num_experts_per_tok"] = m.need("expert_count"), m.need("expert_used_count")
	c["intermediate_size"] = m.need("expert_feed_forward_length")
	if scaling, ok := c["rope_scaling"].(map[string]any); ok && scaling["rope_type"] == "yarn" {
		scaling["truncate"] = false // which files do not say
	} else {
		m.reportFault("key %q: got %v, want yarn, as every gpt-oss has it", m.prefix+"rope.scaling.type", c["rope_scaling"])
	}
}

const lfm2 = "Lfm2ForCausalLM"

// kvHeads are the KV heads of every layer.
func (m *metadata) kvHeads() (heads []int) {
	values, _ := value(m, m.prefix+"attention.head_count_kv", m.file.Ints)
	for _, n := range values {
		heads = append(heads, int(min(max(n, 0), math.MaxInt32)))
	}
	return heads
}

// lfm2Config is of LFM2, whose layers without KV heads have a convolution.
func lfm2Config(m *metadata, c config) {
	c["norm_eps"], c["conv_L_cache"], c["block_auto_adjust_ff_dim"] = c["rms_norm_eps"], m.need("shortconv.l_cache"), false
	var types []string
	for _, n := range m.kvHeads() {
		if n != 0 && n != c["num_key_value_heads"] {
			m.reportFault("key %q: got %d beside %d, want as many in every layer that attends", m.prefix+"attention.head_count_kv", n, c["num_key_value_heads"])
		}
		types = append(types, map[bool]string{true: "full_attention", false: "conv"}[n > 0])
	}
	c["layer_types"] = types
}

func glm4Config(m *metadata, c config) { c["attention_bias"] = m.hasTensor("blk.0.attn_q.bias") }

func glm4MoEConfig(m *metadata, c config) {
	if further, ok := m.int("nextn_predict_layers"); ok { // which are counted as layers
		c["num_nextn_predict_layers"], c["num_hidden_layers"] = further, c.int("num_hidden_layers")-further
	}
	glm4Config(m, c)
	c["use_qk_norm"] = m.hasTensor("blk.0.attn_q_norm.weight")
	expertsConfig(m, c, "n_routed_experts")
	for from, to := range map[string]string{
		"expert_shared_count": "n_shared_experts", "leading_dense_block_count": "first_k_dense_replace", "expert_group_count": "n_group", "expert_group_used_count": "topk_group",
	} {
		if n, ok := m.int(from); ok {
			c[to] = n
		}
	}
	m.numbers(c, true, map[string]string{"expert_weights_scale": "routed_scaling_factor"})
	if gating, ok := m.int("expert_gating_func"); ok && gating != 2 {
		m.reportFault("key %q: got %d, want 2, the logistic function", m.prefix+"expert_gating_func", gating)
	}
}

// mistralConfig is of Mistral, or, where queries grow with their positions, of Ministral 3.
func mistralConfig(m *metadata, c config) {
	c["sliding_window"] = nil
	scaling, _ := c["rope_scaling"].(map[string]any)
	if n, ok := m.number("rope.scaling.yarn_log_multiplier"); ok && !is(n, 0) && scaling != nil {
		scaling["mscale"], scaling["mscale_all_dim"] = 1, n
	}
	beta, ok := m.number("attention.temperature_scale")
	if !ok || is(beta, 0) {
		return
	}
	if scaling["rope_type"] != "yarn" {
		m.reportFault("key %q: got %s, want it beside key %q of yarn alone", m.prefix+"attention.temperature_scale", beta, m.prefix+"rope.scaling.type")
		return
	}
	scaling["llama_4_scaling_beta"] = beta
	c["architectures"], c["model_type"] = []string{"Ministral3ForCausalLM"}, "ministral3"
}

func seedOssConfig(m *metadata, c config) {
	c["attention_bias"], c["attention_out_bias"], c["mlp_bias"] = m.hasTensor("blk.0.attn_q.bias"), m.hasTensor("blk.0.attn_output.bias"), m.hasTensor("blk.0.ffn_up.bias")
}

func graniteConfig(m *metadata, c config) {
	c["attention_multiplier"] = 1 / math.Sqrt(float64(c.int("head_dim"))) // where a file gives none
	m.numbers(c, false, map[string]string{
		"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier", "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling",
	})
	// llama.cpp takes it for whether there is RoPE at all.
	if rotates, ok := value(m, m.prefix+"rope.scaling.finetuned", m.file.Bool); ok && !rotates {
		m.reportFault("key %q: got false, want true: no Granite 3 is without RoPE", m.prefix+"rope.scaling.finetuned")
	}
}

// windowConfig is of families whose every layer may have a window, or every other one.
func windowConfig(m *metadata, c config) {
	c["sliding_window"] = nil
	if window, ok := m.int("attention.sliding_window"); ok && window > 0 {
		c["sliding_window"] = window
	}
}

func falconConfig(m *metadata, c config) {
	kv, twoNorms := c.int("num_key_value_heads"), m.hasTensor("blk.0.attn_norm_2.weight")
	grouped := kv > 1 || twoNorms
	c["ffn_hidden_size"], c["num_kv_heads"], c["multi_query"], c["new_decoder_architecture"] = c["intermediate_size"], kv, !grouped, grouped
	c["alibi"], c["parallel_attn"], c["bias"] = false, true, m.hasTensor("blk.0.attn_qkv.bias")
	if grouped {
		c["num_ln_in_parallel_attn"] = 1
		if twoNorms {
			c["num_ln_in_parallel_attn"] = 2
		}
	}
}

// generation translates the ids of tokens that begin and end texts, for config.json, and all of
// generation_config.json.
func (m *metadata) generation() (ids config, generation map[string]any) {
	ids, generation = config{}, map[string]any{}
	token := func(name string) (n int64, ok bool) { return value(m, "tokenizer.ggml."+name+"_token_id", m.file.Int) }
	if id, ok := token("bos"); ok {
		ids["bos_token_id"] = id
	}
	var ends []int64
	for _, name := range []string{"eos", "eot", "eom"} {
		if id, ok := token(name); ok && !slices.Contains(ends, id) {
			ends = append(ends, id)
		}
	}
	if len(ends) > 0 {
		ids["eos_token_id"] = ends
	}
	if id, ok := token("padding"); ok {
		ids["pad_token_id"] = id
	}
	maps.Copy(generation, ids)
	if suppressed, ok := value(m, "tokenizer.ggml.suppress_tokens", m.file.Ints); ok {
		generation["suppress_tokens"] = suppressed
	}
	m.sampling(generation)
	return ids, generation
}

// sampling translates what the file says about how the model wants to be sampled.
func (m *metadata) sampling(generation map[string]any) {
	of := *m
	of.prefix, of.err = "general.sampling.", nil
	of.numbers(generation, true, map[string]string{"temp": "temperature", "top_p": "top_p", "min_p": "min_p", "penalty_repeat": "repetition_penalty"})
	if k, ok := of.int("top_k"); ok {
		generation["top_k"] = max(k, 0) // llama.cpp takes what is not positive for all tokens
	}
	if temperature, ok := generation["temperature"].(json.Number); ok {
		generation["do_sample"] = !is(temperature, 0)
	}
	if of.err != nil {
		m.reportFault("%w", of.err)
	}
}
