package training

import (
	"encoding/binary"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// stayingStep is what PyTorch computes in a step of rows that stay (lab/golden/golden_staying.py).
type stayingStep struct {
	modeltest.Training
	Budget int         `json:"budget"`
	Loss   float64     `json:"loss"`
	Kept   [][][]int32 `json:"kept"` // [layer][kvHead]
	grads  map[string][]float64
}

func readStayingStep(t *testing.T) *stayingStep {
	t.Helper()
	var g stayingStep
	path := filepath.Join("testdata", "staying", "step")
	modeltest.ReadJSON(t, path+".json", &g)
	f, err := checkpoints.OpenSafetensors(path + ".safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	g.Name, g.Tensors, g.grads = "staying", make(map[string]modeltest.Tensor), make(map[string][]float64)
	for _, name := range f.Names() {
		view, err := f.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		if of, ok := strings.CutPrefix(name, "grad."); ok {
			for at := 0; at < len(view.Data); at += 8 {
				g.grads[of] = append(g.grads[of], math.Float64frombits(binary.LittleEndian.Uint64(view.Data[at:])))
			}
			continue
		}
		g.Tensors[name] = modeltest.Tensor{Shape: view.Shape, Values: modeltest.F32(view.Data)}
	}
	return &g
}

// TestStayingStepAgainstPyTorch compares what is kept, the loss and the gradient of every parameter of one step of rows that
// stay with one masked pass over prompt, rows and answer in PyTorch.
func TestStayingStepAgainstPyTorch(t *testing.T) {
	g := readStayingStep(t)
	m := g.Open(t, "reference64")
	kind, err := model.RowsKinds.Lookup(lora.RestoreKind)
	if err != nil {
		t.Fatal(err)
	}
	parameters := make(map[string]checkpoints.Matrix)
	for name, x := range g.Tensors {
		parameters[name] = checkpoints.Matrix{Rows: x.Shape[0], Cols: x.Shape[1], Data: x.Values}
	}
	stored, err := kind.Stored(model.AdapterConfig{Alpha: g.Alpha}, parameters)
	if err != nil {
		t.Fatal(err)
	}
	a, err := kind.Load(m, stored)
	if err != nil {
		t.Fatal(err)
	}
	o, err := newObjective(m, a, &AdapterConfig{Loss: kind.Loss, Pooling: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStudent(m, a.(model.RowsAdapter), o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.graph.Close()
	p, err := prepareSample(t.Context(), runner.New(m), Sample{ID: g.Name, Prompt: g.Prompt, Response: g.Response}, len(g.Response), []label{o.label})
	if err != nil {
		t.Fatal(err)
	}
	p.answers[0].share = float64(g.Budget) / float64(len(g.Prompt))
	sample := s.sampleOf(m, p, g.Prompt, 0)
	var kept [][][]int32
	past := sample.Answer.Past
	sample.Answer.Past = func(b kernels.Backend, memory *kernels.Arena, layer int, scores *kernels.Tensor) []kernels.KV {
		kept = append(kept, o.policy.SelectRows(eviction.Prompt{Tokens: g.Prompt, Entries: len(g.Prompt), Budget: g.Budget, Config: &m.Config}, layer, p.past[layer], b, scores))
		return past(b, memory, layer, scores)
	}
	value, grads := gradients(t, s, sample)
	for l := range g.Kept {
		for h, want := range g.Kept[l] {
			if !slices.Equal(kept[l][h], want) {
				t.Errorf("layer %d head %d keeps %v, PyTorch %v", l, h, kept[l][h], want)
			}
		}
	}
	compare.Close(t, "loss", []float64{value}, []float64{g.Loss}, 1e-12)
	names := s.graph.Parameters()
	if len(names) != len(g.grads) {
		t.Fatalf("%d gradients, PyTorch has %d", len(names), len(g.grads))
	}
	for i, name := range names {
		compare.CloseToScale(t, "gradient of "+name, grads[i], g.grads[name], 1e-11)
	}
}
