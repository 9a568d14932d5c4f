package runner_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"glimpse/checkpoints"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// worst is the largest error seen, which must stay within a bound.
type worst struct {
	value, bound float64
	where        string
}

func (w *worst) see(t *testing.T, e float64, where string, args ...any) {
	t.Helper()
	if !(e <= w.bound) {
		t.Errorf("%s: error %.3g, want at most %.3g", fmt.Sprintf(where, args...), e, w.bound)
	}
	if e > w.value {
		w.value, w.where = e, fmt.Sprintf(where, args...)
	}
}

// TestGoldenFoldersCoverAllFamilies: no family and no scaling type goes without
// proof, and families say which of them they have.
func TestGoldenFoldersCoverAllFamilies(t *testing.T) {
	checked, scalings := make(map[string]map[model.Check]bool), map[string]bool{"default": true}
	check := func(architecture string, c model.Check) {
		if checked[architecture] == nil {
			checked[architecture] = make(map[model.Check]bool)
		}
		checked[architecture][c] = true
	}
	architectures := make(map[string]string) // by folder
	for _, g := range modeltest.Goldens(t) {
		var config struct {
			Architectures []string `json:"architectures"`
			RoPEScaling   struct {
				Type string `json:"rope_type"`
				Old  string `json:"type"`
			} `json:"rope_scaling"`
			RoPEParameters map[string]any `json:"rope_parameters"`
		}
		modeltest.ReadJSON(t, filepath.Join(g.Folder, "config.json"), &config)
		check(config.Architectures[0], model.CheckLogits)
		architectures[g.Name] = config.Architectures[0]
		scalings[config.RoPEScaling.Type], scalings[config.RoPEScaling.Old] = true, true
		for _, of := range config.RoPEParameters { // by the types of layers
			if of, ok := of.(map[string]any); ok {
				kind, _ := of["rope_type"].(string)
				scalings[kind] = true
			}
		}
	}
	for _, g := range modeltest.Trainings(t) {
		check(architectures[g.Model], model.CheckGradients)
	}
	files, err := filepath.Glob(filepath.Join("..", "gguf", "testdata", "*.gguf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		m, err := model.OpenShapes(path, "cpu")
		if err != nil {
			t.Fatal(err)
		}
		check(m.Config.Architecture, model.CheckGGUF)
	}
	for _, name := range model.Families.Names() {
		family, err := model.Families.Lookup(name)
		if err != nil {
			t.Fatal(err)
		}
		says := make(map[model.Check]bool)
		for _, c := range family.Checked {
			says[c] = true
		}
		if !maps.Equal(says, checked[name]) {
			t.Errorf("%s: says that it is checked by %v, want %v", name, family.Checked, slices.Sorted(maps.Keys(checked[name])))
		}
		if !says[model.CheckLogits] {
			t.Errorf("%s has no golden folder", name)
		}
	}
	for _, name := range model.RoPETypes() {
		if !scalings[name] {
			t.Errorf("RoPE scaling %q has no golden folder", name)
		}
	}
}

// TestAgainstTransformers compares logits of all positions, hidden states of all
// layers, attention of the last rows and greedy tokens with transformers, for
// every way of running a prompt. Errors are relative to the largest magnitude of
// a row of logits or hidden states; those of probabilities are absolute.
func TestAgainstTransformers(t *testing.T) {
	for _, g := range modeltest.Goldens(t) {
		for _, device := range kernels.Backends.Names() {
			t.Run(g.Name+"/"+device, func(t *testing.T) {
				if testing.Short() && device != "cpu" {
					t.Skip("the plain loops take seconds")
				}
				m, err := model.Open(g.Folder, model.Options{Device: device})
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				every := device == "cpu" && !testing.Short()
				third := device == "cuda" && g.Name == "llama3.1" // a launch takes its time on the host driver
				some := device == "cpu" || device == "cuda"
				for _, p := range g.Prompts {
					compareGolden(t, m, p, func(i int) bool { return every || third && i%3 == 0 || some && edges(i) })
				}
			})
		}
	}
}

// edges are the rows at which what a device launches changes: few rows, and the first
// and last of a tile of 16, which those of 32 and 64 end with. One family runs them all.
func edges(i int) bool { return i < 9 || i%16 == 0 || i%16 == 15 }

// compareGolden runs the prompt token by token and its beginnings, which end at the
// rows of also and at the last one, in one piece and in chunks.
func compareGolden(t *testing.T, m *model.Model, p modeltest.GoldenPrompt, also func(row int) bool) {
	t.Helper()
	logits, hidden, attention := worst{bound: 1e-4}, worst{bound: 1e-4}, worst{bound: 1e-5}
	ways := worst{bound: 1e-5}
	ctx, r, n := context.Background(), runner.New(m), len(p.IDs)
	// What transformers computed is of the whole prompt, of which beginnings are run here.
	newCache := func() *kvcache.Cache {
		c := kvcache.New(m)
		c.Expect(n)
		return c
	}
	rows := p.Attention.Shape[2]

	// observe compares the attention of the last row of a pass with row of the prompt.
	observe := func(row int) (runner.Capture, runner.Observer) {
		at := row - (n - rows)
		if at < 0 {
			return runner.Capture{}, nil
		}
		return runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
			if m.Config.Recurrent(o.Layer) {
				return nil
			}
			layer := func(of int) (n int) { // of those that attend
				for l := range of {
					if !m.Config.Recurrent(l) {
						n++
					}
				}
				return n
			}
			s := o.Windows[0].Float32s()
			width := o.Windows[0].Width()
			readers := m.Config.Readers(o.Layer) // whose mean it is
			for h := range m.Config.Heads {
				for j := range row + 1 {
					want := 0.0
					for _, reader := range readers {
						want += float64(p.Attention.At(layer(reader), h, at)[j]) / float64(len(readers))
					}
					got := math.Exp(float64(s[h*width+j]))
					attention.see(t, math.Abs(got-want), "%d tokens: attention of layer %d head %d row %d on %d", n, o.Layer, h, row, j)
				}
			}
			return nil
		}
	}
	steps := newCache()
	for i, id := range p.IDs {
		want := p.Logits.At(i)
		capture, observer := observe(i)
		step, err := r.Step(ctx, steps, id, capture, observer)
		if err != nil {
			t.Fatal(err)
		}
		logits.see(t, modeltest.RowError(step, want), "%d tokens: logits of row %d", n, i)
		if !also(i) && i < n-1 {
			continue
		}
		whole, err := r.Prefill(ctx, newCache(), p.IDs[:i+1], runner.PrefillOptions{Capture: capture, Observe: observer})
		if err != nil {
			t.Fatal(err)
		}
		logits.see(t, modeltest.RowError(whole, want), "%d tokens: logits of row %d in one piece", n, i)
		ways.see(t, modeltest.RowError(step, whole), "%d tokens: row %d token by token", n, i)
		chunks := newCache()
		if i >= 3 {
			if _, err := r.Prefill(ctx, chunks, p.IDs[:i/3], runner.PrefillOptions{Chunk: 7, CacheOnly: true}); err != nil {
				t.Fatal(err)
			}
		}
		parts, err := r.Prefill(ctx, chunks, p.IDs[chunks.Next():i+1], runner.PrefillOptions{Chunk: 5, Capture: capture, Observe: observer})
		if err != nil {
			t.Fatal(err)
		}
		ways.see(t, modeltest.RowError(parts, whole), "%d tokens: row %d in chunks", n, i)
	}
	units := streamUnits(t, m)
	for _, chunk := range []int{0, 9} {
		states, err := r.HiddenStates(p.IDs, chunk)
		if err != nil {
			t.Fatal(err)
		}
		for l, state := range states {
			width := m.Config.Hidden
			for row := n - len(state)/width; row < n; row++ {
				got := state[len(state)-(n-row)*width:][:width]
				if l < m.Config.Layers { // the final norm takes it away
					simd.Scale(float32(units[l]), got)
				}
				hidden.see(t, modeltest.RowError(got, p.Hidden.At(l, row)), "%d tokens: hidden state %d of row %d", n, l, row)
			}
		}
	}
	cache := kvcache.New(m)
	last, err := r.Prefill(ctx, cache, p.IDs, runner.PrefillOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tokens, _, err := r.Continue(ctx, cache, runner.HostLogits(last), runner.GenerateOptions{MaxNew: len(p.Greedy), IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tokens, p.Greedy) {
		t.Errorf("%d tokens: greedy %v, want %v", n, tokens, p.Greedy)
	}
	if ids, err := m.Encode(p.Text); err != nil || !slices.Equal(ids, p.IDs) {
		t.Errorf("%d tokens: encoded as %v (%v), want %v", n, ids, err, p.IDs)
	}
	t.Logf("%d tokens: logits %.2g, hidden states %.2g, attention %.2g, between ways %.2g", n, logits.value, hidden.value, attention.value, ways.value)
}

// streamUnits are what transformers' residual stream is divided by here, before every layer.
func streamUnits(t *testing.T, m *model.Model) []float64 {
	units := slices.Repeat([]float64{streamUnit(t, m)}, m.Config.Layers)
	if !strings.HasPrefix(m.Config.Architecture, "Gemma4") {
		return units
	}
	w, err := checkpoints.OpenWeightsFS(m.Folder(), ".")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for l := range units[1:] {
		view, err := w.Tensor(fmt.Sprintf("model.layers.%d.layer_scalar", l))
		if err != nil {
			t.Fatal(err)
		}
		scalar := make([]float32, 1)
		if err := view.ReadF32(scalar); err != nil {
			t.Fatal(err)
		}
		units[l+1] = units[l] * float64(scalar[0])
	}
	return units
}

// streamUnit is that before the first layer.
func streamUnit(t *testing.T, m *model.Model) float64 {
	raw, err := fs.ReadFile(m.Folder(), "config.json")
	if err != nil {
		t.Fatal(err)
	}
	config := struct {
		Embedding float64 `json:"embedding_multiplier"`
	}{1}
	if err := json.Unmarshal(raw, &config); err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(m.Config.Architecture, "Gemma") {
		return math.Sqrt(float64(m.Config.Hidden))
	}
	return config.Embedding
}

// TestBF16AgainstTransformers: with weights rounded to bfloat16 the error is at
// most twice transformers' own in bfloat16, which rounds activations besides.
func TestBF16AgainstTransformers(t *testing.T) {
	for _, g := range modeltest.Some(t, modeltest.Goldens(t)) {
		t.Run(g.Name, func(t *testing.T) {
			m := modeltest.OpenFolder(t, rounded(t, g.Folder), "cpu")
			for i, lin := range map[string]*kernels.Tensor{"embedding": m.Network.Embedding, "k_proj": m.Network.Layers[m.Config.FirstAttention()].Linear(model.KProj).Weight} {
				if lin.DType != kernels.BF16 {
					t.Fatalf("%s is %s in memory, want it as stored", i, lin.DType)
				}
			}
			for _, p := range g.Prompts {
				e, r, cache := worst{bound: 2 * p.BF16Error}, runner.New(m), kvcache.New(m)
				cache.Expect(len(p.IDs))
				for i, id := range p.IDs {
					logits, err := r.Step(context.Background(), cache, id, runner.Capture{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					e.see(t, modeltest.RowError(logits, p.Logits.At(i)), "%d tokens: row %d", len(p.IDs), i)
				}
				t.Logf("%d tokens: error %.2g, of transformers %.2g", len(p.IDs), e.value, p.BF16Error)
			}
		})
	}
}

// rounded is a model folder with its weights in bfloat16, in one file.
func rounded(t *testing.T, path string) fstest.MapFS {
	t.Helper()
	w, err := checkpoints.OpenWeights(path)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var tensors []checkpoints.TensorView
	for _, name := range w.Names() {
		view, err := w.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		data := make([]byte, 0, 2*view.Len())
		numbers := make([]float32, view.Len())
		if err := view.ReadF32(numbers); err != nil {
			t.Fatal(err)
		}
		for _, v := range numbers {
			b := formats.F32ToBF16(v)
			data = append(data, byte(b), byte(b>>8))
		}
		tensors = append(tensors, checkpoints.TensorView{Name: name, DType: kernels.BF16, Shape: view.Shape, Data: data})
	}
	var file bytes.Buffer
	if err := checkpoints.WriteSafetensors(&file, tensors, nil); err != nil {
		t.Fatal(err)
	}
	folder := fstest.MapFS{"model.safetensors": &fstest.MapFile{Data: file.Bytes(), Mode: 0o644}}
	for _, name := range []string{"config.json", "generation_config.json"} {
		data, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		folder[name] = &fstest.MapFile{Data: data, Mode: 0o644}
	}
	return folder
}

// TestGoldenFilesAreSmall: they are part of every clone.
func TestGoldenFilesAreSmall(t *testing.T) {
	var size int64
	for _, pattern := range []string{"golden/*/*", "golden_training/*"} {
		files, err := filepath.Glob(filepath.Join(modeltest.Testdata(t), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
			if strings.Contains(f, "golden.json") {
				var g struct {
					Versions map[string]string `json:"versions"`
				}
				modeltest.ReadJSON(t, f, &g)
				if g.Versions["transformers"] == "" || g.Versions["torch"] == "" {
					t.Errorf("%s: versions %v, want those of torch and transformers", f, g.Versions)
				}
			}
		}
	}
	if size > 9.4e6 {
		t.Errorf("golden files: %d bytes, want at most 9.4 MB", size)
	}
}
