package training

import (
	"encoding/binary"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// The model and the adapter of lab/golden/golden_training_blocks.py.
const (
	goldenHidden, goldenLayers, goldenHeads, goldenKVHeads, goldenVocab = 256, 2, 4, 1, 64
)

// goldenWords is a hash (MurmurHash3's last step) of indices and a name (FNV-1a).
func goldenWords(name string, n int) []uint32 {
	seed := uint32(2166136261)
	for i := range len(name) {
		seed = (seed ^ uint32(name[i])) * 16777619
	}
	words := make([]uint32, n)
	for i := range words {
		h := uint32(i)*0x9E3779B1 + seed
		h = (h ^ h>>16) * 0x85EBCA6B
		h = (h ^ h>>13) * 0xC2B2AE35
		words[i] = h ^ h>>16
	}
	return words
}

// goldenNumbers are multiples of 2⁻²⁴ from −½ to ½, times a scale and plus a mean.
func goldenNumbers(name string, scale, mean float32, shape ...int) checkpoints.TensorView {
	x := make([]float32, kernels.ShapeLen(shape))
	for i, h := range goldenWords(name, len(x)) {
		x[i] = mean + scale*(float32(h>>8)/(1<<24)-0.5)
	}
	return checkpoints.F32Tensor(name, shape, x)
}

func goldenBytes(name string, n int) []byte {
	data := make([]byte, n)
	for i, h := range goldenWords(name, n) {
		data[i] = byte(h)
	}
	return data
}

// goldenFolder is the folder of the model, with what stored gives of its linear layers.
func goldenFolder(quantization string, stored func(name string, out, columns int) []goldenTensor) fstest.MapFS {
	var file modeltest.Safetensors
	plain := func(v checkpoints.TensorView) { file.Put(v.Name, "F32", v.Data, v.Shape...) }
	plain(goldenNumbers("model.embed_tokens.weight", 2, 0, goldenVocab, goldenHidden))
	plain(goldenNumbers("model.norm.weight", 0.5, 1, goldenHidden))
	for l := range goldenLayers {
		at := fmt.Sprintf("model.layers.%d.", l)
		plain(goldenNumbers(at+"input_layernorm.weight", 0.5, 1, goldenHidden))
		plain(goldenNumbers(at+"post_attention_layernorm.weight", 0.5, 1, goldenHidden))
		for _, module := range model.Modules {
			name, out := at+"mlp."+string(module)+".weight", goldenHidden
			if slices.Contains([]model.Module{model.QProj, model.KProj, model.VProj, model.OProj}, module) {
				name = at + "self_attn." + string(module) + ".weight"
			}
			if module == model.KProj || module == model.VProj {
				out = goldenHidden / goldenHeads * goldenKVHeads
			}
			for _, s := range stored(name, out, goldenHidden) {
				file.Put(s.name, s.dtype, s.data, s.shape...)
			}
		}
	}
	config := fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","hidden_size":%d,"intermediate_size":%d,"num_hidden_layers":%d,"num_attention_heads":%d,
		"num_key_value_heads":%d,"vocab_size":%d,"max_position_embeddings":256,"rms_norm_eps":1e-5,"rope_theta":10000,"tie_word_embeddings":true,"torch_dtype":"bfloat16"%s}`,
		goldenHidden, goldenHidden, goldenLayers, goldenHeads, goldenKVHeads, goldenVocab, quantization)
	return fstest.MapFS{"config.json": {Data: []byte(config)}, "model.safetensors": {Data: file.Bytes()}}
}

type goldenTensor struct {
	name, dtype string
	data        []byte
	shape       []int
}

func halfBits(x float32) []byte {
	var h [1]uint16
	simd.NarrowF16(h[:], []float32{x})
	return binary.LittleEndian.AppendUint16(nil, h[0])
}

// openGoldenBlocks opens the model with its linear layers in a format.
func openGoldenBlocks(t *testing.T, format, device string) *model.Model {
	switch format {
	case "fp8":
		return modeltest.OpenFolder(t, goldenFolder(`,"quantization_config":{"quant_method":"fp8","weight_block_size":[128,128]}`, func(name string, out, columns int) []goldenTensor {
			codes := goldenBytes(name, out*columns)
			for i := range codes {
				codes[i] &= 0xbf
			}
			scales := goldenNumbers(name+"_scale_inv", 1./16, 1./16, (out+127)/128, columns/128)
			return []goldenTensor{{name, "F8_E4M3", codes, []int{out, columns}}, {scales.Name, "F32", scales.Data, scales.Shape}}
		}), device)
	case "gptq":
		return modeltest.OpenFolder(t, goldenFolder(`,"quantization_config":{"quant_method":"gptq","bits":4,"group_size":128,"desc_act":true,"sym":false}`, func(name string, out, columns int) []goldenTensor {
			at := strings.TrimSuffix(name, "weight")
			words := func(x []uint32) (data []byte) {
				for _, w := range x {
					data = binary.LittleEndian.AppendUint32(data, w)
				}
				return data
			}
			groups := columns / 128
			var scales []byte
			for _, h := range goldenWords(at+"scales", groups*out) {
				scales = append(scales, halfBits((float32(h>>24)/512+0.75)/64)...)
			}
			index := make([]uint32, columns)
			for i := range index {
				index[i] = uint32(i * 37 % columns / 128)
			}
			return []goldenTensor{
				{at + "qweight", "I32", words(goldenWords(at+"qweight", columns/8*out)), []int{columns / 8, out}},
				{at + "qzeros", "I32", words(slices.Repeat([]uint32{0x77777777}, groups*out/8)), []int{groups, out / 8}},
				{at + "scales", "F16", scales, []int{groups, out}},
				{at + "g_idx", "I32", words(index), []int{columns}},
			}
		}), device)
	}
	dtype, err := kernels.ParseStored(format)
	if err != nil {
		t.Fatal(err)
	}
	halves := map[string][]float32{"Q4_K": {1. / (1 << 12), 1. / (1 << 9)}, "Q8_0": {1. / (1 << 10)}, "Q4_1": {1. / (1 << 6), -7.5 / (1 << 6)}}[format]
	m := modeltest.OpenFolder(t, goldenFolder("", func(name string, out, columns int) []goldenTensor {
		return []goldenTensor{{name, "F32", make([]byte, 4*out*columns), []int{out, columns}}}
	}), device)
	for l := range m.Network.Layers {
		for _, module := range model.Modules {
			lin := m.Network.Layers[l].Linear(module)
			name := fmt.Sprintf("model.layers.%d.mlp.%s.weight", l, module)
			if slices.Contains([]model.Module{model.QProj, model.KProj, model.VProj, model.OProj}, module) {
				name = fmt.Sprintf("model.layers.%d.self_attn.%s.weight", l, module)
			}
			f, _ := dtype.Format()
			blocks := goldenBytes(name, dtype.Bytes(lin.Weight.Len()))
			for at := 0; at < len(blocks); at += f.Bytes {
				for i, x := range halves {
					copy(blocks[at+2*i:], halfBits(x))
				}
			}
			stored, err := kernels.FromBytes(dtype, blocks, lin.Weight.Shape...)
			if err != nil {
				t.Fatal(err)
			}
			lin.Weight = m.Backend.Place(stored)
		}
	}
	return m
}

// TestStepOverBlocksAgainstPyTorch: scores, loss and the gradients of every parameter over weights in blocks are PyTorch's over
// the same weights widened to bf16: of GGUF's formats, and of fp8 and gptq folders, columns out of order among them.
func TestStepOverBlocksAgainstPyTorch(t *testing.T) {
	folder := filepath.Join("testdata", "blocks")
	var steps struct {
		modeltest.Training
		Losses map[string]float64 `json:"losses"`
	}
	modeltest.ReadJSON(t, filepath.Join(folder, "steps.json"), &steps)
	if len(steps.Losses) != 5 {
		t.Fatalf("steps over %d formats, want 5", len(steps.Losses))
	}
	for format, want := range steps.Losses {
		for _, device := range []string{"cpu", "reference64"} {
			t.Run(format+"/"+device, func(t *testing.T) {
				g := steps.Training
				g.Model, g.Tensors = format, modeltest.ReadTensors(t, filepath.Join(folder, format+".safetensors"))
				m := openGoldenBlocks(t, format, device)
				if in := m.Network.Layers[0].Linear(model.QProj).Weight; in.DType.Numbers() == in.DType {
					if strings.HasPrefix(simd.Level(), "avx") || format[0] == 'Q' {
						t.Fatalf("weights are in %s", in.DType)
					}
				}
				if device == "reference64" { // which multiplies by numbers as they are decoded
					for l := range m.Network.Layers {
						for _, module := range model.Modules {
							lin := m.Network.Layers[l].Linear(module)
							lin.Weight = kernels.Widened(lin.Weight)
						}
					}
				}
				a, err := lora.Load(m, goldenAdapter(&g))
				if err != nil {
					t.Fatal(err)
				}
				nearScores(t, &g, m, a, "lookaheadkv.scores")
				s, loss := newStudentOf(t, m, a, "kl", nil)
				cache, targets := g.Sample(t, m)
				value, grads := gradients(t, s, sampleAfter(s, m, cache, targets))
				compare.Close(t, "loss", []float64{loss.Report(value)}, []float64{want}, 1e-5)
				compared, worst := 0, 0.0
				for i, p := range a.Parameters() {
					name := strings.TrimPrefix(p.Name, "lookahead_")
					want, ok := g.Tensors["lookaheadkv.grad."+name]
					if !ok {
						t.Errorf("PyTorch has no gradient of %s", name)
						continue
					}
					got := make([]float32, len(grads[i]))
					for j, v := range grads[i] {
						got[j] = float32(v)
					}
					g.Near(t, "gradient of "+name, got, want.Values, 1e-4)
					compared, worst = compared+1, max(worst, modeltest.RowError(got, want.Values))
				}
				if compared != 19 {
					t.Errorf("%d gradients compared, want 19", compared)
				}
				t.Logf("%d gradients, worst error %.2g", compared, worst)
			})
		}
	}
}

// goldenAdapter is the adapter of the steps.
func goldenAdapter(g *modeltest.Training) *checkpoints.Adapter {
	matrix := func(name string, scale float32, rows, cols int) checkpoints.Matrix {
		v := goldenNumbers(name, scale, 0, rows, cols)
		x := make([]float32, rows*cols)
		for i := range x {
			x[i] = math.Float32frombits(binary.LittleEndian.Uint32(v.Data[4*i:]))
		}
		return checkpoints.Matrix{Rows: rows, Cols: cols, Data: x}
	}
	a := &checkpoints.Adapter{Kind: lora.Kind, Embeddings: matrix("embeddings", 2, g.Rows, goldenHidden), Rank: g.Rank, Alpha: g.Alpha, LoRA: map[checkpoints.LoRAKey]checkpoints.LoRAFactors{}}
	for name, grad := range g.Tensors {
		at, ok := strings.CutSuffix(strings.TrimPrefix(name, "lookaheadkv.grad."), ".lora_B")
		if !ok {
			continue
		}
		parts := strings.Split(at, ".")
		a.LoRA[checkpoints.LoRAKey{Layer: int(parts[1][0] - '0'), Module: parts[2]}] = checkpoints.LoRAFactors{
			A: matrix(at+".lora_A", 0.5, g.Rank, goldenHidden), B: matrix(at+".lora_B", 0.5, grad.Shape[0], g.Rank),
		}
	}
	return a
}
