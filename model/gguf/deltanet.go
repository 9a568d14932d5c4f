package gguf

import (
	"fmt"
	"math"
	"slices"
	"strings"

	container "glimpse/checkpoints/gguf"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

const qwen3Next = "Qwen3NextForCausalLM"

// hybridConfig is of Qwen3-Next and Qwen3.5.
func hybridConfig(m *metadata, c config) {
	if further, ok := m.int("nextn_predict_layers"); ok { // which are counted as layers
		c["num_hidden_layers"] = c.int("num_hidden_layers") - further
	}
	value(m, m.prefix+"rope.dimension_sections", m.file.Ints) // of images: texts have one position
	c["linear_conv_kernel_dim"], c["linear_key_head_dim"] = m.need("ssm.conv_kernel"), m.need("ssm.state_size")
	keys, values := m.need("ssm.group_count"), m.need("ssm.time_step_rank")
	c["linear_num_key_heads"], c["linear_num_value_heads"] = keys, values
	inner := m.need("ssm.inner_size")
	if m.err == nil && (inner%values != 0 || values%keys != 0) {
		m.reportFault("keys %q, %q, %q: got %d, %d and %d, want each a multiple of the next one", m.prefix+"ssm.inner_size", m.prefix+"ssm.time_step_rank", m.prefix+"ssm.group_count", inner, values, keys)
	}
	c["linear_value_head_dim"] = inner / max(1, values)
	if m.need("rope.dimension_count") == c["head_dim"] {
		c["partial_rotary_factor"] = 1
	}
	interval, ok := m.int("full_attention_interval")
	if !ok {
		interval = 4
	}
	recurrent, given := value(m, m.prefix+"attention.recurrent_layers", m.file.Bools)
	var types []string
	for l := range c.int("num_hidden_layers") {
		nets := (l+1)%max(1, interval) != 0
		if given && l < len(recurrent) {
			nets = recurrent[l]
		}
		types = append(types, map[bool]string{true: "linear_attention", false: "full_attention"}[nets])
	}
	c["layer_types"] = types
	c["attention_bias"] = m.hasTensor(fmt.Sprintf("blk.%d.attn_q.bias", max(0, slices.Index(types, "full_attention"))))
	if n, ok := m.int("expert_count"); !ok || n == 0 {
		return
	}
	c["norm_topk_prob"] = true // which llama.cpp takes for all of them
	expertsConfig(m, c, "num_experts")
	c["shared_expert_intermediate_size"] = m.need("expert_shared_feed_forward_length")
}

// netsLayout is how files have the gated delta nets of a model.
type netsLayout struct {
	fused                              bool // the model's in_proj_qkvz is two tensors, with all heads' queries, keys, values and gates one after the other
	keys, values, keyDim, valueDim, of int  // heads, their widths, value heads of a key head
}

// netsOf is the layout of an architecture's nets; nil where it has none.
func netsOf(a *architecture, c config) *netsLayout {
	keys, values := c.int("linear_num_key_heads"), c.int("linear_num_value_heads")
	if keys < 1 || values%keys != 0 {
		return nil
	}
	return &netsLayout{fused: a.class == qwen3Next, keys: keys, values: values, keyDim: c.int("linear_key_head_dim"), valueDim: c.int("linear_value_head_dim"), of: values / keys}
}

// oneMore tells that files have the numbers of a norm with 1 more.
func (n *netsLayout) oneMore(module string) bool {
	return n != nil && strings.HasSuffix(module, "norm") && module != "blk.ssm_norm"
}

// source completes the source of a module of a net, and tells that what the file has in float32 may be of the matrices' type.
func (n *netsLayout) source(s *container.Source, t *container.Tensor, file *container.File, name string, matrices kernels.DType) (small bool) {
	wide := func(formats ...string) { // of tensors that cannot be put in order as they are
		if s.DType = kernels.BF16; !slices.ContainsFunc(formats, func(f string) bool { return f != "F16" }) {
			s.DType = kernels.F16
		}
	}
	tiled := func(first, dim int) { // rows of value heads from a row on: the heads of one key head are keys apart in files
		if n.fused || n.of == 1 {
			return
		}
		s.Row = func(row int) int {
			if row < first {
				return row
			}
			head, at := (row-first)/dim, (row-first)%dim
			return first + n.tile(head)*dim + at
		}
	}
	switch name {
	case "mlp.gate", "mlp.shared_expert_gate":
		return true
	case "linear_attn.A_log":
		s.Map = inverse(matrices, func(x float64) float64 { return math.Log(-x) }, func(x float64) float64 { return -math.Exp(x) }, 4)
		tiled(0, 1)
		return true
	case "linear_attn.dt_bias", "linear_attn.in_proj_a", "linear_attn.in_proj_b":
		tiled(0, 1)
	case "linear_attn.conv1d":
		if len(t.Shape) == 2 {
			s.Shape = []int{t.Shape[0], 1, t.Shape[1]}
		}
		tiled(2*n.keys*n.keyDim, n.valueDim)
		return true
	case "linear_attn.in_proj_qkv":
		tiled(2*n.keys*n.keyDim, n.valueDim)
		gate, ok := file.Tensor(strings.Replace(t.Name, "attn_qkv", "attn_gate", 1))
		if !n.fused || !ok || len(t.Shape) != 2 {
			break
		}
		s.Then, s.Shape, s.Row = gate.Name, []int{2 * (n.keys*n.keyDim + n.values*n.valueDim), t.Shape[1]}, n.fusedRow
		if gate.Format.Name != t.Format.Name {
			wide(t.Format.Name, gate.Format.Name)
		}
	case "linear_attn.in_proj_z":
		tiled(0, n.valueDim)
	case "linear_attn.out_proj":
		if n.fused || n.of == 1 {
			break
		}
		s.Groups, s.Group = n.values, n.tile
		if n.valueDim%t.Format.Elems != 0 {
			wide(t.Format.Name)
		}
	}
	return false
}

// tile is where files have a value head of Qwen3.5: the first ones of all key heads, then the second ones.
func (n *netsLayout) tile(head int) int { return head%n.of*n.keys + head/n.of }

// fusedRow is the row, of queries, keys, values and gates of all heads one after the other, of a row of in_proj_qkvz, where the rows
// of a key head lie together.
func (n *netsLayout) fusedRow(row int) int {
	values, keys := n.of*n.valueDim, n.keys*n.keyDim
	step := 2 * (n.keyDim + values)
	head, at := row/step, row%step
	for _, part := range [][2]int{{0, n.keyDim}, {keys, n.keyDim}, {2 * keys, values}} { // first row, width
		if at < part[1] {
			return part[0] + head*part[1] + at
		}
		at -= part[1]
	}
	return 2*keys + n.keys*values + head*values + at
}

// inverse is what a converter has made a number of: of a number that a type holds where it makes the same of that one, but for so many
// units in the last place, else as near as float32 has it.
func inverse(of kernels.DType, back, forth func(float64) float64, ulps float64) func(float32) float32 {
	return func(x float32) float32 {
		y := []float32{float32(back(float64(x)))}
		short, near := make([]uint16, 1), make([]float32, 1)
		switch of {
		case kernels.F16:
			simd.NarrowF16(short, y)
			simd.WidenF16(near, short)
		case kernels.BF16:
			simd.NarrowBF16(short, y)
			simd.WidenBF16(near, short)
		default:
			return y[0]
		}
		if got := float32(forth(float64(near[0]))); math.Abs(float64(got-x)) <= ulps*math.Abs(float64(x))*0x1p-23 {
			return near[0]
		}
		return y[0]
	}
}
