package quantized

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
)

func TestParseRefuses(t *testing.T) {
	group := func(weights string) string {
		return `{"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":{"group_0":{"targets":["Linear"],"weights":` + weights + `}}}`
	}
	for name, c := range map[string]struct{ config, want string }{
		"no object":        {`[]`, "cannot unmarshal array"},
		"no method":        {`{"load_in_8bit":true}`, `unknown quant_method "", want one of: awq, compressed-tensors, fp8, gptq`},
		"other method":     {`{"quant_method":"hqq"}`, `unknown quant_method "hqq", want one of: awq, compressed-tensors, fp8, gptq`},
		"block of one":     {`{"quant_method":"fp8","weight_block_size":[128]}`, "fp8: weight_block_size: got [128], want two positive numbers"},
		"block of 0":       {`{"quant_method":"fp8","weight_block_size":[128,0]}`, "weight_block_size: got [128 0]"},
		"gptq 3 bits":      {`{"quant_method":"gptq","bits":3}`, "gptq: bits: got 3, want 2, 4 or 8"},
		"gptq group":       {`{"quant_method":"gptq","bits":4,"group_size":0}`, "group_size: got 0, want at least 1, or -1"},
		"gptq format":      {`{"quant_method":"gptq","bits":4,"checkpoint_format":"marlin"}`, `checkpoint_format: got "marlin", want gptq or gptq_v2`},
		"gptq marlin":      {`{"quant_method":"gptq","bits":4,"is_marlin_format":true}`, "is_marlin_format: got true"},
		"awq gemv":         {`{"quant_method":"awq","bits":4,"version":"gemv"}`, `awq: version: got "gemv", want gemm`},
		"awq llm-awq":      {`{"quant_method":"awq","bits":4,"backend":"llm-awq"}`, `backend: got "llm-awq", want autoawq`},
		"awq 8 bits":       {`{"quant_method":"awq","bits":8}`, "bits: got 8, want 4"},
		"awq group":        {`{"quant_method":"awq","group_size":-2}`, "group_size: got -2"},
		"awq without zero": {`{"quant_method":"awq","zero_point":false}`, "zero_point: got false"},
		"preset":           {`{"quant_method":"compressed-tensors","config_groups":{"W4A16":["Linear"]}}`, "config_groups.W4A16: json: cannot unmarshal array"},
		"null group":       {`{"quant_method":"compressed-tensors","config_groups":{"g":null}}`, "config_groups.g: got null, want an object"},
		"format":           {strings.Replace(group(`{"num_bits":4,"type":"float"}`), "pack-", "nvfp4-pack-", 1), `compressed-tensors: config_groups.group_0: format: got "nvfp4-pack-quantized", want one of: float-quantized, int-quantized, naive-quantized, pack-quantized`},
		"3 bits":           {group(`{"num_bits":3,"type":"int","strategy":"channel"}`), `weights: got type "int" of 3 bits in pack-quantized`},
		"packed floats":    {group(`{"num_bits":8,"type":"float","strategy":"channel"}`), `weights: got type "float" of 8 bits in pack-quantized`},
		"strategy":         {group(`{"num_bits":4,"type":"int","strategy":"tensor_group"}`), `weights.strategy: got "tensor_group", want one of: block, channel, group, tensor`},
		"group size":       {group(`{"num_bits":4,"type":"int","strategy":"group"}`), "weights.group_size: got 0, want at least 1"},
		"block structure":  {group(`{"num_bits":4,"type":"int","strategy":"block","block_structure":"2x4"}`), `weights.block_structure: got "2x4", want two positive numbers`},
		"pattern":          {`{"quant_method":"compressed-tensors","ignore":["re:(?!x)"]}`, `ignore: "re:(?!x)": error parsing regexp`},
		"sparsity":         {`{"quant_method":"compressed-tensors","sparsity_config":{"format":"sparse-24-bitmask"}}`, `sparsity_config.format: got "sparse-24-bitmask", want none`},
		"transform":        {`{"quant_method":"compressed-tensors","transform_config":{"config_groups":{"u":{}}}}`, "transform_config: got config_groups, want none"},
	} {
		if _, err := Parse([]byte(c.config)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestShowRefuses: every tensor of every layout missing, of another type or of another shape, and
// numbers in them that are out of range.
func TestShowRefuses(t *testing.T) {
	refused := func(t *testing.T, config string, tensors map[string]stored, want ...string) {
		t.Helper()
		c, err := Parse([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		err = c.Show(weights(t, tensors))
		if !errors.Is(err, checkpoints.ErrCorrupt) {
			t.Fatalf("error %v, want ErrCorrupt", err)
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("error %v, want %q", err, part)
			}
		}
	}
	all := layouts(256, 128)
	for layout, l := range all {
		if c, err := Parse([]byte(l.config)); err != nil {
			t.Fatal(err)
		} else if err := c.Show(weights(t, l.tensors)); err != nil {
			t.Fatal(err)
		}
		for name, s := range l.tensors {
			with := func(s stored) map[string]stored {
				tensors := maps.Clone(l.tensors)
				tensors[name] = s
				return tensors
			}
			without := maps.Clone(l.tensors)
			delete(without, name)
			if name != "X.qweight" && name != "X.weight_g_idx" { // without which nothing is quantised, or in order
				t.Run(layout+" without "+name, func(t *testing.T) { refused(t, l.config, without, `tensor "`+name+`": missing, want `) })
			}
			t.Run(layout+" type of "+name, func(t *testing.T) {
				refused(t, l.config, with(stored{dtype: "U8", shape: s.shape}), `tensor "`+name+`": U8 of shape [`, "want ")
			})
			t.Run(layout+" rank of "+name, func(t *testing.T) {
				refused(t, l.config, with(stored{dtype: s.dtype, shape: append([]int{1}, s.shape...)}), `tensor "`+name+`": `+s.dtype+" of shape [1 ")
			})
			t.Run(layout+" nothing in "+name, func(t *testing.T) {
				refused(t, l.config, with(stored{dtype: s.dtype, shape: []int{0, 1 << 60}}), `tensor "`+name+`": `+s.dtype+" of shape [0 1152921504606846976]")
			})
		}
	}

	change := func(layout, name string, s stored) map[string]stored {
		tensors := maps.Clone(all[layout].tensors)
		tensors["X."+name] = s
		return tensors
	}
	i32 := func(values ...int32) []byte {
		var data []byte
		for _, v := range values {
			data = append(data, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		}
		return append(data, make([]byte, 4*(128-len(values)))...)
	}
	compressed := func(change ...string) string { return strings.NewReplacer(change...).Replace(all["pack"].config) }
	for name, c := range map[string]struct {
		config  string
		tensors map[string]stored
		want    string
	}{
		"gptq group below 0":    {all["gptq"].config, change("gptq", "g_idx", stored{"I32", []int{128}, i32(0, 0, -1)}), `tensor "X.g_idx": input 2 is of group -1, want one of 1`},
		"gptq group beyond":     {all["gptq"].config, change("gptq", "g_idx", stored{"I32", []int{128}, i32(1)}), `tensor "X.g_idx": input 0 is of group 1, want one of 1`},
		"gptq group size":       {`{"quant_method":"gptq","bits":4,"group_size":9223372036854775807}`, change("gptq", "scales", stored{dtype: "F16", shape: []int{2, 256}}), `tensor "X.scales": F16 of shape [2 256], want F32 or F16 or BF16 of shape [1 256]`},
		"gptq outputs":          {all["gptq"].config, change("gptq", "qweight", stored{dtype: "I32", shape: []int{16, 255}}), `tensor "X.qweight": 255 outputs, want a multiple of 8`},
		"awq group size":        {`{"quant_method":"awq","group_size":48}`, all["awq"].tensors, `tensor "X.qweight": 128 inputs, want a multiple of group_size 48`},
		"pack group size":       {compressed(`"group_size":128`, `"group_size":48`), all["pack"].tensors, `tensor "X.weight": 128 columns, want a multiple of group_size 48`},
		"pack group beyond":     {all["pack"].config, change("pack", "weight_g_idx", stored{"I32", []int{128}, i32(1)}), `tensor "X.weight_g_idx": column 0 is of group 1, want one of 1`},
		"pack shape":            {all["pack"].config, change("pack", "weight_shape", stored{"I64", []int{2}, shape64(256, 1<<40)}), `tensor "X.weight_packed": shape [256 16], want that of 4-bit codes of weight_shape [256 1099511627776]`},
		"pack shape below 0":    {all["pack"].config, change("pack", "weight_shape", stored{"I64", []int{2}, shape64(256, -1)}), `weight_shape [256 -1]`},
		"no targets":            {compressed(`"Linear"`, `"re:.*mlp"`), all["pack"].tensors, `tensor "X.weight": quantised, and no targets of quantization_config.config_groups name it`},
		"ignored name":          {compressed("lm_head", "X"), all["pack"].tensors, `tensor "X.weight": quantised, and quantization_config.ignore names it`},
		"ignored class":         {compressed("lm_head", "Linear"), all["pack"].tensors, "ignore names it"},
		"ignored pattern":       {compressed("lm_head", "re:[XY]$"), all["pack"].tensors, "ignore names it"},
		"stored twice":          {all["gptq"].config, change("gptq", "weight", stored{dtype: "BF16", shape: []int{1}}), `tensor "X.weight" is stored beside what it is made of: `},
		"unequal groups":        {compressed(`"group_size":128`, `"group_size":64`), pack64(all["pack"].tensors, i32(1)), `tensor "X.weight_g_idx": group 0 has 127 columns, want group_size 64`},
		"fp8 scale of a matrix": {`{"quant_method":"fp8","weight_block_size":null}`, all["fp8"].tensors, `tensor "X.weight_scale_inv": F32 of shape [2 1], want F32 or F16 or BF16 of shape [] or [1]`},
	} {
		t.Run(name, func(t *testing.T) { refused(t, c.config, c.tensors, c.want) })
	}
}

// pack64 is packed tensors in groups of 64 with an order of columns.
func pack64(tensors map[string]stored, order []byte) map[string]stored {
	tensors = maps.Clone(tensors)
	tensors["X.weight_scale"] = stored{dtype: "BF16", shape: []int{256, 2}}
	tensors["X.weight_zero_point"] = stored{dtype: "I32", shape: []int{32, 2}}
	tensors["X.weight_g_idx"] = stored{"I32", []int{128}, order}
	return tensors
}

// TestGroups: a module belongs to the group that means it most closely; what no group means, and
// scales of activations and caches, are left alone.
func TestGroups(t *testing.T) {
	config := `{"quant_method":"compressed-tensors","format":"mixed-precision","config_groups":{
		"a":{"targets":["Linear"],"format":"float-quantized","weights":{"num_bits":8,"type":"float","strategy":"tensor"}},
		"b":{"targets":["re:.*down_proj$"],"format":"int-quantized","weights":{"num_bits":8,"type":"int","strategy":"channel"}},
		"c":{"targets":["l.0.down_proj"],"format":"float-quantized","weights":{"num_bits":8,"type":"float","strategy":"channel"}},
		"d":{"targets":["Linear"],"weights":null}},"ignore":["lm_head"]}`
	w := weights(t, map[string]stored{
		"l.0.up_proj.weight": {dtype: "F8_E4M3", shape: []int{2, 3}}, "l.0.up_proj.weight_scale": {dtype: "F32"}, "l.0.up_proj.input_scale": {dtype: "F32"},
		"l.0.down_proj.weight": {dtype: "F8_E4M3", shape: []int{2, 3}}, "l.0.down_proj.weight_scale": {dtype: "F32", shape: []int{2, 1}},
		"l.1.down_proj.weight": {dtype: "I8", shape: []int{2, 3}}, "l.1.down_proj.weight_scale": {dtype: "F32", shape: []int{2, 1}},
		"l.0.self_attn.k_scale": {dtype: "F32"}, "lm_head.weight": {dtype: "F16", shape: []int{2, 3}}, "l.0.up_proj.bias": {dtype: "F32", shape: []int{2}},
	})
	c, err := Parse([]byte(config))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Show(w); err != nil {
		t.Fatal(err)
	}
	want := "l.0.down_proj.weight BF16, l.0.up_proj.bias F32, l.0.up_proj.weight BF16, l.1.down_proj.weight BF16, lm_head.weight F16"
	var got []string
	for _, name := range w.Names() {
		view, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, name+" "+view.DType.String())
	}
	if strings.Join(got, ", ") != want {
		t.Errorf("%s, want %s", strings.Join(got, ", "), want)
	}
}

// FuzzShow: whatever a configuration and a file say, the weights are shown whole or refused.
func FuzzShow(f *testing.F) {
	for _, l := range layouts(256, 128) {
		f.Add([]byte(l.config), file(f, l.tensors))
	}
	z := golden(f, "modules.zip")
	cases, err := fs.ReadDir(z, ".")
	if err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		config, err := fs.ReadFile(z, c.Name()+"/config.json")
		if err != nil {
			f.Fatal(err)
		}
		data, err := fs.ReadFile(z, c.Name()+"/model.safetensors")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(config, data)
	}
	f.Fuzz(func(t *testing.T, config, data []byte) {
		w, err := checkpoints.OpenWeightsFS(fstest.MapFS{"model.safetensors": {Data: data}}, ".")
		if err != nil || !json.Valid(config) {
			return
		}
		c, err := Parse(config)
		if err != nil {
			return
		}
		if err := c.Show(w); err != nil {
			if !errors.Is(err, checkpoints.ErrCorrupt) {
				t.Fatalf("error %v, want ErrCorrupt", err)
			}
			return
		}
		for _, name := range w.Names() {
			info, _ := w.Info(name)
			view, err := w.Tensor(name)
			if err != nil && !errors.Is(err, checkpoints.ErrDType) || err == nil && len(view.Data) != info.Bytes || info.Bytes > 8*len(data) {
				t.Fatalf("tensor %q of %+v: %d bytes, %v", name, info, len(view.Data), err)
			}
		}
	})
}
