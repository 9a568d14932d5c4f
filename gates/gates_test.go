package gates

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/compare"
	"glimpse/kernels"
	_ "glimpse/kernels/backends"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// golden is what golden_gates.py has written.
type golden struct {
	Tokens []int32                  `json:"tokens"`
	Kept   map[string][][][]int32   `json:"kept"`
	Scores map[string][][][]float64 `json:"scores"` // [layer][kvHead][entry]
}

const goldenModel = "../model/testdata/golden/llama3.2-tied"

func read(t *testing.T, m *model.Model, layout string) *Gates {
	t.Helper()
	stored, err := checkpoints.ReadAdapter(filepath.Join("testdata", layout))
	if err != nil {
		t.Fatal(err)
	}
	if !stored.Foreign() {
		t.Errorf("%s: base model %+v, want an unknown one", layout, stored.Base)
	}
	a, err := m.LoadAdapter(t.Context(), stored)
	if err != nil {
		t.Fatal(err)
	}
	return a.(*Gates)
}

// scores are what gates give a prompt that runs in chunks, [layer][kvHead][entry].
func scores(t *testing.T, m *model.Model, g model.Gate, tokens []int32, chunk int) (out [][][]float64) {
	t.Helper()
	opt := runner.PrefillOptions{Chunk: chunk, Capture: runner.Capture{Gates: []model.Gate{g}}, Observe: func(o *runner.Observation) error {
		var heads [][]float64
		for h := range o.Gates[0].Dim0() {
			heads = append(heads, o.Gates[0].Rows(h, h+1).Float64s())
		}
		out = append(out, heads)
		return nil
	}}
	if _, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), tokens, opt); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestScoresOfKVpress: gates read from folders of kvpress score as they do there, whatever chunks the prompt runs in.
func TestScoresOfKVpress(t *testing.T) {
	var g golden
	modeltest.ReadJSON(t, "testdata/kept.json", &g)
	m := modeltest.OpenFolder(t, os.DirFS(goldenModel), "cpu")
	for layout, want := range g.Scores {
		a := read(t, m, layout)
		for _, chunk := range []int{0, 7} {
			for l, heads := range scores(t, m, a, g.Tokens, chunk) {
				for h, got := range heads {
					compare.Close(t, fmt.Sprintf("%s: chunks of %d: layer %d head %d", layout, chunk, l, h), got, want[l][h], 1e-3, compare.Floor(1))
				}
			}
		}
	}
}

// TestLowRankGate holds the low-rank gate against its formula in float64.
func TestLowRankGate(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(goldenModel), "cpu")
	a := read(t, m, "fastkvzip")
	const rows = 5
	rng := rand.New(rand.NewPCG(1, 2))
	x := make([]float32, rows*m.Config.Hidden)
	for i := range x {
		x[i] = float32(rng.NormFloat64())
	}
	got := kernels.NewTensor(kernels.F32, m.Config.KVHeads, rows)
	a.Score(m, 1, got, kernels.FromF32(x, rows, m.Config.Hidden), m.On(1))
	w := a.stored[1]
	normed := func(name string, at int, row []float32, bias, norm string, d int) []float64 {
		out, mean := make([]float64, d), 0.0
		for i := range out {
			for j, v := range row {
				out[i] += float64(v) * float64(w[name].Data[(at+i)*len(row)+j])
			}
			if bias != "" {
				out[i] += float64(w[bias].Data[at+i])
			}
			mean += out[i] * out[i] / float64(d)
		}
		for i := range out {
			out[i] *= float64(w[norm].Data[i]) / math.Sqrt(mean+1e-6)
		}
		return out
	}
	dot := func(a []float64, b func(i int) float64) (sum float64) {
		for i, v := range a {
			sum += v * b(i)
		}
		return sum
	}
	d, group := w["q_norm.weight"].Cols, m.Config.Group()
	sinks := w["k_base"].Rows / m.Config.KVHeads
	for h := range m.Config.KVHeads {
		for r := range rows {
			row, mean := x[r*m.Config.Hidden:][:m.Config.Hidden], 0.0
			key := normed("k_proj.weight", h*d, row, "", "k_norm.weight", d)
			for i := range group {
				q := normed("q_proj.weight", (h*group+i)*d, row, "q_proj.bias", "q_norm.weight", d)
				own := dot(q, func(i int) float64 { return key[i] })/math.Sqrt(float64(d)) + float64(w["b"].Data[h*group+i])
				others := 0.0
				for s := range sinks {
					others += math.Exp(dot(q, func(i int) float64 { return float64(w["k_base"].Data[(h*sinks+s)*d+i]) })/math.Sqrt(float64(d)) - own)
				}
				mean += 1 / (1 + others) / float64(group)
			}
			compare.Close(t, fmt.Sprintf("head %d row %d", h, r), []float64{float64(got.F32()[h*rows+r])}, []float64{math.Log(mean)}, 1e-4, compare.Floor(1))
		}
	}
}

// TestExportIsWhatKVpressReads: what is written has the tensors that were read, and is read as an adapter for its weights alone.
func TestExportIsWhatKVpressReads(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(goldenModel), "cpu")
	sum, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, layout := range []string{"linear", "mlp"} {
		for _, dtype := range checkpoints.DTypes {
			a := read(t, m, layout).Export()
			a.Base = checkpoints.BaseModel{Name: "tiny", SHA256: sum}
			if err := a.SetDType(dtype); err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "gates")
			if err := checkpoints.WriteAdapter(dir, a, false); err != nil {
				t.Fatal(err)
			}
			again, err := checkpoints.ReadAdapter(dir)
			if err != nil {
				t.Fatal(err)
			}
			if again.SHA256() != a.SHA256() || again.BF16 != a.BF16 || again.Base != a.Base {
				t.Errorf("%s %s: read %+v of base %+v", layout, dtype, again.SHA256(), again.Base)
			}
			if err := os.Remove(filepath.Join(dir, checkpoints.AdapterManifest)); err != nil {
				t.Fatal(err)
			}
			if foreign, err := checkpoints.ReadAdapter(dir); err != nil || !foreign.Foreign() || foreign.SHA256() != a.SHA256() {
				t.Errorf("%s %s without the manifest: %v", layout, dtype, err)
			}
			a.Base.SHA256 = strings.Repeat("0", 64)
			if _, err := m.LoadAdapter(t.Context(), a); !errors.Is(err, checkpoints.ErrWrongBase) {
				t.Errorf("%s %s for other weights: %v", layout, dtype, err)
			}
		}
	}
	lowRank := read(t, m, "fastkvzip").Export()
	lowRank.Base = checkpoints.BaseModel{Name: "tiny", SHA256: sum}
	if err := checkpoints.WriteAdapter(filepath.Join(t.TempDir(), "gates"), lowRank, false); err == nil || !strings.Contains(err.Error(), "linear gates and MLPs alone") {
		t.Errorf("low-rank gates are written: %v", err)
	}
}

// TestGatesOfAnotherModel are refused in words.
func TestGatesOfAnotherModel(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(goldenModel), "cpu")
	for want, change := range map[string]func(a *checkpoints.Adapter){
		"gates of 1 layers, want 2":                             func(a *checkpoints.Adapter) { a.Gates = a.Gates[:1] },
		"gate of layer 0: weight: shape [1 64], want [2 64]":    func(a *checkpoints.Adapter) { a.Gates[0]["weight"] = matrix(1, 64) },
		"gate of layer 1: weight: shape [2 32], want [2 64]":    func(a *checkpoints.Adapter) { a.Gates[1]["weight"] = matrix(2, 32) },
		"gate of layer 1: tensors [bias], want those of":        func(a *checkpoints.Adapter) { delete(a.Gates[1], "weight") },
		`kind "judgeq", want "kvzap": adapter is of another`:    func(a *checkpoints.Adapter) { a.Kind = "judgeq" },
		"gate of layer 0: bias: shape [1 3], want [1 2] for mo": func(a *checkpoints.Adapter) { a.Gates[0]["bias"] = matrix(1, 3) },
	} {
		stored, err := checkpoints.ReadAdapter("testdata/linear")
		if err != nil {
			t.Fatal(err)
		}
		change(stored)
		if _, err := Load(m, stored); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want it to say %q", err, want)
		}
	}
}

func matrix(rows, cols int) checkpoints.Matrix {
	return checkpoints.Matrix{Rows: rows, Cols: cols, Data: make([]float32, rows*cols)}
}

// TestFit: the least squares find the gates that scores were made with, and tell that they explain them.
func TestFit(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(goldenModel), "cpu")
	planted := read(t, m, "linear")
	f := NewFit(m)
	for seed := range uint64(8) {
		tokens := modeltest.Tokens(m, seed, 150)
		want := scores(t, m, planted, tokens, 0)
		_, err := runner.New(m).Prefill(context.Background(), kvcache.New(m), tokens, runner.PrefillOptions{
			Chunk: 40, Capture: runner.Capture{Gates: []model.Gate{f}}, Observe: func(o *runner.Observation) error {
				labels := make([][]float32, len(want[o.Layer]))
				for h, logs := range want[o.Layer] {
					for j, v := range logs {
						label := float32(math.Exp(v))
						if j < 3 { // which have no label
							label = 0
						}
						labels[h] = append(labels[h], label)
					}
				}
				if seed == 7 {
					return f.Observe(o.Layer, labels, HoldOut)
				}
				return f.Observe(o.Layer, labels, Learn)
			}})
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := f.Solve(1e-9)
	if err != nil {
		t.Fatal(err)
	}
	for l, gate := range got.Gates {
		for name, x := range gate {
			want := planted.stored[l][name]
			compare.Close(t, fmt.Sprintf("layer %d %s", l, name), x.Data, want.Data, 2e-2, compare.Floor(1))
		}
		if got.Explained[l] < 0.999 {
			t.Errorf("layer %d: explains %v of the variance", l, got.Explained[l])
		}
	}
	if err := f.Observe(0, [][]float32{{1}, {1}}, Learn); err == nil || !slices.Contains(strings.Fields(err.Error()), "rows") {
		t.Errorf("scores without rows: error %v", err)
	}
}
