package checkpoints

import (
	"bytes"
	"encoding/json"
	"errors"
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

	"glimpse/internal/atomicfile"
)

func randomMatrix(rng *rand.Rand, rows, cols int) Matrix {
	m := Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
	for i := range m.Data {
		m.Data[i] = rng.Float32() - 0.5
	}
	return m
}

// softTokens is an adapter without LoRA.
func softTokens() *Adapter {
	return &Adapter{
		Kind:          "judgeq",
		Base:          BaseModel{Name: "some/model-<1B>", SHA256: strings.Repeat("0a", 32), Format: "Q4_K, Q6_K"},
		Embeddings:    randomMatrix(rand.New(rand.NewPCG(1, 1)), 4, 6),
		Loss:          "mse",
		PoolingKernel: 1,
		Training:      json.RawMessage(`{"steps":10,"learning_rate":1e-3,"note":"a < b & \"c\""}`),
		Data:          DataSource{Description: "synthetic, 100 prompts", Seed: math.MaxInt64},
		Metrics:       map[string]float64{"loss": 0.1, "hit_rate": 1.0 / 3},
	}
}

// withLoRA is an adapter with factors on two layers, the last without those that
// get no gradient.
func withLoRA() *Adapter {
	const hidden, kv, inner, rank = 6, 4, 10, 2
	a := softTokens()
	a.Kind, a.Loss, a.PoolingKernel = "lookaheadkv", "kl", 7
	a.Rank, a.Alpha, a.InvocationTokens = rank, 32, []int{128006, 78191}
	a.LoRA = map[LoRAKey]LoRAFactors{}
	rng := rand.New(rand.NewPCG(2, 2))
	for module, size := range map[string][2]int{ // in, out
		"q_proj": {hidden, hidden}, "k_proj": {hidden, kv}, "v_proj": {hidden, kv}, "o_proj": {hidden, hidden},
		"gate_proj": {hidden, inner}, "up_proj": {hidden, inner}, "down_proj": {inner, hidden},
	} {
		for layer := range 2 {
			if layer == 0 || module == "q_proj" || module == "k_proj" {
				a.LoRA[LoRAKey{layer, module}] = LoRAFactors{A: randomMatrix(rng, rank, size[0]), B: randomMatrix(rng, size[1], rank)}
			}
		}
	}
	return a
}

func adapters() map[string]*Adapter {
	all := map[string]*Adapter{"soft tokens": softTokens(), "LoRA": withLoRA(), "soft tokens in bf16": softTokens(), "LoRA in bf16": withLoRA()}
	for name, a := range all {
		if strings.HasSuffix(name, "bf16") {
			if err := a.SetDType("bf16"); err != nil {
				panic(err)
			}
		}
	}
	return all
}

func readFiles(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string][]byte)
	for _, e := range entries {
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// exported returns the files of an adapter.
func exported(t testing.TB, a *Adapter) map[string][]byte {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := WriteAdapter(dir, a, false); err != nil {
		t.Fatal(err)
	}
	return readFiles(t, dir)
}

func TestAdapterRoundTrip(t *testing.T) {
	for name, a := range adapters() {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "adapter")
			if err := WriteAdapter(dir, a, false); err != nil {
				t.Fatal(err)
			}
			files := readFiles(t, dir)
			want := []string{embeddingsFile}
			if a.LoRA != nil {
				want = []string{peftConfigFile, peftModelFile, embeddingsFile}
			}
			want = append(want, AdapterManifest)
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(files)); !slices.Equal(got, want) {
				t.Fatalf("files %q, want %q", got, want)
			}
			got, err := ReadAdapter(dir)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, a) {
				t.Fatalf("got  %+v\nwant %+v", got, a)
			}
			inFolder := make(map[string][]byte)
			for file, data := range files {
				inFolder["some/folder/"+file] = data
			}
			if got, err = ReadAdapterFS(mapFS(inFolder), "some/folder"); err != nil || !reflect.DeepEqual(got, a) {
				t.Fatalf("from a file system: %v", err)
			}
			if again := exported(t, a); !reflect.DeepEqual(again, files) {
				t.Fatal("the same adapter gave other bytes")
			}
			if left := slices.Sorted(maps.Keys(readNames(t, parent))); len(left) != 1 {
				t.Fatalf("the parent folder holds %q", left)
			}
		})
	}
}

func readNames(t testing.TB, dir string) map[string]bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names
}

// What other programs rely on: PEFT's keys and tensor names, ours in glimpse.json.
func TestAdapterFilesForOthers(t *testing.T) {
	files := exported(t, withLoRA())
	const config = `{
  "base_model_name_or_path": "some/model-<1B>",
  "r": 2,
  "lora_alpha": 32,
  "target_modules": [
    "q_proj",
    "k_proj",
    "v_proj",
    "o_proj",
    "gate_proj",
    "up_proj",
    "down_proj"
  ],
  "alora_invocation_tokens": [
    128006,
    78191
  ],
  "peft_type": "LORA",
  "task_type": "CAUSAL_LM",
  "lora_dropout": 0,
  "bias": "none",
  "inference_mode": true,
  "fan_in_fan_out": false,
  "use_rslora": false,
  "use_dora": false,
  "modules_to_save": null,
  "rank_pattern": {},
  "alpha_pattern": {}
}
`
	if got := string(files[peftConfigFile]); got != config {
		t.Errorf("%s: got %s\nwant %s", peftConfigFile, got, config)
	}
	s, err := ParseSafetensors(peftModelFile, files[peftModelFile])
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.Metadata()); got != "map[format:pt]" || len(s.Names()) != 18 {
		t.Errorf("metadata %s, %d tensors; want map[format:pt], 18", got, len(s.Names()))
	}
	for name, want := range map[string]string{
		"base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight": "[2 6]",
		"base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight": "[4 2]",
		"base_model.model.model.layers.1.self_attn.k_proj.lora_B.weight": "[4 2]",
		"base_model.model.model.layers.0.mlp.gate_proj.lora_B.weight":    "[10 2]",
		"base_model.model.model.layers.0.mlp.down_proj.lora_A.weight":    "[2 10]",
	} {
		if info, ok := s.Info(name); !ok || fmt.Sprint(info.Shape) != want || info.DType != "F32" {
			t.Errorf("tensor %s: %+v, %v; want F32 %s", name, info, ok, want)
		}
	}
	var m map[string]any
	if err := json.Unmarshal(files[AdapterManifest], &m); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"format": "glimpse-adapter", "version": "1", "kind": "lookaheadkv", "rows": "4", "hidden_size": "6",
		"loss": "kl", "pooling_kernel": "7", "base_model": "map[format:Q4_K, Q6_K name:some/model-<1B> sha256:" + strings.Repeat("0a", 32) + "]",
	} {
		if got := fmt.Sprint(m[key]); got != want {
			t.Errorf("%s: %s: got %s, want %s", AdapterManifest, key, got, want)
		}
	}
	for name, data := range files {
		if got := m["files"].(map[string]any)[name]; name != AdapterManifest && got != sha256Hex(data) {
			t.Errorf("%s: hash of %s: got %v, want %s", AdapterManifest, name, got, sha256Hex(data))
		}
	}
}

// A flipped bit in any byte of any file is an error.
func TestAdapterBitFlips(t *testing.T) {
	for name, a := range adapters() {
		t.Run(name, func(t *testing.T) {
			files := exported(t, a)
			fsys := mapFS(files)
			if _, err := ReadAdapterFS(fsys, "."); err != nil {
				t.Fatal(err)
			}
			for file, data := range files {
				for i := range data {
					flipped := bytes.Clone(data)
					flipped[i] ^= 1 << (i % 8)
					fsys[file].Data = flipped
					_, err := ReadAdapterFS(fsys, ".")
					if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
						t.Fatalf("%s: bit %d of byte %d flipped: %v", file, i%8, i, err)
					}
				}
				for _, cut := range []int{0, 1, len(data) / 2, len(data) - 1} {
					fsys[file].Data = data[:cut]
					if _, err := ReadAdapterFS(fsys, "."); !errors.Is(err, ErrCorrupt) {
						t.Fatalf("%s: cut to %d bytes: %v", file, cut, err)
					}
				}
				fsys[file].Data = append(bytes.Clone(data), '\n')
				if _, err := ReadAdapterFS(fsys, "."); !errors.Is(err, ErrCorrupt) {
					t.Fatalf("%s: a byte appended: %v", file, err)
				}
				fsys[file].Data = data
			}
		})
	}
}

// sign makes hashes and digest of changed files right again, so that what lies
// behind them is tested.
func sign(t testing.TB, files map[string][]byte) {
	t.Helper()
	if files[AdapterManifest] == nil {
		return
	}
	text := string(files[AdapterManifest])
	for _, line := range strings.Split(text, "\n") {
		for name, data := range files {
			if key := `    "` + name + `": "`; name != AdapterManifest && strings.HasPrefix(line, key) {
				text = strings.Replace(text, line, key+sha256Hex(data)+strings.TrimLeft(line[len(key):], "0123456789abcdef"), 1)
			}
		}
	}
	at := strings.LastIndex(text, beforeDigest)
	if at < 0 || len(text) < at+len(beforeDigest)+64 {
		files[AdapterManifest] = []byte(text)
		return
	}
	at += len(beforeDigest)
	files[AdapterManifest] = []byte(text[:at] + digestWithout([]byte(text), at) + text[at+64:])
}

func TestHostileAdapters(t *testing.T) {
	type change = func(t *testing.T, files map[string][]byte)
	edit := func(file, from, to string) change {
		return func(t *testing.T, files map[string][]byte) {
			if !bytes.Contains(files[file], []byte(from)) {
				t.Fatalf("%s does not contain %q", file, from)
			}
			files[file] = bytes.Replace(files[file], []byte(from), []byte(to), 1)
		}
	}
	rewrite := func(file string, f func(map[string]TensorView) map[string]string) change {
		return func(t *testing.T, files map[string][]byte) {
			s, err := ParseSafetensors(file, files[file])
			if err != nil {
				t.Fatal(err)
			}
			byName := map[string]TensorView{}
			for _, n := range s.Names() {
				byName[n], _ = s.Tensor(n)
			}
			metadata := f(byName)
			var list []TensorView
			for n, v := range byName {
				v.Name = n
				list = append(list, v)
			}
			var b bytes.Buffer
			if err := WriteSafetensors(&b, list, metadata); err != nil {
				t.Fatal(err)
			}
			files[file] = b.Bytes()
		}
	}
	const q0A = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
	lora := func(f func(map[string]TensorView)) change {
		return rewrite(peftModelFile, func(m map[string]TensorView) map[string]string { f(m); return peftMetadata })
	}
	rename := func(to string) change {
		return lora(func(m map[string]TensorView) { m[to] = m[q0A]; delete(m, q0A) })
	}
	nan := float32(math.NaN())
	for name, c := range map[string]struct {
		change change
		is     error
		want   string
	}{
		"no manifest":          {func(_ *testing.T, f map[string][]byte) { delete(f, AdapterManifest) }, ErrNotAdapter, "not an adapter folder: no glimpse.json"},
		"manifest not JSON":    {func(_ *testing.T, f map[string][]byte) { f[AdapterManifest] = []byte("{") }, ErrCorrupt, "glimpse.json: not valid JSON"},
		"manifest null":        {func(_ *testing.T, f map[string][]byte) { f[AdapterManifest] = []byte("null") }, ErrCorrupt, "format: got"},
		"other format":         {edit(AdapterManifest, "glimpse-adapter", "other"), ErrCorrupt, `format: got "other", want "glimpse-adapter"`},
		"newer version":        {edit(AdapterManifest, `"version": 1`, `"version": 2, "more": 1`), ErrVersion, "glimpse.json: unknown format version: got 2, want 1"},
		"version missing":      {edit(AdapterManifest, `"version": 1,`, ``), ErrCorrupt, "and a version"},
		"unknown key":          {edit(AdapterManifest, `"version": 1`, `"version": 1, "more": 1`), ErrCorrupt, `unknown keys "more"`},
		"missing key":          {edit(AdapterManifest, `  "loss": "kl",`, ``), ErrCorrupt, `missing keys "loss"`},
		"key in other case":    {edit(AdapterManifest, `"loss"`, `"Loss"`), ErrCorrupt, `missing keys "loss"; unknown keys "Loss"`},
		"duplicate key":        {edit(AdapterManifest, `"loss"`, `"loss": "kl", "loss"`), ErrCorrupt, `duplicate key "loss"`},
		"duplicate metric":     {edit(AdapterManifest, `"hit_rate"`, `"loss": 2, "hit_rate"`), ErrCorrupt, `duplicate key "loss"`},
		"digest not last":      {edit(AdapterManifest, "\"\n}\n", "\" }\n"), ErrCorrupt, "does not end in a digest"},
		"kind empty":           {edit(AdapterManifest, `"lookaheadkv"`, `""`), ErrCorrupt, `kind: got ""`},
		"kind with space":      {edit(AdapterManifest, `"lookaheadkv"`, `"a b"`), ErrCorrupt, `kind: got "a b"`},
		"base hash short":      {edit(AdapterManifest, `"sha256": "0a`, `"sha256": "`), ErrCorrupt, "base model: sha256: got"},
		"base name empty":      {edit(AdapterManifest, `some/model-<1B>`, ``), ErrCorrupt, `base_model_name_or_path: got "some/model-<1B>", want ""`},
		"even pooling kernel":  {edit(AdapterManifest, `"pooling_kernel": 7`, `"pooling_kernel": 6`), ErrCorrupt, "pooling kernel: got 6, want an odd width"},
		"wide pooling kernel":  {edit(AdapterManifest, `"pooling_kernel": 7`, `"pooling_kernel": 9223372036854775807`), ErrCorrupt, "pooling kernel: got 9223372036854775807, want an odd width from 1 to 4095"},
		"training not object":  {edit(AdapterManifest, `"training": {`, `"training": [], "x": {`), ErrCorrupt, `unknown keys "x"`},
		"training null":        {edit(AdapterManifest, `"data": {`, `"data": null, "x": {`), ErrCorrupt, `data: got null`},
		"seed too large":       {edit(AdapterManifest, "9223372036854775807", "9223372036854775808"), ErrCorrupt, "data.seed: json: cannot unmarshal"},
		"other rows":           {edit(AdapterManifest, `"rows": 4`, `"rows": 5`), ErrCorrupt, `lookahead_embeddings.safetensors: tensor "lookahead_embeddings": shape [4 6], want [5 6] from glimpse.json`},
		"other hidden size":    {edit(AdapterManifest, `"hidden_size": 6`, `"hidden_size": 7`), ErrCorrupt, `shape [4 6], want [4 7]`},
		"embeddings unlisted":  {edit(AdapterManifest, `"lookahead_embeddings.safetensors": "`, `"other.safetensors": "`), ErrCorrupt, `glimpse.json lacks "lookahead_embeddings.safetensors"; glimpse.json lists unknown "other.safetensors"; unknown files "lookahead_embeddings.safetensors"`},
		"path in list":         {edit(AdapterManifest, `"adapter_model.safetensors": "`, `"../adapter_model.safetensors": "`), ErrCorrupt, `glimpse.json lacks "adapter_model.safetensors"`},
		"files missing":        {func(_ *testing.T, f map[string][]byte) { delete(f, peftModelFile); delete(f, embeddingsFile) }, ErrCorrupt, `missing files "adapter_model.safetensors", "lookahead_embeddings.safetensors"`},
		"unknown weights":      {func(_ *testing.T, f map[string][]byte) { f["extra.safetensors"] = nil; f["pytorch_model.bin"] = nil }, ErrCorrupt, `unknown files "extra.safetensors", "pytorch_model.bin"`},
		"config unknown key":   {edit(peftConfigFile, `"r": 2`, `"r": 2, "x": 1`), ErrCorrupt, `adapter_config.json: unknown keys "x"`},
		"config missing key":   {edit(peftConfigFile, `  "bias": "none",`, ``), ErrCorrupt, `adapter_config.json: missing keys "bias"`},
		"config DoRA":          {edit(peftConfigFile, `"use_dora": false`, `"use_dora": true`), ErrCorrupt, `adapter_config.json: use_dora: got true, want false`},
		"config dropout":       {edit(peftConfigFile, `"lora_dropout": 0`, `"lora_dropout": 0.5`), ErrCorrupt, `lora_dropout: got 0.5, want 0`},
		"config saves modules": {edit(peftConfigFile, `"modules_to_save": null`, `"modules_to_save": ["lm_head"]`), ErrCorrupt, `modules_to_save: got ["lm_head"], want null`},
		"config rank pattern":  {edit(peftConfigFile, `"rank_pattern": {}`, `"rank_pattern": {"a": 3}`), ErrCorrupt, `rank_pattern: got {"a":3}, want {}`},
		"config other base":    {edit(peftConfigFile, `some/model`, `other/model`), ErrCorrupt, `base_model_name_or_path: got "other/model`},
		"config other rank":    {edit(peftConfigFile, `"r": 2`, `"r": 3`), ErrCorrupt, `layer 0 q_proj lora_A: shape [2 6], want [3 6]`},
		"config rank zero":     {edit(peftConfigFile, `"r": 2`, `"r": 0`), ErrCorrupt, `LoRA rank: got 0, want at least 1`},
		"config alpha":         {edit(peftConfigFile, `"lora_alpha": 32`, `"lora_alpha": -1`), ErrCorrupt, `LoRA alpha: got -1, want a positive number`},
		"config no tokens":     {edit(peftConfigFile, "128006,\n    78191", ``), ErrCorrupt, `invocation tokens: got [], want at least one`},
		"config modules":       {edit(peftConfigFile, `"q_proj",`, ``), ErrCorrupt, `target_modules: got ["k_proj",`},
		"config not JSON":      {edit(peftConfigFile, `{`, `[`), ErrCorrupt, "adapter_config.json: not valid JSON"},
		"LoRA not safetensors": {func(_ *testing.T, f map[string][]byte) { f[peftModelFile] = []byte("x") }, ErrCorrupt, "adapter_model.safetensors: file of 1 bytes"},
		"LoRA other metadata":  {rewrite(peftModelFile, func(map[string]TensorView) map[string]string { return nil }), ErrCorrupt, `adapter_model.safetensors: __metadata__: got map[], want map["format":"pt"]`},
		"LoRA half missing":    {lora(func(m map[string]TensorView) { delete(m, q0A) }), ErrCorrupt, `adapter_model.safetensors: missing tensors "` + q0A + `"`},
		"LoRA none":            {lora(func(m map[string]TensorView) { clear(m) }), ErrCorrupt, `target_modules: got ["q_proj",`},
		"LoRA unknown module":  {rename("base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight"), ErrCorrupt, `unknown tensors "base_model.model.model.layers.0.self_attn.qkv_proj.lora_A.weight"; missing tensors "` + q0A + `"`},
		"LoRA wrong block":     {rename("base_model.model.model.layers.0.mlp.q_proj.lora_A.weight"), ErrCorrupt, "unknown tensors"},
		"LoRA layer 00":        {rename("base_model.model.model.layers.00.self_attn.q_proj.lora_A.weight"), ErrCorrupt, "unknown tensors"},
		"LoRA layer -1":        {rename("base_model.model.model.layers.-1.self_attn.q_proj.lora_A.weight"), ErrCorrupt, "unknown tensors"},
		"LoRA no prefix":       {rename("0.self_attn.q_proj.lora_A.weight"), ErrCorrupt, "unknown tensors"},
		"LoRA factor C":        {rename("base_model.model.model.layers.0.self_attn.q_proj.lora_C.weight"), ErrCorrupt, "unknown tensors"},
		"LoRA rank differs": {lora(func(m map[string]TensorView) { m[q0A] = F32Tensor(q0A, []int{3, 6}, make([]float32, 18)) }), ErrCorrupt,
			"layer 0 q_proj lora_A: shape [3 6], want [2 6]"},
		"LoRA input differs": {lora(func(m map[string]TensorView) { m[q0A] = F32Tensor(q0A, []int{2, 5}, make([]float32, 10)) }), ErrCorrupt,
			"layer 0 q_proj lora_A: shape [2 5], want [2 6]"},
		"LoRA layers differ": {lora(func(m map[string]TensorView) {
			name := strings.ReplaceAll(strings.ReplaceAll(q0A, "layers.0", "layers.1"), "lora_A", "lora_B")
			m[name] = F32Tensor(name, []int{5, 2}, make([]float32, 10))
		}), ErrCorrupt, "layer 1 q_proj lora_B: shape [5 2], want [6 2]"},
		"LoRA rank 3 tensor": {lora(func(m map[string]TensorView) { m[q0A] = F32Tensor(q0A, []int{1, 2, 6}, make([]float32, 12)) }), ErrCorrupt,
			"got F32 [1 2 6], want F32 of rank 2"},
		"LoRA of another type": {lora(func(m map[string]TensorView) { m[q0A] = BF16Tensor(q0A, []int{2, 6}, make([]uint16, 12)) }), ErrCorrupt,
			"got BF16 [2 6], want F32 of rank 2"},
		"LoRA empty": {lora(func(m map[string]TensorView) { m[q0A] = F32Tensor(q0A, []int{2, 0}, nil) }), ErrCorrupt,
			"layer 0 q_proj lora_A: shape [2 0], want [2 6]"},
		"LoRA F64": {lora(func(m map[string]TensorView) { m[q0A] = F64Tensor(q0A, []int{2, 6}, make([]float64, 12)) }), ErrCorrupt,
			"got F64 [2 6], want F32 of rank 2"},
		"LoRA infinite": {lora(func(m map[string]TensorView) {
			v := make([]float32, 12)
			v[7] = float32(math.Inf(-1))
			m[q0A] = F32Tensor(q0A, []int{2, 6}, v)
		}), ErrCorrupt, "layer 0 q_proj lora_A: element [1 1] is -Inf, want a finite number"},
		"embeddings NaN": {rewrite(embeddingsFile, func(m map[string]TensorView) map[string]string {
			v := make([]float32, 24)
			v[23] = nan
			m[embeddingsTensor] = F32Tensor(embeddingsTensor, []int{4, 6}, v)
			return peftMetadata
		}), ErrCorrupt, "embeddings: element [3 5] is NaN"},
		"embeddings other tensor": {rewrite(embeddingsFile, func(m map[string]TensorView) map[string]string {
			m["x"] = F32Tensor("x", []int{1}, []float32{1})
			return peftMetadata
		}), ErrCorrupt, `lookahead_embeddings.safetensors: got tensors "lookahead_embeddings", "x", want only "lookahead_embeddings"`},
	} {
		t.Run(name, func(t *testing.T) {
			files := exported(t, withLoRA())
			c.change(t, files)
			sign(t, files)
			dir := t.TempDir()
			writeFiles(t, dir, files)
			_, err := ReadAdapter(dir)
			wantErrorIs(t, err, c.is, c.want)
			wantError(t, err, "read adapter "+dir)
			_, err = ReadAdapterFS(mapFS(files), ".")
			wantErrorIs(t, err, c.is, c.want)
		})
	}
	t.Run("sign keeps a good adapter good", func(t *testing.T) {
		files := exported(t, withLoRA())
		want := maps.Clone(files)
		sign(t, files)
		if !reflect.DeepEqual(files, want) {
			t.Fatal("signing an unchanged adapter changed it")
		}
	})
	_, err := ReadAdapter(filepath.Join(t.TempDir(), "missing"))
	if wantErrorIs(t, err, fs.ErrNotExist, "read adapter"); errors.Is(err, ErrNotAdapter) {
		t.Fatalf("missing folder: %v is ErrNotAdapter", err)
	}
}

func TestAdapterBesideOtherFiles(t *testing.T) {
	files := exported(t, withLoRA())
	for _, name := range []string{"README.md", "LICENSE", "NOTICE.txt", ".gitattributes", ".x.tmp-0123456789abcdef"} {
		files[name] = []byte("x")
	}
	if _, err := ReadAdapterFS(mapFS(files), "."); err != nil {
		t.Fatal(err)
	}
}

func TestCheckBase(t *testing.T) {
	a := withLoRA()
	if err := a.CheckBase("renamed", a.Base.SHA256); err != nil {
		t.Fatal(err)
	}
	other := strings.Repeat("f", 64)
	wantErrorIs(t, a.CheckBase("other/model", other), ErrWrongBase,
		`trained for "some/model-<1B>" (weights sha256 `+a.Base.SHA256+`), got "other/model" (weights sha256 `+other+`)`)
}

// TestAdapterInBF16: numbers are rounded to the nearest, ties to even, and files have half the bytes; a number
// that becomes infinite is refused, and so is one that was never rounded.
func TestAdapterInBF16(t *testing.T) {
	a := withLoRA()
	whole := *a
	copy(a.Embeddings.Data, []float32{1 + 1.0/256, 1 + 3.0/256, 1 + 1.01/256, -1 - 1.0/256})
	if err := a.SetDType("bf16"); err != nil {
		t.Fatal(err)
	}
	if got, want := a.Embeddings.Data[:4], []float32{1, 1 + 4.0/256, 1 + 2.0/256, -1}; !slices.Equal(got, want) {
		t.Errorf("rounded to %v, want %v", got, want)
	}
	got, err := ReadAdapterFS(mapFS(exported(t, a)), ".")
	if err != nil || got.SHA256() != a.SHA256() || got.SHA256() == whole.SHA256() {
		t.Errorf("read back: %v, %v", got, err)
	}
	s, err := ParseSafetensors(peftModelFile, exported(t, a)[peftModelFile])
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range s.Names() {
		if info, _ := s.Info(name); info.DType != "BF16" {
			t.Errorf("tensor %s is %s, want BF16", name, info.DType)
		}
	}
	if err := a.SetDType("float32"); err != nil || a.BF16 {
		t.Errorf("back to float32: %v", err)
	}
	huge := softTokens()
	huge.Embeddings.Data[3] = math.MaxFloat32
	wantError(t, huge.SetDType("bf16"), "embeddings: element [0 3] is +Inf, want a finite number")
	wantError(t, huge.SetDType("float16"), `dtype: got "float16", want one of: float32, bf16`)
}

func TestWriteAdapterRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Adapter)
		want   string
	}{
		"NaN embedding":      {func(a *Adapter) { a.Embeddings.Data[3] = float32(math.NaN()) }, "embeddings: element [0 3] is NaN"},
		"no embeddings":      {func(a *Adapter) { a.Embeddings = Matrix{} }, "embeddings: shape [0 0], want [any any]"},
		"short data":         {func(a *Adapter) { a.Embeddings.Data = a.Embeddings.Data[1:] }, "embeddings: 23 numbers for shape [4 6]"},
		"infinite metric":    {func(a *Adapter) { a.Metrics["x"] = math.Inf(1) }, `metric "x": got +Inf`},
		"training array":     {func(a *Adapter) { a.Training = json.RawMessage("[]") }, "training settings: got \"[]\", want a JSON object"},
		"no base hash":       {func(a *Adapter) { a.Base.SHA256 = "" }, "base model: sha256: got"},
		"no base name":       {func(a *Adapter) { a.Base.Name = "" }, "base model: name is empty"},
		"no loss":            {func(a *Adapter) { a.Loss = "" }, "loss: got"},
		"unknown module":     {func(a *Adapter) { a.LoRA[LoRAKey{0, "lm_head"}] = LoRAFactors{} }, "LoRA factors for layer 0 lm_head"},
		"negative layer":     {func(a *Adapter) { a.LoRA[LoRAKey{-1, "q_proj"}] = LoRAFactors{} }, "LoRA factors for layer -1 q_proj"},
		"no factors":         {func(a *Adapter) { a.LoRA = nil }, "LoRA without factors: got rank 2, alpha 32 and 2 invocation tokens"},
		"no tokens":          {func(a *Adapter) { a.InvocationTokens = nil }, "invocation tokens: got []"},
		"infinite alpha":     {func(a *Adapter) { a.Alpha = math.Inf(1) }, "LoRA alpha: got +Inf"},
		"factor of zero":     {func(a *Adapter) { a.LoRA[LoRAKey{1, "q_proj"}] = LoRAFactors{} }, "layer 1 q_proj lora_A: shape [0 0], want [2 6]"},
		"even pooling":       {func(a *Adapter) { a.PoolingKernel = 0 }, "pooling kernel: got 0"},
		"wide pooling":       {func(a *Adapter) { a.PoolingKernel = 4097 }, "pooling kernel: got 4097, want an odd width from 1 to 4095"},
		"not rounded":        {func(a *Adapter) { a.BF16 = true }, "want a number of bf16"},
		"training not valid": {func(a *Adapter) { a.Training = json.RawMessage("{") }, "training settings: not valid JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			a := withLoRA()
			c.change(a)
			parent := t.TempDir()
			err := WriteAdapter(filepath.Join(parent, "adapter"), a, true)
			wantError(t, err, c.want)
			if left := readNames(t, parent); len(left) > 0 {
				t.Fatalf("left behind: %v", left)
			}
		})
	}
}

func TestWriteAdapterReplace(t *testing.T) {
	for name, c := range map[string]struct {
		files   map[string]string // nil for no folder
		adapter bool
		replace bool
		is      error
		want    string // "" for success
	}{
		"new":                     {},
		"new, replace":            {replace: true},
		"exists":                  {adapter: true, is: atomicfile.ErrExists, want: "target already exists"},
		"empty folder":            {files: map[string]string{}, is: atomicfile.ErrExists, want: "target already exists"},
		"replace adapter":         {adapter: true, replace: true},
		"replace empty folder":    {files: map[string]string{}, replace: true},
		"replace someone's files": {files: map[string]string{"thesis.tex": ""}, replace: true, is: ErrNotAdapter, want: `so it is not replaced: it also holds "thesis.tex"`},
		"replace with notes":      {adapter: true, files: map[string]string{"README.md": ""}, replace: true, is: ErrNotAdapter, want: `it also holds "README.md"`},
		"replace other adapter":   {files: map[string]string{peftConfigFile: "", peftModelFile: ""}, replace: true, is: ErrNotAdapter, want: "it has no glimpse.json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "adapter")
			if c.adapter {
				if err := WriteAdapter(dir, softTokens(), false); err != nil {
					t.Fatal(err)
				}
			} else if c.files != nil {
				if err := os.Mkdir(dir, 0o777); err != nil {
					t.Fatal(err)
				}
			}
			for file, content := range c.files {
				writeFiles(t, dir, map[string][]byte{file: []byte(content)})
			}
			var before map[string][]byte
			if c.want != "" {
				before = readFiles(t, dir)
			}
			err := WriteAdapter(dir, withLoRA(), c.replace)
			if c.want != "" {
				wantErrorIs(t, err, c.is, c.want)
				if after := readFiles(t, dir); !reflect.DeepEqual(before, after) {
					t.Fatal("the refused folder was changed")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if a, err := ReadAdapter(dir); err != nil || a.Kind != "lookaheadkv" {
				t.Fatalf("after writing: %v", err)
			}
		})
	}
}
