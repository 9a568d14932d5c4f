package quantized

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/simd"
	"glimpse/kernels"
)

// TestBlocksEqualWidened: what stays in few bits widens to the bits of what is widened when it is opened, whatever
// codes, scales and zero points are; and what takes how many.
func TestBlocksEqualWidened(t *testing.T) {
	if simd.Level() == "portable" {
		if os.Getenv("GLIMPSE_SIMD") != "portable" {
			t.Fatal("no assembly: nothing stays in blocks")
		}
		t.Skip("GLIMPSE_SIMD=portable: nothing stays in blocks")
	}
	const rows, cols = 256, 384
	cases := map[string]struct {
		of, config string // of layouts, and what it has in place of its configuration
		change     func(tensors map[string]stored)
		want       kernels.DType
		ordered    bool // columns lie in another order
	}{}
	add := func(name, of, config, want string, change func(tensors map[string]stored)) {
		want, ordered := strings.CutSuffix(want, ", in order")
		dtype, err := kernels.ParseStored(want)
		if err != nil {
			t.Fatal(err)
		}
		c := cases[name]
		c.of, c.config, c.change, c.want, c.ordered = of, config, change, dtype, ordered
		cases[name] = c
	}
	retype := func(tensor, dtype string) func(map[string]stored) {
		return func(tensors map[string]stored) {
			s := tensors[tensor]
			s.dtype = dtype
			tensors[tensor] = s
		}
	}
	symmetric := strings.Replace(layouts(rows, cols)["int"].config, "false", "true", 1)
	bytes := strings.NewReplacer(`"num_bits":4`, `"num_bits":8`, "false", "true").Replace(layouts(rows, cols)["pack"].config)
	add("fp8", "fp8", "", "E4M3_F32", nil)
	add("fp8, bf16", "fp8", "", "E4M3_BF16", retype("X.weight_scale_inv", "BF16"))
	add("fp8, f16", "fp8", "", "E4M3_F32", retype("X.weight_scale_inv", "F16"))
	add("float", "float", "", "E4M3_BF16", nil)
	add("float, f32", "float", "", "E4M3_F32", retype("X.weight_scale", "F32"))
	add("float, f16", "float", "", "BF16", retype("X.weight_scale", "F16"))
	add("int", "int", "", "I8Z_BF16", nil) // zero points of 8 bits
	add("int, f16", "int", "", "I8Z_F16", retype("X.weight_scale", "F16"))
	add("int, f32", "int", "", "BF16", retype("X.weight_scale", "F32"))
	add("int, symmetric", "int", symmetric, "I8_BF16", func(tensors map[string]stored) { delete(tensors, "X.weight_zero_point") })
	add("int, symmetric, f16", "int", symmetric, "I8_F16", func(tensors map[string]stored) {
		delete(tensors, "X.weight_zero_point")
		retype("X.weight_scale", "F16")(tensors)
	})
	add("pack", "pack", "", "I4_BF16", nil)
	add("pack, f32", "pack", "", "BF16", retype("X.weight_scale", "F32"))
	add("pack, symmetric", "pack", strings.Replace(layouts(rows, cols)["pack"].config, "false", "true", 1), "I4_BF16", func(tensors map[string]stored) { delete(tensors, "X.weight_zero_point") })
	add("pack, 8 bits", "pack", bytes, "I8_F16", func(tensors map[string]stored) {
		delete(tensors, "X.weight_zero_point")
		tensors["X.weight_packed"] = stored{dtype: "I32", shape: []int{rows, cols / 4}}
		retype("X.weight_scale", "F16")(tensors)
	})
	add("pack, 8 bits, zero points", "pack", strings.Replace(bytes, "true", "false", 1), "I8Z_BF16", func(tensors map[string]stored) {
		tensors["X.weight_packed"] = stored{dtype: "I32", shape: []int{rows, cols / 4}}
		tensors["X.weight_zero_point"] = stored{dtype: "I32", shape: []int{rows / 4, cols / 128}}
	})
	add("pack, zero points of the matrix", "pack", strings.Replace(layouts(rows, cols)["pack"].config, `"group","group_size":128`, `"tensor"`, 1), "I8Z_BF16", func(tensors map[string]stored) {
		tensors["X.weight_scale"], tensors["X.weight_zero_point"] = stored{dtype: "BF16", shape: []int{1}}, stored{dtype: "I8", shape: []int{1}}
		delete(tensors, "X.weight_g_idx")
	})
	add("pack, columns out of order, of other sizes", "pack", strings.Replace(layouts(rows, cols)["pack"].config, "128", "48", 1), "BF16", func(tensors map[string]stored) {
		tensors["X.weight_scale"], tensors["X.weight_zero_point"] = stored{dtype: "BF16", shape: []int{rows, 8}}, stored{dtype: "I32", shape: []int{rows / 8, 8}}
		tensors["X.weight_g_idx"] = stored{dtype: "I32", shape: []int{cols}, data: shuffled(cols, 48)}
	})
	add("pack, columns out of order", "pack", "", "I4_BF16, in order", func(tensors map[string]stored) {
		order := inOrder(cols, 128)
		copy(order[:4], order[4*cols-4:])
		copy(order[4*cols-4:], []byte{0, 0, 0, 0})
		tensors["X.weight_g_idx"] = stored{dtype: "I32", shape: []int{cols}, data: order}
	})
	add("gptq", "gptq", "", "I4_F16", nil)
	add("gptq, bf16, of another format", "gptq", strings.Replace(layouts(rows, cols)["gptq"].config, `"bits"`, `"checkpoint_format":"gptq_v2","bits"`, 1), "I4_BF16", retype("X.scales", "BF16"))
	add("gptq, act-order", "gptq", "", "I4_F16, in order", func(tensors map[string]stored) {
		tensors["X.g_idx"] = stored{dtype: "I32", shape: []int{cols}, data: shuffled(cols, 128)}
	})
	for bits, blocks := range map[string]string{"2": "I4_F16", "8": "I8Z_F16"} {
		n := map[string]int{"2": 16, "8": 4}[bits]
		config := strings.Replace(layouts(rows, cols)["gptq"].config, `"bits":4`, `"bits":`+bits, 1)
		words := func(tensors map[string]stored) {
			tensors["X.qweight"], tensors["X.qzeros"] = stored{dtype: "I32", shape: []int{cols / n, rows}}, stored{dtype: "I32", shape: []int{cols / 128, rows / n}}
		}
		add("gptq, "+bits+" bits", "gptq", config, blocks, words)
		add("gptq, "+bits+" bits, act-order", "gptq", config, blocks+", in order", func(tensors map[string]stored) {
			words(tensors)
			tensors["X.g_idx"] = stored{dtype: "I32", shape: []int{cols}, data: shuffled(cols, 128)}
		})
	}
	add("gptq, inputs out of order", "gptq", "", "BF16", func(tensors map[string]stored) {
		order := inOrder(cols, 128)
		order[0] = 2
		tensors["X.g_idx"] = stored{dtype: "I32", shape: []int{cols}, data: order}
	})
	add("awq", "awq", "", "I4_F16", nil)
	add("awq, groups of 48", "awq", strings.Replace(layouts(rows, cols)["awq"].config, "128", "48", 1), "BF16", func(tensors map[string]stored) {
		tensors["X.qzeros"], tensors["X.scales"] = stored{dtype: "I32", shape: []int{8, rows / 8}}, stored{dtype: "F16", shape: []int{8, rows}}
	})
	rng := rand.New(rand.NewPCG(1, 2))
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			l := layouts(rows, cols)[c.of]
			tensors := maps.Clone(l.tensors)
			if c.change != nil {
				c.change(tensors)
			}
			for name, s := range tensors {
				if s.data == nil {
					n := sizes[s.dtype]
					for _, e := range s.shape {
						n *= e
					}
					s.data = make([]byte, n)
					for i := range s.data {
						s.data[i] = byte(rng.Uint32())
					}
					tensors[name] = s
				}
			}
			config, err := Parse([]byte(cmp.Or(c.config, l.config)))
			if err != nil {
				t.Fatal(err)
			}
			view := func(wide bool) checkpoints.TensorView {
				w := weights(t, tensors)
				f := &finder{weights: w, derived: map[string]checkpoints.Derived{}, wide: wide}
				if config.scheme.find(f); len(f.errs) > 0 {
					t.Fatal(f.errs)
				}
				if err := w.Derive(f.derived, f.unused); err != nil {
					t.Fatal(err)
				}
				v, err := w.Tensor("X.weight")
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			got, want := view(false), view(true)
			if got.DType != c.want || want.DType != kernels.BF16 || len(got.Data) != got.DType.Bytes(rows*cols) || (got.Order != nil) != c.ordered {
				t.Errorf("%s in %d bytes, ordered %t, want %s, %t; widened %s", got.DType, len(got.Data), got.Order != nil, c.want, c.ordered, want.DType)
			}
			compare(t, got, want)
		})
	}
}
