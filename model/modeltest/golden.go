package modeltest

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"glimpse/checkpoints"
)

// Golden is what transformers computes with a tiny random model
// (lab/golden/golden_transformers.py).
type Golden struct {
	Name    string
	Folder  string // a Hugging Face folder
	Prompts []GoldenPrompt
}

// GoldenPrompt is one prompt; numbers are float32 results of a float32 pass.
type GoldenPrompt struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`
	Greedy     []int32 `json:"greedy"` // the 16 tokens that follow
	GreedyText string  `json:"greedy_text"`
	// BF16Error is transformers' own RowError in bfloat16.
	BF16Error float64 `json:"bf16_error"`

	Logits    Tensor `json:"-"` // [tokens, vocab]; all but the last 8 rows are Hidden times the head
	Hidden    Tensor `json:"-"` // [layers+1, tokens, hidden]: embeddings, layers; the last after the final norm
	Attention Tensor `json:"-"` // [layers that attend, heads, 8, tokens], the last 8 rows
}

// Tensor is numbers of a golden file.
type Tensor struct {
	Shape  []int
	Values []float32
}

// At is the part of t at the given leading indices.
func (t Tensor) At(index ...int) []float32 {
	values := t.Values
	for axis, i := range index {
		n := len(values) / t.Shape[axis]
		values = values[i*n : (i+1)*n]
	}
	return values
}

// Testdata is model/testdata, from whichever package the test runs in.
func Testdata(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return filepath.Join(dir, "model", "testdata")
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the test")
		}
		dir = parent
	}
}

// OnProcessorsAlone are golden models with parts that every device with memory of its own refuses.
var OnProcessorsAlone = []string{"gemma4-e2b", "lfm2", "qwen3-next", "qwen3.5", "qwen3.5-moe"}

// Goldens reads all golden folders.
func Goldens(t testing.TB) []Golden {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(Testdata(t), "golden", "*", "golden.json"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no golden folders (%v)", err)
	}
	var out []Golden
	for _, path := range paths {
		out = append(out, golden(t, path))
	}
	return out
}

func golden(t testing.TB, path string) Golden {
	t.Helper()
	g := Golden{Folder: filepath.Dir(path)}
	g.Name = filepath.Base(g.Folder)
	ReadJSON(t, path, &g)
	tensors, head := ReadTensors(t, filepath.Join(g.Folder, "golden.safetensors")), readHead(t, g.Folder)
	for i := range g.Prompts {
		at := string(rune('0' + i))
		p := &g.Prompts[i]
		p.Hidden, p.Attention = tensors[at+".hidden"], tensors[at+".attention"]
		p.Logits = head.logits(t, p.Hidden, tensors[at+".logits"])
	}
	return g
}

// head is the output matrix of a model, [vocab, hidden], what its logits are divided by, and what bounds them softly, 0
// for nothing.
type head struct {
	weight       Tensor
	divisor, cap float64
}

func readHead(t testing.TB, folder string) head {
	t.Helper()
	var config struct {
		Divisor float64 `json:"logits_scaling"`
		Cap     float64 `json:"final_logit_softcapping"`
	}
	ReadJSON(t, filepath.Join(folder, "config.json"), &config)
	w, err := checkpoints.OpenWeights(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	// The embeddings stand for a head that is tied to them.
	for _, name := range []string{"lm_head.weight", "model.embed_tokens.weight", "transformer.word_embeddings.weight"} {
		view, err := w.Tensor(name)
		if errors.Is(err, checkpoints.ErrNoTensor) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, view.Len())
		if err := view.ReadF32(values); err != nil {
			t.Fatal(err)
		}
		return head{Tensor{view.Shape, values}, max(config.Divisor, 1), config.Cap}
	}
	t.Fatalf("%s: no output matrix", folder)
	return head{}
}

// logits are the logits of all rows [tokens, vocab]: of the last ones as transformers computed
// them, of the others the same product of its hidden states, in float64. That it is the same
// is checked where both are there.
func (h head) logits(t testing.TB, hidden, last Tensor) Tensor {
	t.Helper()
	tokens, vocab := hidden.Shape[1], h.weight.Shape[0]
	out := Tensor{[]int{tokens, vocab}, make([]float32, tokens*vocab)}
	for row := range tokens {
		x, y := hidden.At(hidden.Shape[0]-1, row), out.At(row)
		for v := range y {
			sum := 0.0
			for d, weight := range h.weight.At(v) {
				sum += float64(x[d]) * float64(weight)
			}
			if sum /= h.divisor; h.cap > 0 {
				sum = h.cap * math.Tanh(sum/h.cap)
			}
			y[v] = float32(sum)
		}
		if at := row - (tokens - last.Shape[0]); at >= 0 {
			if e := RowError(y, last.At(at)); !(e <= 1e-6) {
				t.Fatalf("logits of row %d: hidden states times the head differ by %.2g from what transformers computed", row, e)
			}
			copy(y, last.At(at))
		}
	}
	return out
}

// GoldenNamed reads one golden folder.
func GoldenNamed(t testing.TB, name string) Golden {
	t.Helper()
	return golden(t, filepath.Join(Testdata(t), "golden", name, "golden.json"))
}

// Files reads the files of a folder.
func Files(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]byte)
	for _, e := range entries {
		if out[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// Eventually waits until the condition holds.
func Eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("waited in vain: %s", what)
			return
		}
	}
}

// ReadJSON reads a golden file.
func ReadJSON(t testing.TB, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// ReadTensors reads all tensors of a safetensors file as float32.
func ReadTensors(t testing.TB, path string) map[string]Tensor {
	t.Helper()
	f, err := checkpoints.OpenSafetensors(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := make(map[string]Tensor)
	for _, name := range f.Names() {
		view, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		values := make([]float32, view.Len())
		if err := view.ReadF32(values); err != nil {
			t.Fatal(err)
		}
		out[name] = Tensor{view.Shape, values}
	}
	return out
}

// RowError is the largest difference between got and want relative to the
// largest magnitude in want: elements that cancel to almost zero carry the
// rounding of their terms. NaN where the lengths differ or got is not finite.
func RowError(got, want []float32) float64 {
	if len(got) != len(want) {
		return math.NaN()
	}
	worst, scale := 0.0, 0.0
	for i, w := range want {
		d := math.Abs(float64(got[i]) - float64(w))
		if !(d <= math.MaxFloat64) {
			return math.NaN()
		}
		worst, scale = max(worst, d), max(scale, math.Abs(float64(w)))
	}
	if scale == 0 {
		return worst
	}
	return worst / scale
}

// F32 reads little-endian float32 numbers.
func F32(data []byte) []float32 {
	out := make([]float32, len(data)/4)
	for i := range out {
		out[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
	}
	return out
}
