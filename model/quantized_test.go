package model_test

import (
	"archive/zip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

var quantizedPrompt = []int32{1, 30, 5, 17, 9, 3, 22}

// quantizedFolders are Llamas of every kind (lab/golden/golden_quantized.py), and the same with the
// weights that the kind's own package makes of them.
func quantizedFolders(t *testing.T) map[string][2]fstest.MapFS {
	t.Helper()
	z, err := zip.OpenReader(filepath.Join("..", "checkpoints", "quantized", "testdata", "llama.zip"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { z.Close() })
	kinds, err := fs.ReadDir(z, ".")
	if err != nil || len(kinds) < 6 {
		t.Fatalf("%d kinds, %v", len(kinds), err)
	}
	folders := map[string][2]fstest.MapFS{}
	for _, kind := range kinds {
		read := func(file string) []byte {
			data, err := fs.ReadFile(z, kind.Name()+"/"+file)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		config := map[string]any{}
		if err := json.Unmarshal(read("config.json"), &config); err != nil {
			t.Fatal(err)
		}
		delete(config, "quantization_config")
		plain, err := json.Marshal(config)
		if err != nil {
			t.Fatal(err)
		}
		folders[kind.Name()] = [2]fstest.MapFS{
			{"config.json": {Data: read("config.json")}, "model.safetensors": {Data: read("model.safetensors")}},
			{"config.json": {Data: plain}, "model.safetensors": {Data: read("widened.safetensors")}},
		}
	}
	return folders
}

// TestQuantizedIsWidened: a quantised folder is the model of the widened weights, to the bit.
func TestQuantizedIsWidened(t *testing.T) {
	for kind, folders := range quantizedFolders(t) {
		t.Run(kind, func(t *testing.T) {
			got, want := modeltest.OpenFolder(t, folders[0], "cpu"), modeltest.OpenFolder(t, folders[1], "cpu")
			a, b := logitsOf(t, got, quantizedPrompt), logitsOf(t, want, quantizedPrompt)
			if !slices.Equal(a, b) || slices.ContainsFunc(a, func(x float32) bool { return x != x || math.IsInf(float64(x), 0) }) {
				t.Errorf("logits %v, want %v", a, b)
			}
			name, err := want.SHA256(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if sum, err := got.SHA256(t.Context()); err != nil || sum != name {
				t.Errorf("weights are %s (%v), want %s", sum, err, name)
			}
			if got.WeightBytes() != want.WeightBytes() || len(got.Notes) > 0 {
				t.Errorf("%d bytes of weights, want %d; notes %q", got.WeightBytes(), want.WeightBytes(), got.Notes)
			}
		})
	}
}

// TestQuantizedMemory: forecasts count on the host what is widened, without the weights too.
func TestQuantizedMemory(t *testing.T) {
	for kind, folders := range quantizedFolders(t) {
		dir := t.TempDir()
		for name, file := range folders[0] {
			if err := os.WriteFile(filepath.Join(dir, name), file.Data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		shapes, err := model.OpenShapes(dir, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		m, err := model.Open(dir, model.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if !reflect.DeepEqual(shapes.Config, m.Config) || shapes.WeightBytes() != m.WeightBytes() {
			t.Errorf("%s: shapes of %d bytes and %+v, opened %d bytes and %+v", kind, shapes.WeightBytes(), shapes.Config, m.WeightBytes(), m.Config)
		}
		widened := int64(7 * m.Config.Hidden * m.Config.Hidden * 2)
		for _, m := range []*model.Model{shapes, m} {
			counted, _ := m.Counted()
			if f := m.NewForecast(counted, 1000, nil); f.Need != widened+1000 || f.Parts[0].Bytes != widened {
				t.Errorf("%s: %d bytes needed, %d of weights, want %d of weights and 1000", kind, f.Need, f.Parts[0].Bytes, widened)
			}
		}
	}
}

// TestQuantizedRefuses: what is missing or surplus is named, and other methods are refused by name.
func TestQuantizedRefuses(t *testing.T) {
	gptq := quantizedFolders(t)["gptq"][0]
	for name, c := range map[string]struct {
		method string
		drop   string
		want   []string
	}{
		"bitsandbytes": {method: "bitsandbytes", want: []string{`config.json: quantization_config: unknown quant_method "bitsandbytes", want one of: awq, compressed-tensors, fp8, gptq`}},
		"hqq":          {method: "hqq", want: []string{`unknown quant_method "hqq"`}},
		"scales":       {method: "gptq", drop: "model.layers.0.mlp.up_proj.scales", want: []string{`weights: tensor "model.layers.0.mlp.up_proj.scales": missing, want F32 or F16 or BF16 of shape [2 32]`}},
		"layer":        {method: "gptq", drop: "model.layers.0.mlp.up_proj.qweight", want: []string{"model.layers.0.mlp.up_proj.weight: missing, want shape [32 32]", `"model.layers.0.mlp.up_proj.scales": surplus`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := folder{t, maps.Clone(gptq)}.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
				if v.Name == c.drop {
					return nil
				}
				return &v
			})
			f.config(map[string]any{"quantization_config": map[string]any{"quant_method": c.method, "bits": 4, "group_size": 16}})
			f.refused(t, c.want...)
		})
	}
}

// TestZeroBiases: AutoGPTQ stores biases of zeros of modules without one.
func TestZeroBiases(t *testing.T) {
	folders := quantizedFolders(t)["gptq"]
	for name, value := range map[string]uint16{"zeros": 0, "other": 0x3f80} {
		t.Run(name, func(t *testing.T) {
			bias := checkpoints.BF16Tensor("model.layers.0.self_attn.q_proj.bias", []int{32}, slices.Repeat([]uint16{value}, 32))
			f := folder{t, maps.Clone(folders[0])}.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView { return &v }, bias)
			if value != 0 {
				f.refused(t, `"model.layers.0.self_attn.q_proj.bias": surplus`)
				return
			}
			m := modeltest.OpenFolder(t, f.fs, "cpu")
			if want := logitsOf(t, modeltest.OpenFolder(t, folders[1], "cpu"), quantizedPrompt); !slices.Equal(logitsOf(t, m, quantizedPrompt), want) || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "not used") {
				t.Errorf("other logits, or notes %q", m.Notes)
			}
		})
	}
}

// TestQuantizedElsewhere: parts of a module may lie in different files, under other names.
func TestQuantizedElsewhere(t *testing.T) {
	folders := quantizedFolders(t)["awq"]
	want := logitsOf(t, modeltest.OpenFolder(t, folders[1], "cpu"), quantizedPrompt)
	f := folder{t, maps.Clone(folders[0])}.renamed(func(name string) string { return "language_model." + name }).sharded()
	if got := logitsOf(t, modeltest.OpenFolder(t, f.fs, "cpu"), quantizedPrompt); !slices.Equal(got, want) {
		t.Errorf("logits %v, want %v", got, want)
	}
}

// packedFolder is a Llama whose linear layers compressed-tensors packs into 4 bits, in groups of 32 columns, which follow each
// other unless shuffled.
func packedFolder(t *testing.T, shape modeltest.Llama, shuffled bool) fstest.MapFS {
	folder, err := shape.Folder()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := checkpoints.ParseSafetensors("model.safetensors", folder["model.safetensors"].Data)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var file modeltest.Safetensors
	put := file.Put
	for _, name := range plain.Names() {
		view, err := plain.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		module, linear := strings.CutSuffix(name, "_proj.weight")
		if module += "_proj."; !linear {
			put(name, "F32", view.Data, view.Shape...)
			continue
		}
		rows, cols := view.Shape[0], view.Shape[1]
		codes, scales := make([]byte, rows*cols/2), make([]byte, 0, rows*cols/16)
		for i := range codes {
			codes[i] = byte(rng.Uint32())
		}
		for range rows * cols / 32 {
			scales = binary.LittleEndian.AppendUint16(scales, uint16(math.Float32bits(float32(0.1*(0.5+rng.Float64())/math.Sqrt(float64(cols))))>>16))
		}
		put(module+"weight_packed", "I32", codes, rows, cols/8)
		put(module+"weight_scale", "BF16", scales, rows, cols/32)
		if shuffled {
			var groups []byte
			for _, column := range rng.Perm(cols) {
				groups = binary.LittleEndian.AppendUint32(groups, uint32(column/32))
			}
			put(module+"weight_g_idx", "I32", groups, cols)
		}
		put(module+"weight_shape", "I64", binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, uint64(rows)), uint64(cols)), 2)
	}
	config := map[string]any{}
	if err := json.Unmarshal(folder["config.json"].Data, &config); err != nil {
		t.Fatal(err)
	}
	config["quantization_config"] = json.RawMessage(`{"quant_method":"compressed-tensors","format":"pack-quantized","ignore":["lm_head"],"config_groups":{"g":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":32}}}}`)
	settings, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return fstest.MapFS{"config.json": {Data: settings}, "model.safetensors": {Data: file.Bytes()}}
}

// TestQuantizedStaysInBlocks: a folder in 4 bits takes them in memory, is the model of its weights in bf16, and its
// prompts have the bits of those; of columns out of order, which are added up in another one, all but their last bits.
func TestQuantizedStaysInBlocks(t *testing.T) {
	for name, shuffled := range map[string]bool{"in order": false, "columns out of order": true} {
		t.Run(name, func(t *testing.T) { staysInBlocks(t, shuffled) })
	}
}

func staysInBlocks(t *testing.T, shuffled bool) {
	if simd.Level() == "portable" {
		t.Skip("weights are widened where there is no assembly for them")
	}
	shape := modeltest.Llama{Hidden: 64, Heads: 2, KVHeads: 1, HeadDim: 32, Intermediate: 96, Layers: 2, Seed: 3}
	folder := packedFolder(t, shape, shuffled)
	m, wide := modeltest.OpenFolder(t, folder, "cpu"), modeltest.OpenFolder(t, folder, "cpu")
	if f := m.WeightFormat(); f != "I4_BF16" {
		t.Fatalf("weights are in %s", f)
	}
	linear := 2 * (64*64 + 64*32*2 + 64*64 + 3*64*96)
	others := int64(4 * (2*40*64 + 5*64))
	if got, want := m.WeightBytes(), int64(linear/32*19)+others; got != want {
		t.Errorf("%d bytes of weights, want %d", got, want)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), folder["config.json"].Data, 0o644); err != nil {
		t.Fatal(err)
	}
	shapes, err := model.OpenShapes(dir, "cpu") // without files, others are taken to be in bf16
	if want := int64(linear/32*19) + others/2; err != nil || shapes.WeightBytes() != want {
		t.Errorf("shapes of %d bytes (%v), want %d", shapes.WeightBytes(), err, want)
	}
	for i := range wide.Network.Layers {
		for _, module := range model.Modules {
			l := wide.Network.Layers[i].Linear(module)
			l.Weight = kernels.Widened(l.Weight)
		}
	}
	tokens := modeltest.Tokens(m, 1, 60)
	run := func(m *model.Model) (keys [][]float32, step []float32) {
		r, cache := runner.New(m), kvcache.New(m)
		if _, err := r.Prefill(t.Context(), cache, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		for l := range m.Config.Layers {
			keys = append(keys, cache.View(l)[0].K.Float32s())
		}
		if step, err = r.Step(t.Context(), cache, 5, runner.Capture{}, nil); err != nil {
			t.Fatal(err)
		}
		return keys, step
	}
	keys, step := run(m)
	wantKeys, wantStep := run(wide)
	for l, want := range wantKeys {
		if !shuffled && !slices.Equal(keys[l], want) {
			t.Errorf("layer %d: a prompt's keys differ from those of the weights in bf16", l)
		}
		compare.Close(t, "keys", keys[l], want, 2e-5, compare.Floor(1))
	}
	widened := newFolder(t, shape).tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		for i := range wide.Network.Layers {
			for _, module := range model.Modules {
				if strings.HasPrefix(v.Name, fmt.Sprintf("model.layers.%d.", i)) && strings.HasSuffix(v.Name, string(module)+".weight") {
					v = checkpoints.BF16Tensor(v.Name, v.Shape, wide.Network.Layers[i].Linear(module).Weight.U16())
				}
			}
		}
		return &v
	})
	name, err := modeltest.OpenFolder(t, widened.fs, "cpu").SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sum, err := m.SHA256(t.Context()); err != nil || sum != name {
		t.Errorf("weights are %s (%v), want %s", sum, err, name)
	}
	compare.Close(t, "step", step, wantStep, 6e-2, compare.Floor(1))
	if slices.Equal(step, wantStep) {
		t.Error("a step rounds nothing: its products are not of integers")
	}
}

// gptOSSFolders are the golden gpt-oss with experts of 32 columns, as blocks of MXFP4 and as what these hold in bf16.
func gptOSSFolders(t *testing.T) (blocks, wide fstest.MapFS) {
	const experts, hidden, width = 4, 32, 32
	base := fstest.MapFS{}
	for _, name := range []string{"config.json", "model.safetensors"} {
		data, err := os.ReadFile(filepath.Join("testdata", "golden", "gpt-oss", name))
		if err != nil {
			t.Fatal(err)
		}
		base[name] = &fstest.MapFile{Data: data}
	}
	f := folder{t, base}.config(map[string]any{"intermediate_size": width, "quantization_config": map[string]any{"quant_method": "mxfp4"}})
	plain, err := checkpoints.ParseSafetensors("model.safetensors", base["model.safetensors"].Data)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	files := [2]*modeltest.Safetensors{{}, {}}
	for _, name := range plain.Names() {
		view, err := plain.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		at, module, expert := strings.Cut(name, "experts.")
		at += "experts."
		switch out := map[string]int{"gate_up_proj": 2 * width, "down_proj": hidden}[strings.TrimSuffix(module, "_bias")]; {
		case !expert:
			for _, file := range files {
				file.Put(name, view.DType.String(), view.Data, view.Shape...)
			}
		case strings.HasSuffix(module, "_bias"):
			data := make([]byte, 2*experts*out) // of small half-precision numbers
			for i := range data {
				data[i] = byte(rng.Uint32())
				if i%2 == 1 {
					data[i] = data[i]&0x83 | 0x28
				}
			}
			for _, file := range files {
				file.Put(name, "F16", data, experts, out)
			}
		default:
			codes, scales, numbers := make([]byte, experts*out*16), make([]byte, experts*out), make([]byte, 2*experts*out*32)
			for i := range codes {
				codes[i] = byte(rng.Uint32())
			}
			for row := range scales {
				scales[row] = byte(122 + rng.IntN(4))
				for i := range 32 {
					code := codes[row*16+i/2] >> (i % 2 * 4) & 15
					x := []float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[code&7] * math.Pow(2, float64(scales[row])-127)
					bits := uint16(math.Float32bits(float32(x))>>16) | uint16(code>>3)<<15
					binary.LittleEndian.PutUint16(numbers[2*((row/out*32+i)*out+row%out):], bits) // [experts, in, out]
				}
			}
			files[0].Put(at+module+"_blocks", "U8", codes, experts, out, 1, 16)
			files[0].Put(at+module+"_scales", "U8", scales, experts, out, 1)
			files[1].Put(at+module, "BF16", numbers, experts, 32, out)
		}
	}
	for i, file := range files {
		made := folder{t, fstest.MapFS{"config.json": f.fs["config.json"], "model.safetensors": {Data: file.Bytes()}}}
		if i == 0 {
			blocks = made.fs
			continue
		}
		wide = made.config(map[string]any{"quantization_config": nil}).fs
	}
	return blocks, wide
}

// TestExpertsStayInBlocks: gpt-oss's experts take 4.25 bits in memory, and are the model of their numbers in bf16.
func TestExpertsStayInBlocks(t *testing.T) {
	if !strings.HasPrefix(simd.Level(), "avx") {
		t.Skip("experts are widened where there is no assembly for them")
	}
	folder, plain := gptOSSFolders(t)
	m, wide := modeltest.OpenFolder(t, folder, "cpu"), modeltest.OpenFolder(t, plain, "cpu")
	const weights = 2 * 4 * 3 * 32 * 32
	if got, want := m.WeightBytes(), wide.WeightBytes()-2*weights+weights/32*17; got != want || m.Network.Layers[0].Experts.Each[0].Up.Weight.DType.String() != checkpoints.MXFP4 {
		t.Errorf("%d bytes of weights in %s, want %d; in bf16 %d", got, m.Network.Layers[0].Experts.Each[0].Up.Weight.DType, want, wide.WeightBytes())
	}
	t.Logf("%d bytes of weights, in bf16 %d", m.WeightBytes(), wide.WeightBytes())
	sum, err := wide.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := m.SHA256(t.Context()); err != nil || got != sum {
		t.Errorf("weights are %s (%v), want %s", got, err, sum)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), folder["config.json"].Data, 0o644); err != nil {
		t.Fatal(err)
	}
	if shapes, err := model.OpenShapes(dir, "cpu"); err != nil || shapes.WeightBytes() >= m.WeightBytes()+m.WeightBytes()/20 || shapes.WeightBytes() < m.WeightBytes()*9/10 {
		t.Errorf("shapes of %d bytes (%v), opened %d", shapes.WeightBytes(), err, m.WeightBytes())
	}
	tokens := modeltest.Tokens(m, 1, 240) // of which every expert gets more than 16
	var logits [2][]float32
	var keys [2][][]float32
	for i, m := range []*model.Model{m, wide} {
		r, cache := runner.New(m), kvcache.New(m)
		if _, err := r.Prefill(t.Context(), cache, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		for l := range m.Config.Layers {
			for _, kv := range cache.View(l) {
				keys[i] = append(keys[i], kv.K.Float32s(), kv.V.Float32s())
			}
		}
		if logits[i], err = r.Step(t.Context(), cache, 5, runner.Capture{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if !reflect.DeepEqual(keys[0], keys[1]) {
		t.Error("a prompt's keys differ from those of the weights in bf16")
	}
	compare.Close(t, "step", logits[0], logits[1], 6e-2, compare.Floor(1))
	if slices.Equal(logits[0], logits[1]) {
		t.Error("a step rounds nothing: its products are not of integers")
	}
}

// TestCUDAQuantized: a folder in 4 bits and experts in MXFP4 take a device the bytes that they take the host, few rows meet the
// numbers that they stand for, and experts are routed there.
func TestCUDAQuantized(t *testing.T) {
	modeltest.NeedCUDA(t)
	experts, _ := gptOSSFolders(t)
	shape := modeltest.Llama{Hidden: 128, Heads: 2, KVHeads: 1, HeadDim: 64, Intermediate: 256, Layers: 2, Seed: 3}
	for name, folder := range map[string]fstest.MapFS{"4 bits": packedFolder(t, shape, false), "columns out of order": packedFolder(t, shape, true), "experts": experts} {
		t.Run(name, func(t *testing.T) {
			m, exact := modeltest.OpenFolder(t, folder, "cuda"), modeltest.OpenFolder(t, folder, "reference64")
			if got, want := m.WeightBytes(), modeltest.OpenFolder(t, folder, "cpu").WeightBytes(); got != want {
				t.Errorf("%d bytes of weights, want %d as on the host", got, want)
			}
			if e := m.Network.Layers[0].Experts; e != nil && !e.OnDevice(m.Backend, 1) {
				t.Error("experts are routed on the host")
			}
			tokens := modeltest.Tokens(m, 1, 9)
			var logits [2][][]float32
			for i, m := range []*model.Model{m, exact} {
				r, cache := runner.New(m), kvcache.New(m)
				if _, err := r.Prefill(t.Context(), cache, tokens, runner.PrefillOptions{}); err != nil {
					t.Fatal(err)
				}
				for id := range int32(4) { // plain, recorded and replayed
					step, err := r.Step(t.Context(), cache, 5+id, runner.Capture{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					logits[i] = append(logits[i], step)
				}
			}
			for i, want := range logits[1] {
				compare.Close(t, fmt.Sprintf("step %d", i), logits[0][i], want, 1e-4, compare.Floor(1))
			}
		})
	}
}
