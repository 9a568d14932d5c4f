package model_test

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/simd"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// ggufFile writes GGUF files: metadata and tensors in F16 (1) or F32 (0).
type ggufFile struct {
	keys, infos, data []byte
	n, tensors        uint64
}

func (f *ggufFile) text(to []byte, s string) []byte {
	return append(binary.LittleEndian.AppendUint64(to, uint64(len(s))), s...)
}

func (f *ggufFile) key(key string, value any) {
	f.n++
	f.keys = f.text(f.keys, key)
	kind := func(n uint32) { f.keys = binary.LittleEndian.AppendUint32(f.keys, n) }
	switch v := value.(type) {
	case int:
		kind(4)
		kind(uint32(v))
	case float64:
		kind(6)
		kind(math.Float32bits(float32(v)))
	case string:
		kind(8)
		f.keys = f.text(f.keys, v)
	case []bool:
		kind(9)
		kind(7)
		f.keys = binary.LittleEndian.AppendUint64(f.keys, uint64(len(v)))
		for _, b := range v {
			f.keys = append(f.keys, map[bool]byte{true: 1}[b])
		}
	case []int:
		kind(9)
		kind(5)
		f.keys = binary.LittleEndian.AppendUint64(f.keys, uint64(len(v)))
		for _, n := range v {
			kind(uint32(n))
		}
	default:
		panic(fmt.Sprintf("value %T", value))
	}
}

func (f *ggufFile) tensor(name string, kind uint32, shape []int, values []float32) {
	f.tensors++
	f.infos = binary.LittleEndian.AppendUint32(f.text(f.infos, name), uint32(len(shape)))
	for _, n := range slices.Backward(shape) {
		f.infos = binary.LittleEndian.AppendUint64(f.infos, uint64(n))
	}
	f.infos = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(f.infos, kind), uint64(len(f.data)))
	for _, v := range values {
		if kind == 1 {
			short := make([]uint16, 1)
			simd.NarrowF16(short, []float32{v})
			f.data = binary.LittleEndian.AppendUint16(f.data, short[0])
		} else {
			f.data = binary.LittleEndian.AppendUint32(f.data, math.Float32bits(v))
		}
	}
	f.data = append(f.data, make([]byte, (32-len(f.data)%32)%32)...)
}

func (f *ggufFile) bytes() []byte {
	out := append([]byte("GGUF"), 3, 0, 0, 0)
	out = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(out, f.tensors), f.n)
	out = append(append(out, f.keys...), f.infos...)
	return append(append(out, make([]byte, (32-len(out)%32)%32)...), f.data...)
}

// write writes the file and returns its path.
func (f *ggufFile) write(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".gguf")
	if err := os.WriteFile(path, f.bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// pick is the given rows of a matrix, or elements of a vector.
func pick(values []float32, width int, rows []int) (out []float32) {
	for _, r := range rows {
		out = append(out, values[r*width:][:width]...)
	}
	return out
}

// hybridGGUF is a golden folder as llama.cpp's converter writes it (conversion/qwen.py of b11434: Qwen3NextModel and
// _LinearAttentionVReorderBase), said row by row. The converter adds 1 to norms in the type of the folder; here float32 holds the sum.
func hybridGGUF(t *testing.T, folder, arch string) string {
	t.Helper()
	var c struct {
		Layers  int      `json:"num_hidden_layers"`
		Types   []string `json:"layer_types"`
		Hidden  int      `json:"hidden_size"`
		Heads   int      `json:"num_attention_heads"`
		KV      int      `json:"num_key_value_heads"`
		Dim     int      `json:"head_dim"`
		Inner   int      `json:"intermediate_size"`
		Context int      `json:"max_position_embeddings"`
		Keys    int      `json:"linear_num_key_heads"`
		Values  int      `json:"linear_num_value_heads"`
		KeyDim  int      `json:"linear_key_head_dim"`
		Value   int      `json:"linear_value_head_dim"`
		Kernel  int      `json:"linear_conv_kernel_dim"`
		Experts int      `json:"num_experts"`
		TopK    int      `json:"num_experts_per_tok"`
		Width   int      `json:"moe_intermediate_size"`
		Shared  int      `json:"shared_expert_intermediate_size"`
		Eps     float64  `json:"rms_norm_eps"`
		End     int      `json:"eos_token_id"`
		RoPE    struct {
			Theta   float64 `json:"rope_theta"`
			Partial float64 `json:"partial_rotary_factor"`
		} `json:"rope_parameters"`
	}
	modeltest.ReadJSON(t, filepath.Join(folder, "config.json"), &c)
	f := &ggufFile{}
	f.key("general.architecture", arch)
	recurrent := make([]bool, c.Layers)
	for l, kind := range c.Types {
		recurrent[l] = kind == "linear_attention"
	}
	for key, v := range map[string]any{
		"block_count": c.Layers, "context_length": c.Context, "embedding_length": c.Hidden, "feed_forward_length": c.Inner, "attention.head_count": c.Heads,
		"attention.head_count_kv": c.KV, "attention.key_length": c.Dim, "attention.value_length": c.Dim, "attention.layer_norm_rms_epsilon": c.Eps, "rope.freq_base": c.RoPE.Theta,
		"rope.dimension_count": int(float64(c.Dim) * c.RoPE.Partial), "rope.dimension_sections": []int{11, 11, 10, 0}, "ssm.conv_kernel": c.Kernel, "ssm.state_size": c.KeyDim,
		"ssm.group_count": c.Keys, "ssm.time_step_rank": c.Values, "ssm.inner_size": c.Values * c.Value, "attention.recurrent_layers": recurrent, "full_attention_interval": 4,
	} {
		f.key(arch+"."+key, v)
	}
	if c.Experts > 0 {
		for key, n := range map[string]int{"expert_count": c.Experts, "expert_used_count": c.TopK, "expert_feed_forward_length": c.Width, "expert_shared_feed_forward_length": c.Shared} {
			f.key(arch+"."+key, n)
		}
	}
	f.key("tokenizer.ggml.eos_token_id", c.End)
	list := func(from, n, step int) (out []int) {
		for i := range n {
			out = append(out, from+i*step)
		}
		return out
	}
	group := c.Values / c.Keys
	tiled := func(first, dim int) []int { // the rows before, and then the value heads: first ones of all key heads, second ones, ...
		rows := list(0, first, 1)
		for i := range group {
			for k := range c.Keys {
				rows = append(rows, list(first+(k*group+i)*dim, dim, 1)...)
			}
		}
		return rows
	}
	tensors := modeltest.ReadTensors(t, filepath.Join(folder, "model.safetensors"))
	names := strings.NewReplacer("model.embed_tokens", "token_embd", "model.norm", "output_norm", "lm_head", "output", "model.layers.", "blk.", "input_layernorm", "attn_norm",
		"post_attention_layernorm", "post_attention_norm", "self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.o_proj", "attn_output",
		"self_attn.q_norm", "attn_q_norm", "self_attn.k_norm", "attn_k_norm", "mlp.shared_expert_gate", "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj", "ffn_gate_shexp",
		"mlp.shared_expert.up_proj", "ffn_up_shexp", "mlp.shared_expert.down_proj", "ffn_down_shexp", "mlp.gate_proj", "ffn_gate", "mlp.up_proj", "ffn_up", "mlp.down_proj", "ffn_down",
		"mlp.gate.", "ffn_gate_inp.", "linear_attn.in_proj_qkv.", "attn_qkv.", "linear_attn.in_proj_z.", "attn_gate.", "linear_attn.in_proj_ba", "ssm_ba", "linear_attn.in_proj_b.", "ssm_beta.",
		"linear_attn.in_proj_a.", "ssm_alpha.", "linear_attn.conv1d", "ssm_conv1d", "linear_attn.A_log", "ssm_a", "linear_attn.dt_bias", "ssm_dt.bias", "linear_attn.norm", "ssm_norm", "linear_attn.out_proj", "ssm_out")
	stacked := map[string][]float32{}
	keys := c.Keys * c.KeyDim
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x := tensors[name]
		width, tile := x.Shape[len(x.Shape)-1], arch != "qwen3next"
		if len(x.Shape) == 1 {
			width = 1
		}
		kind, shape, values := uint32(1), x.Shape, slices.Clone(x.Values)
		if len(x.Shape) == 1 || strings.HasSuffix(name, "mlp.gate.weight") || strings.HasSuffix(name, "shared_expert_gate.weight") || strings.Contains(name, "conv1d") {
			kind = 0
		}
		switch at := name[strings.LastIndex(name[:len(name)-1], "linear_attn")+1:]; {
		case strings.Contains(name, ".experts."):
			var e int
			var proj string
			prefix, rest, _ := strings.Cut(name, ".mlp.experts.")
			if _, err := fmt.Sscanf(rest, "%d.%s", &e, &proj); err != nil {
				t.Fatal(err)
			}
			to := strings.Replace(prefix, "model.layers.", "blk.", 1) + ".ffn_" + strings.TrimSuffix(proj, "_proj.weight") + "_exps.weight"
			if stacked[to] = append(stacked[to], values...); e == c.Experts-1 { // names are in the order of experts, of which there are few
				f.tensor(to, 1, append([]int{c.Experts}, shape...), stacked[to])
			}
			continue
		case strings.HasSuffix(name, "in_proj_qkvz.weight"):
			var parts [4][]int // rows of queries, keys, values and gates
			step := 2*c.KeyDim + 2*group*c.Value
			for k := range c.Keys {
				from := k * step
				for i, n := range []int{c.KeyDim, c.KeyDim, group * c.Value, group * c.Value} {
					parts[i] = append(parts[i], list(from, n, 1)...)
					from += n
				}
			}
			prefix := strings.Replace(strings.TrimSuffix(name, "linear_attn.in_proj_qkvz.weight"), "model.layers.", "blk.", 1)
			qkv := slices.Concat(parts[0], parts[1], parts[2])
			f.tensor(prefix+"attn_qkv.weight", 1, []int{len(qkv), width}, pick(values, width, qkv))
			f.tensor(prefix+"attn_gate.weight", 1, []int{len(parts[3]), width}, pick(values, width, parts[3]))
			continue
		case strings.HasSuffix(at, "A_log"):
			for i, v := range values {
				values[i] = float32(-math.Exp(float64(v)))
			}
			if tile {
				values = pick(values, 1, tiled(0, 1))
			}
		case strings.HasSuffix(name, "norm.weight") && !strings.Contains(name, "linear_attn."):
			for i := range values {
				values[i]++
			}
		case strings.Contains(name, "conv1d"):
			shape = []int{x.Shape[0], width}
			if tile {
				values = pick(values, width, tiled(2*keys, c.Value))
			}
		case tile && strings.Contains(name, "in_proj_qkv"):
			values = pick(values, width, tiled(2*keys, c.Value))
		case tile && strings.Contains(name, "in_proj_z"):
			values = pick(values, width, tiled(0, c.Value))
		case tile && (strings.Contains(name, "in_proj_a") || strings.Contains(name, "in_proj_b") || strings.HasSuffix(name, "dt_bias")):
			values = pick(values, width, tiled(0, 1))
		case tile && strings.Contains(name, "linear_attn.out_proj"):
			columns := tiled(0, c.Value)
			for row := range x.Shape[0] {
				copy(values[row*width:], pick(x.Values[row*width:], 1, columns))
			}
		case strings.HasSuffix(name, "shared_expert_gate.weight"):
			shape = []int{width}
		}
		f.tensor(names.Replace(name), kind, shape, values)
	}
	return f.write(t, arch)
}

// lfm2GGUF is a golden folder of LFM2 as llama.cpp's converter writes it (conversion/lfm2.py: LFM2Model).
func lfm2GGUF(t *testing.T, folder, arch string) string {
	t.Helper()
	var c struct {
		Types   []string `json:"layer_types"`
		Hidden  int      `json:"hidden_size"`
		Heads   int      `json:"num_attention_heads"`
		KV      int      `json:"num_key_value_heads"`
		Inner   int      `json:"intermediate_size"`
		Context int      `json:"max_position_embeddings"`
		Vocab   int      `json:"vocab_size"`
		Kernel  int      `json:"conv_L_cache"`
		Eps     float64  `json:"norm_eps"`
		End     int      `json:"eos_token_id"`
		RoPE    struct {
			Theta float64 `json:"rope_theta"`
		} `json:"rope_parameters"`
	}
	modeltest.ReadJSON(t, filepath.Join(folder, "config.json"), &c)
	heads := make([]int, len(c.Types))
	for l, kind := range c.Types {
		if kind == "full_attention" {
			heads[l] = c.KV
		}
	}
	f := &ggufFile{}
	f.key("general.architecture", arch)
	for key, v := range map[string]any{
		"block_count": len(c.Types), "context_length": c.Context, "embedding_length": c.Hidden, "feed_forward_length": c.Inner, "attention.head_count": c.Heads,
		"attention.head_count_kv": heads, "attention.layer_norm_rms_epsilon": c.Eps, "rope.freq_base": c.RoPE.Theta, "vocab_size": c.Vocab, "shortconv.l_cache": c.Kernel,
	} {
		f.key(arch+"."+key, v)
	}
	f.key("tokenizer.ggml.eos_token_id", c.End)
	names := strings.NewReplacer("model.embed_tokens", "token_embd", "model.embedding_norm", "token_embd_norm", "model.layers.", "blk.", "operator_norm", "attn_norm",
		"self_attn.q_proj", "attn_q", "self_attn.k_proj", "attn_k", "self_attn.v_proj", "attn_v", "self_attn.out_proj", "attn_output", "self_attn.q_layernorm", "attn_q_norm",
		"self_attn.k_layernorm", "attn_k_norm", "feed_forward.w1", "ffn_gate", "feed_forward.w2", "ffn_down", "feed_forward.w3", "ffn_up",
		".conv.conv.", ".shortconv.conv.", ".conv.in_proj.", ".shortconv.in_proj.", ".conv.out_proj.", ".shortconv.out_proj.")
	tensors := modeltest.ReadTensors(t, filepath.Join(folder, "model.safetensors"))
	for _, name := range slices.Sorted(maps.Keys(tensors)) {
		x, kind := tensors[name], uint32(1)
		shape := slices.DeleteFunc(slices.Clone(x.Shape), func(n int) bool { return n == 1 }) // the converter squeezes convolutions
		if len(shape) == 1 || strings.Contains(name, "conv.conv") {
			kind = 0
		}
		f.tensor(names.Replace(name), kind, shape, x.Values)
	}
	return f.write(t, arch)
}

// TestGGUFOfHybrids: a file of a model with recurrent layers, as llama.cpp's converter writes it, is the model of the folder that it
// was made from, by its hash and by its logits, which are transformers'.
func TestGGUFOfHybrids(t *testing.T) {
	for name, arch := range map[string]string{"qwen3-next": "qwen3next", "qwen3.5": "qwen35", "qwen3.5-moe": "qwen35moe", "lfm2": "lfm2"} {
		t.Run(arch, func(t *testing.T) {
			g := modeltest.GoldenNamed(t, name)
			folder := modeltest.OpenFolder(t, os.DirFS(g.Folder), "cpu")
			convert := hybridGGUF
			if arch == "lfm2" {
				convert = lfm2GGUF
			}
			file, err := model.Open(convert(t, g.Folder, arch), model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			sameWeights(t, file, folder)
			if file.Config.Architecture != folder.Config.Architecture || !slices.Equal(nets(file), nets(folder)) {
				t.Errorf("is a %s with nets in %v, want %s and %v", file.Config.Architecture, nets(file), folder.Config.Architecture, nets(folder))
			}
			logits := func(m *model.Model) []float32 {
				y, err := runner.New(m).Prefill(t.Context(), kvcache.New(m), g.Prompts[0].IDs, runner.PrefillOptions{})
				if err != nil {
					t.Fatal(err)
				}
				return y
			}
			if !slices.Equal(logits(file), logits(folder)) {
				t.Error("other logits")
			}
		})
	}
}

// nets are the layers that do not attend.
func nets(m *model.Model) (out []bool) {
	for l := range m.Config.Layers {
		out = append(out, m.Config.Recurrent(l))
	}
	return out
}
