package gguf

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	container "glimpse/checkpoints/gguf"
	"glimpse/internal/registry"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// architecture is one of llama.cpp's as transformers has it.
type architecture struct {
	class, modelType string // of config.json: architectures[0], model_type

	// interleaved tells that the rows of queries and keys are in the order of Llama's first
	// implementation: llama.cpp rotates neighbours there (LLAMA_ROPE_TYPE_NORM).
	interleaved bool
	// names are the modules by their names in files, a layer's behind "blk."; tensors of a module that is none in the model
	// by their own.
	names map[string]string
	// layers is what stands before a layer's number.
	layers string
	// own adds to config.json what the architecture alone has; nil for nothing.
	own func(m *metadata, c config)
	// partial tells that a part of a head may be rotated.
	partial bool
}

// architectures are by llama.cpp's names.
var architectures = registry.Registry[*architecture]{Noun: "architecture"}

// Architectures are the names of those that can be read, as general.architecture has them.
func Architectures() []string { return architectures.Names() }

func init() {
	llama := map[string]string{
		"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
		"blk.attn_norm": "input_layernorm", "blk.ffn_norm": "post_attention_layernorm",
		"blk.attn_q": "self_attn.q_proj", "blk.attn_k": "self_attn.k_proj", "blk.attn_v": "self_attn.v_proj", "blk.attn_output": "self_attn.o_proj",
		"blk.attn_q_norm": "self_attn.q_norm", "blk.attn_k_norm": "self_attn.k_norm",
		"blk.ffn_gate": "mlp.gate_proj", "blk.ffn_up": "mlp.up_proj", "blk.ffn_down": "mlp.down_proj",
	}
	experts := func(module, gate, up, down string) map[string]string {
		return map[string]string{
			"blk.ffn_gate_inp": module + ".gate", "blk.ffn_gate_exps": module + ".experts.%d." + gate, "blk.ffn_up_exps": module + ".experts.%d." + up, "blk.ffn_down_exps": module + ".experts.%d." + down,
		}
	}
	plus := func(all ...map[string]string) map[string]string {
		sum := map[string]string{}
		for _, names := range all {
			maps.Copy(sum, names)
		}
		return sum
	}
	shared := func(module string) map[string]string {
		return map[string]string{"blk.ffn_gate_shexp": module + ".gate_proj", "blk.ffn_up_shexp": module + ".up_proj", "blk.ffn_down_shexp": module + ".down_proj"}
	}
	qwenExperts := experts("mlp", "gate_proj", "up_proj", "down_proj")
	const layers = "model.layers."
	architectures.Add("llama", &architecture{"LlamaForCausalLM", "llama", true, plus(llama, experts("block_sparse_moe", "w1", "w3", "w2")), layers, llamaConfig, false})
	architectures.Add("mistral3", &architecture{"MistralForCausalLM", "mistral", true, llama, layers, mistralConfig, false})
	architectures.Add("granite", &architecture{"GraniteForCausalLM", "granite", true, llama, layers, graniteConfig, false})
	architectures.Add("smollm3", &architecture{"SmolLM3ForCausalLM", "smollm3", true, llama, layers, biasConfig, false})
	architectures.Add("qwen2", &architecture{"Qwen2ForCausalLM", "qwen2", false, llama, layers, nil, false})
	architectures.Add("qwen3", &architecture{"Qwen3ForCausalLM", "qwen3", false, llama, layers, biasConfig, false})
	architectures.Add("seed_oss", &architecture{"SeedOssForCausalLM", "seed_oss", false, plus(llama, map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm",
	}), layers, seedOssConfig, false})
	architectures.Add("phi3", &architecture{"Phi3ForCausalLM", "phi3", false, plus(llama, map[string]string{
		"blk.attn_qkv": "self_attn.qkv_proj", "blk.ffn_up": "mlp.gate_up_proj",
	}), layers, windowConfig, true})
	architectures.Add("qwen3moe", &architecture{"Qwen3MoeForCausalLM", "qwen3_moe", false, plus(llama, qwenExperts), layers, qwen3MoEConfig, false})
	architectures.Add("qwen2moe", &architecture{"Qwen2MoeForCausalLM", "qwen2_moe", false, plus(llama, qwenExperts, shared("mlp.shared_expert"), map[string]string{
		"blk.ffn_gate_inp_shexp": "mlp.shared_expert_gate",
	}), layers, qwen2MoEConfig, false})
	architectures.Add("olmo2", &architecture{"Olmo2ForCausalLM", "olmo2", false, plus(llama, map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm", "blk.post_ffw_norm": "post_feedforward_layernorm",
	}), layers, olmoConfig, false})
	architectures.Add("glm4", &architecture{"Glm4ForCausalLM", "glm4", false, plus(llama, map[string]string{
		"blk.post_attention_norm": "post_self_attn_layernorm", "blk.post_ffw_norm": "post_mlp_layernorm", "blk.ffn_up": "mlp.gate_up_proj",
	}), layers, glm4Config, true})
	architectures.Add("glm4moe", &architecture{"Glm4MoeForCausalLM", "glm4_moe", false, plus(llama, qwenExperts, shared("mlp.shared_experts"), map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm", "blk.exp_probs_b": "mlp.gate.e_score_correction_bias",
	}), layers, glm4MoEConfig, true})
	gemma := plus(llama, map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm", "blk.ffn_norm": "pre_feedforward_layernorm", "blk.post_ffw_norm": "post_feedforward_layernorm",
	})
	architectures.Add("gemma2", &architecture{"Gemma2ForCausalLM", "gemma2", false, gemma, layers, gemmaConfig, false})
	architectures.Add("gemma3", &architecture{"Gemma3ForCausalLM", "gemma3_text", false, gemma, layers, gemmaConfig, false})
	architectures.Add("gemma4", &architecture{gemma4, "gemma4_text", false, plus(gemma, map[string]string{
		"per_layer_token_embd": "model.embed_tokens_per_layer", "per_layer_model_proj": "model.per_layer_model_projection", "per_layer_proj_norm": "model.per_layer_projection_norm",
		"blk.inp_gate": "per_layer_input_gate", "blk.proj": "per_layer_projection", "blk.post_norm": "post_per_layer_input_norm", "blk.layer_output_scale.weight": "layer_scalar",
		"blk.ffn_gate_inp": "router.proj", "blk.ffn_gate_inp.scale": "router.scale", "blk.ffn_down_exps.scale": "router.per_expert_scale",
		"blk.ffn_gate_up_exps": "experts.%d.gate_up_proj", "blk.ffn_gate_exps": "experts.%d.gate_proj", "blk.ffn_up_exps": "experts.%d.up_proj", "blk.ffn_down_exps": "experts.%d.down_proj",
		"blk.pre_ffw_norm_2": "pre_feedforward_layernorm_2", "blk.post_ffw_norm_1": "post_feedforward_layernorm_1", "blk.post_ffw_norm_2": "post_feedforward_layernorm_2",
	}), layers, gemma4Config, false})
	architectures.Add("gpt-oss", &architecture{"GptOssForCausalLM", "gpt_oss", false, plus(llama, qwenExperts, map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm", "blk.attn_sinks": "self_attn.sinks", "blk.ffn_gate_inp": "mlp.router",
	}), layers, gptOssConfig, false})
	delta := plus(llama, qwenExperts, shared("mlp.shared_expert"), map[string]string{
		"blk.post_attention_norm": "post_attention_layernorm", "blk.ffn_gate_inp_shexp": "mlp.shared_expert_gate", "blk.ffn_gate_up_exps": "mlp.experts.%d.gate_up_proj",
		"blk.attn_qkv": "linear_attn.in_proj_qkv", "blk.attn_gate": "linear_attn.in_proj_z", "blk.ssm_beta": "linear_attn.in_proj_b", "blk.ssm_alpha": "linear_attn.in_proj_a",
		"blk.ssm_ba": "linear_attn.in_proj_ba", "blk.ssm_conv1d": "linear_attn.conv1d", "blk..ssm_a": "linear_attn.A_log", "blk.ssm_dt.bias": "linear_attn.dt_bias",
		"blk.ssm_norm": "linear_attn.norm", "blk.ssm_out": "linear_attn.out_proj", "blk.ssm_in": "linear_attn.in_proj_qkvz",
	})
	architectures.Add("qwen3next", &architecture{qwen3Next, "qwen3_next", false, delta, layers, hybridConfig, true})
	architectures.Add("qwen35", &architecture{"Qwen3_5ForCausalLM", "qwen3_5_text", false, delta, layers, hybridConfig, true})
	architectures.Add("qwen35moe", &architecture{"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", false, delta, layers, hybridConfig, true})
	architectures.Add("lfm2", &architecture{lfm2, "lfm2", false, plus(llama, map[string]string{
		"token_embd_norm": "model.embedding_norm", "output_norm": "model.embedding_norm", "blk.attn_norm": "operator_norm", "blk.ffn_norm": "ffn_norm",
		"blk.attn_output": "self_attn.out_proj", "blk.attn_q_norm": "self_attn.q_layernorm", "blk.attn_k_norm": "self_attn.k_layernorm",
		"blk.ffn_gate": "feed_forward.w1", "blk.ffn_down": "feed_forward.w2", "blk.ffn_up": "feed_forward.w3",
		"blk.shortconv.conv": "conv.conv", "blk.shortconv.in_proj": "conv.in_proj", "blk.shortconv.out_proj": "conv.out_proj",
	}), layers, lfm2Config, false})
	architectures.Add("falcon", &architecture{"FalconForCausalLM", "falcon", false, map[string]string{
		"token_embd": "transformer.word_embeddings", "output_norm": "transformer.ln_f", "output": "lm_head",
		"blk.attn_norm": "input_layernorm", "blk.attn_qkv": "self_attention.query_key_value", "blk.attn_output": "self_attention.dense",
		"blk.ffn_up": "mlp.dense_h_to_4h", "blk.ffn_down": "mlp.dense_4h_to_h",
	}, "transformer.h.", falconConfig, false})
}

// sources finds the model's tensors in the file. Those without a name in the architecture keep
// theirs, and are surplus to whoever loads the model. Vectors, which converters write in float32,
// get the type of the matrices where that holds them exactly: so they are what the original has.
func (a *architecture) sources(file *container.File, c config, matrices kernels.DType) map[string]container.Source {
	x := &translation{
		architecture: a, file: file, config: c, matrices: matrices, heads: c.int("num_attention_heads"), kv: c.int("num_key_value_heads"), headDim: c.int("head_dim"),
		nets: netsOf(a, c), sources: map[string]container.Source{},
	}
	for _, t := range file.Tensors() {
		if !slices.Contains(ropeTensors, t.Name) {
			x.addTensor(&t)
		}
	}
	return x.sources
}

// translation makes the sources of a file.
type translation struct {
	*architecture
	file               *container.File
	config             config
	matrices           kernels.DType
	heads, kv, headDim int
	nets               *netsLayout
	sources            map[string]container.Source
}

// addTensor adds what the model has of a tensor.
func (x *translation) addTensor(t *container.Tensor) {
	layer, module, kind := splitTensorName(t.Name)
	name, kind, known := x.moduleName(layer, module, kind)
	s := container.Source{Tensor: t.Name}
	n, err := strconv.Atoi(layer)
	further := err == nil && n >= x.config.int("num_hidden_layers") // a layer that predicts further tokens
	if further && x.nets != nil {
		x.sources["mtp."+t.Name] = s
		return
	}
	x.setNumbers(&s, t, module, name)
	at := name
	if layer != "" {
		at = x.layers + layer + "." + name
	}
	switch {
	case x.nets != nil && x.nets.fused && name == "linear_attn.in_proj_z": // which is a part of another one
		return
	case x.nets != nil && x.nets.fused && name == "linear_attn.in_proj_qkv":
		at += "z"
	case strings.Contains(name, "%d"):
		x.addExperts(s, t, at, kind)
		return
	case module == "blk.attn_qkv" && !known && x.names["blk.attn_q"] != "":
		x.addFused(s, t, layer, kind)
		return
	case !known && further:
		x.sources[x.layers+strings.TrimPrefix(t.Name, "blk.")] = s
		return
	case !known:
		x.sources[t.Name] = s
		return
	case module == "blk.exp_probs_b", module == "blk.attn_sinks":
		kind = ""
	case module == "blk.ffn_gate_inp_shexp":
		s.Shape = []int{1, kernels.ShapeLen(t.Shape)}
	case x.interleaved && (module == "blk.attn_q" || module == "blk.attn_k"):
		s.Row = container.InterleavedRows(x.headDim)
	case module == "blk.attn_qkv" && x.config["new_decoder_architecture"] == true:
		s.Row = groupedRows(x.heads, x.kv, x.headDim)
	}
	x.sources[at+kind] = s
}

// moduleName is the name of a module in the model, where it is known, and what stands behind it.
func (x *translation) moduleName(layer, module, kind string) (name, rest string, known bool) {
	if own, ok := x.names[module+kind]; ok {
		return own, "", true
	}
	if part, expert, ok := singleExpert(module); ok && strings.Contains(x.names[part], "%d") {
		if _, all := x.file.Tensor(strings.Replace(part, "blk.", "blk."+layer+".", 1) + kind); !all {
			return fmt.Sprintf(x.names[part], expert), kind, true
		}
	}
	if x.class == "FalconForCausalLM" { // with a norm or two
		switch _, two := x.file.Tensor("blk.0.attn_norm_2.weight"); {
		case two && module == "blk.attn_norm":
			return "ln_mlp", kind, true
		case module == "blk.attn_norm_2":
			return "ln_attn", kind, true
		}
	}
	name, known = x.names[module]
	return name, kind, known
}

// setNumbers says what converters have made of a tensor's numbers, and the type that they have had before.
func (x *translation) setNumbers(s *container.Source, t *container.Tensor, module, name string) {
	gemma := strings.HasPrefix(x.class, "Gemma") && x.class != gemma4 && strings.HasSuffix(module, "norm")
	if (gemma || x.nets.oneMore(module)) && t.Format.Name == "F32" { // which files have 1 more
		s.Map = inverse(x.matrices, func(x float64) float64 { return x - 1 }, func(x float64) float64 { return x + 1 }, 0)
	}
	small := len(t.Shape) == 1
	if x.nets != nil {
		small = x.nets.source(s, t, x.file, name, x.matrices) || small
	}
	if module == "blk.shortconv.conv" && len(t.Shape) == 2 {
		s.Shape, small = []int{t.Shape[0], 1, t.Shape[1]}, true
	}
	if x.matrices == kernels.F32 || t.Format.Name != "F32" || !small {
		return
	}
	data := t.Data
	if s.Map != nil {
		data = container.Map(data, s.Map)
	}
	if holds(x.matrices, data) {
		s.DType = x.matrices
	}
}

// addExperts adds all experts of a layer, which are one tensor, or their gates and ups together; at has a verb for the number.
func (x *translation) addExperts(s container.Source, t *container.Tensor, at, kind string) {
	parts := []string{at}
	if before, fused := strings.CutSuffix(at, "gate_up_proj"); fused && len(t.Shape) == 3 {
		parts = []string{before + "gate_proj", before + "up_proj"}
	}
	s.Shape, s.Of = slices.Clone(t.Shape[1:]), t.Shape[0]*len(parts)
	s.Shape[0] /= len(parts)
	for s.Part = range s.Of {
		x.sources[fmt.Sprintf(parts[s.Part%len(parts)], s.Part/len(parts))+kind] = s
	}
}

// addFused adds queries, keys and values of one tensor.
func (x *translation) addFused(s container.Source, t *container.Tensor, layer, kind string) {
	first := 0
	for i, part := range []string{"blk.attn_q", "blk.attn_k", "blk.attn_v"} {
		from, heads := first, x.kv
		if i == 0 {
			heads = x.heads
		}
		s.Shape = slices.Clone(t.Shape)
		s.Shape[0] = heads * x.headDim
		s.Row = func(row int) int { return from + row }
		if x.interleaved && i < 2 {
			order := container.InterleavedRows(x.headDim)
			s.Row = func(row int) int { return from + order(row) }
		}
		x.sources[x.layers+layer+"."+x.names[part]+kind] = s
		first += s.Shape[0]
	}
}

// singleExpert is the number of an expert whose tensor is its own, as in the first files of Mixtral, and the module that has
// all experts in later ones: of blk.ffn_gate.3 it is blk.ffn_gate_exps, and 3.
func singleExpert(module string) (part string, expert int, ok bool) {
	part, number, ok := strings.Cut(strings.TrimPrefix(module, "blk."), ".")
	expert, err := strconv.Atoi(number)
	return "blk." + part + "_exps", expert, ok && err == nil && strconv.Itoa(expert) == number
}

// holds tells whether a type has all values of an F32 tensor.
func holds(t kernels.DType, data []byte) bool {
	wide, back, narrow := make([]float32, len(data)/4), make([]float32, len(data)/4), make([]uint16, len(data)/4)
	for i := range wide {
		wide[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	if t == kernels.F16 {
		simd.NarrowF16(narrow, wide)
		simd.WidenF16(back, narrow)
	} else {
		simd.NarrowBF16(narrow, wide)
		simd.WidenBF16(back, narrow)
	}
	return slices.EqualFunc(wide, back, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) })
}

// splitTensorName takes the name of a tensor apart: blk.3.attn_q.weight is "3", "blk.attn_q" and ".weight".
func splitTensorName(name string) (layer, module, kind string) {
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name, kind = name[:i], name[i:]
	}
	rest, ok := strings.CutPrefix(name, "blk.")
	if !ok {
		return "", name, kind
	}
	layer, module, _ = strings.Cut(rest, ".")
	if n, err := strconv.ParseUint(layer, 10, 32); err != nil || fmt.Sprint(n) != layer {
		return "", name, kind
	}
	return layer, "blk." + module, kind
}

// groupedRows is the Row of Falcon's query_key_value: a group of heads/kv queries, a key and a value
// after the other, where files have all queries, all keys and all values.
func groupedRows(heads, kv, headDim int) func(row int) int {
	group := heads / kv
	return func(row int) int {
		head, inHead := row/headDim, row%headDim
		g, i := head/(group+2), head%(group+2)
		switch i {
		case group:
			head = heads + g
		case group + 1:
			head = heads + kv + g
		default:
			head = g*group + i
		}
		return head*headDim + inHead
	}
}
