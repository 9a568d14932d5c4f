package training

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"glimpse/autodiff"
	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/lora"
	"glimpse/losses"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
	"glimpse/softtokens"
)

// gradients runs one sample of the graph and copies out loss and gradients.
func gradients(t *testing.T, s *student, sample autodiff.Sample) (float64, [][]float64) {
	t.Helper()
	loss, err := s.runSample(sample)
	if err != nil {
		t.Fatal(err)
	}
	var grads [][]float64
	for i := range s.graph.Parameters() {
		grad, err := s.graph.Gradient(i)
		if err != nil {
			t.Fatal(err)
		}
		grads = append(grads, grad.Float64s())
	}
	return loss, grads
}

// sampleAfter is what the student's graph runs on after a cache.
func sampleAfter(s *student, m *model.Model, c *kvcache.Cache, targets []*kernels.Tensor) autodiff.Sample {
	p := &prepared{next: c.Next(), past: c.Views(), states: statesOf(m, c), targets: [][]*kernels.Tensor{targets}, answers: []*answer{nil}}
	return s.sampleOf(m, p, nil, 0)
}

// newStudentOf compiles an adapter's graph with a named loss.
func newStudentOf(t *testing.T, m *model.Model, a model.RowsAdapter, lossName string, weights [][]float64) (*student, losses.Loss) {
	t.Helper()
	loss, err := losses.Losses.Lookup(lossName)
	if err != nil {
		t.Fatal(err)
	}
	loss.Answer = 0 // see TestGradientsBehindRows
	s, err := newStudent(m, a, objective{Loss: loss, weights: weights})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.graph.Close()
		*s = student{} // which refers to the parameters, whose memory is counted next
	})
	return s, loss
}

// TestGradientsAgainstFiniteDifferences checks every single parameter of a
// two-layer GQA model in float64, for both losses, with one compiled graph that
// serves several prompt lengths.
func TestGradientsAgainstFiniteDifferences(t *testing.T) {
	shapes := map[string]modeltest.Llama{
		"grouped": {Hidden: 8, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 10, Seed: 3},
		"single":  {Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 2, Intermediate: 6, Seed: 4},
	}
	for name, shape := range shapes {
		for _, loss := range losses.Losses.Names() {
			for _, rows := range []int{1, 3} {
				t.Run(fmt.Sprintf("%s/%s/rows=%d", name, loss, rows), func(t *testing.T) {
					m := shape.Open(t, "reference64")
					checkGradients(t, m, loss, rows, nil, []int{11, 1, 23})
				})
			}
		}
	}
}

// TestGradientsOfWeighedHeads: and so they do where heads weigh differently, and a weight of 1 for each changes nothing.
func TestGradientsOfWeighedHeads(t *testing.T) {
	m := modeltest.Llama{Hidden: 8, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 10, Seed: 3}.Open(t, "reference64")
	for _, loss := range losses.Losses.Names() {
		checkGradients(t, m, loss, 2, [][]float64{{0, 1.5, 0.25, 2}, {3, 0, 0.25, 1}}, []int{11})
		value := func(weights [][]float64) (float64, [][]float64) {
			a, err := lora.New(m, model.AdapterConfig{Rows: 2, Rank: 2, Alpha: 4, Modules: model.Modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
			if err != nil {
				t.Fatal(err)
			}
			s, _ := newStudentOf(t, m, a, loss, weights)
			p, err := prepareSample(t.Context(), runner.New(m), Sample{Prompt: modeltest.Tokens(m, 1, 12), Response: modeltest.Tokens(m, 2, 3)}, 3, []label{mustLabel(t, "")})
			if err != nil {
				t.Fatal(err)
			}
			return gradients(t, s, s.sampleOf(m, p, nil, 0))
		}
		plain, grads := value(nil)
		ones, weighed := value([][]float64{{1, 1, 1, 1}, {1, 1, 1, 1}})
		compare.Close(t, loss, []float64{ones}, []float64{plain}, 1e-12)
		for i := range grads {
			compare.Close(t, loss, weighed[i], grads[i], 1e-9, compare.Floor(1e-12))
		}
	}
}

func mustLabel(t *testing.T, name string) label {
	t.Helper()
	l, err := newLabel(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func checkGradients(t *testing.T, m *model.Model, lossName string, rows int, weights [][]float64, lengths []int) {
	a, err := lora.New(m, model.AdapterConfig{Rows: rows, Rank: 2, Alpha: 4, Modules: model.Modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for _, p := range a.Parameters()[1:] { // B = 0 would hide the gradients of A
		for i, v := range p.Tensor.F64() {
			p.Tensor.F64()[i] = v + 0.2*rng.NormFloat64()
		}
	}
	s, _ := newStudentOf(t, m, a, lossName, weights)
	checked, worst := 0, 0.0
	for _, n := range lengths {
		r, cache := runner.New(m), kvcache.New(m)
		if _, err := r.Prefill(context.Background(), cache, modeltest.Tokens(m, uint64(n), n), runner.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
		sample := sampleAfter(s, m, cache, nil)
		for range m.Config.Layers {
			target := kernels.NewTensor(kernels.F64, m.Config.Heads, n)
			for i := range target.F64() {
				target.F64()[i] = math.Log(rng.Float64() * rng.Float64() / float64(n))
			}
			sample.Targets = append(sample.Targets, target)
		}
		each, most := checkElements(t, s, sample, a.Parameters())
		checked, worst = checked+each, max(worst, most)
	}
	t.Logf("%d gradients checked, worst relative error %.2g", checked, worst)
}

// checkElements compares the gradient of every single parameter with central differences.
func checkElements(t *testing.T, s *student, sample autodiff.Sample, params []model.Parameter) (checked int, worst float64) {
	t.Helper()
	_, grads := gradients(t, s, sample)
	run := func() float64 {
		v, err := s.runSample(sample)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	for i, p := range params {
		x := p.Tensor.F64()
		for j := range x {
			const step = 1e-5
			at := x[j]
			x[j] = at + step
			up := run()
			x[j] = at - step
			down := run()
			x[j] = at
			want, got := (up-down)/(2*step), grads[i][j]
			e := math.Abs(got-want) / (1e-4 + math.Abs(got) + math.Abs(want))
			if !(e <= 1e-5) {
				t.Fatalf("prompt %d: %s[%d]: gradient %.9g, finite difference %.9g, relative error %.2g, want at most 1e-5", sample.Targets[0].Width(), p.Name, j, got, want, e)
			}
			worst = max(worst, e)
			checked++
		}
	}
	return checked, worst
}

// TestOnlyTheTokensAreTrained: the graph of a Judge Q adapter has one parameter, and its
// gradient agrees with finite differences.
func TestOnlyTheTokensAreTrained(t *testing.T) {
	m := modeltest.Llama{Hidden: 8, Heads: 2, KVHeads: 1, HeadDim: 4, Intermediate: 12, Layers: 3}.Open(t, "reference64")
	a, err := softtokens.New(m, model.AdapterConfig{Rows: 4, InitToken: 3, InitNoise: 0.5, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, _ := newStudentOf(t, m, a, "mse", nil)
	if names := s.graph.Parameters(); !slices.Equal(names, []string{"soft_tokens"}) {
		t.Fatalf("trained parameters %v, want soft_tokens alone", names)
	}
	const n = 9
	r, cache := runner.New(m), kvcache.New(m)
	if _, err := r.Prefill(context.Background(), cache, modeltest.Tokens(m, 1, n), runner.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	sample := sampleAfter(s, m, cache, nil)
	for l := range m.Config.Layers {
		target := kernels.NewTensor(kernels.F64, m.Config.Heads, n)
		for i := range target.F64() {
			target.F64()[i] = math.Log(float64((i*7+l)%5) / 20)
		}
		sample.Targets = append(sample.Targets, m.Backend.Place(target))
	}
	checkElements(t, s, sample, a.Parameters())
}

// TestGradientsOfEveryFamily checks the gradient of every parameter of an adapter
// on the golden model of every family, in float64, against central differences:
// LayerNorm and GELU, parallel blocks and row ranges of a fused weight, norms of
// heads, biases, sliding windows.
func TestGradientsOfEveryFamily(t *testing.T) {
	for _, g := range modeltest.Some(t, modeltest.Goldens(t)) {
		t.Run(g.Name, func(t *testing.T) {
			m, err := model.Open(g.Folder, model.Options{Device: "reference64"})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			checkDirections(t, m, g.Prompts[len(g.Prompts)-1].IDs)
		})
	}
}

// TestGradientsOverBlocks: and so do they over weights in blocks, each module in another format, through which the
// gradients of the rows and factors go. The blocks are constants, and the gradients those over their numbers in bf16.
func TestGradientsOverBlocks(t *testing.T) {
	path := filepath.Join("..", "model", "gguf", "testdata", "blocks.gguf")
	open := func(path string) *model.Model {
		m, err := model.Open(path, model.Options{Device: "reference64"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return m
	}
	m := open(path)
	if f := m.WeightFormat(); f != "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0" {
		t.Fatalf("weights are in %s", f)
	}
	checkDirections(t, m, modeltest.Tokens(m, 3, 40))
	wide := open(modeltest.FolderOfGGUF(t, path))
	if f := wide.WeightFormat(); f != "BF16" {
		t.Fatalf("widened weights are in %s", f)
	}
	if s := wide.OtherFormat(checkpoints.BaseModel{Format: m.WeightFormat()}); s != `was trained over weights in "Q4_0, Q4_1, Q5_0, Q5_1, Q8_0", here they are in "BF16"` {
		t.Error(s)
	}
	if s := m.OtherFormat(checkpoints.BaseModel{Format: m.WeightFormat()}) + m.OtherFormat(checkpoints.BaseModel{}); s != "" {
		t.Error(s)
	}
}

// checkDirections compares the derivative along a random direction of every
// parameter tensor: all its elements are in it, at the price of two runs.
func checkDirections(t *testing.T, m *model.Model, prompt []int32) {
	const rows = 3
	modules := model.Modules
	if slices.ContainsFunc(m.Network.Layers, func(l model.Layer) bool { return l.Experts != nil }) {
		modules = model.FactorModules
	}
	a, err := lora.New(m, model.AdapterConfig{Rows: rows, Rank: 2, Alpha: 4, Modules: modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for _, p := range a.Parameters()[1:] { // B = 0 would hide the gradients of A
		for i, v := range p.Tensor.F64() {
			p.Tensor.F64()[i] = v + 0.2*rng.NormFloat64()
		}
	}
	r, cache := runner.New(m), kvcache.New(m)
	if _, err := r.Prefill(context.Background(), cache, prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	s, loss := newStudentOf(t, m, a, "kl", nil)
	sample := sampleAfter(s, m, cache, nil)
	sample.Targets = make([]*kernels.Tensor, m.Config.Layers)
	// The response that starts where the rows do sees what they see.
	err = r.Probe(context.Background(), cache, model.TokenRows(prompt[:rows+2]), false, func(o *runner.Observation) error {
		if m.Config.Recurrent(o.Layer) {
			return nil
		}
		target := kernels.NewTensor(o.Probes[0].DType, o.Probes[0].Shape...)
		m.Backend.Copy(target, o.Probes[0])
		sample.Targets[o.Layer] = target
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	value, grads := gradients(t, s, sample)
	if _, queries, keys := cache.RowsAfter(m, rows); !slices.Equal(queries, sample.QueryRoPE) || !slices.Equal(keys, sample.KeyRoPE) {
		t.Errorf("rows after a prompt of %d tokens rotate by other angles than rows after its cache", len(prompt))
	}
	// The graph is the twin of a probe's pass.
	sum, layers := kernels.NewTensor(kernels.F64), 0 // of those that hold the whole prompt, or of all
	for l := range m.Config.Layers {
		if m.Config.HoldsKV(l) && (m.Config.Window(l) == 0 || m.Config.WindowsAlone()) {
			layers++
		}
	}
	err = r.Probe(context.Background(), cache, a, false, func(o *runner.Observation) error {
		if m.Config.Recurrent(o.Layer) || !m.Config.WindowsAlone() && m.Config.Window(o.Layer) > 0 {
			return nil
		}
		scores := o.Probes[0]
		loss.Func(m.Backend, sum, m.Backend.Alloc(scores.DType, scores.Shape...), scores, sample.Targets[o.Layer], layers*scores.Dim0(), 1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	compare.Close(t, "loss", []float64{value}, sum.Float64s(), 1e-9)
	worst := 0.0
	for i, p := range a.Parameters() {
		x := p.Tensor.F64()
		at, direction, want, squares := slices.Clone(x), make([]float64, len(x)), 0.0, 0.0
		for j := range x {
			direction[j] = rng.NormFloat64()
			want += direction[j] * grads[i][j]
			squares += x[j] * x[j]
		}
		step := 1e-5 * min(1, math.Sqrt(squares/float64(len(x)))) // small beside the parameters
		along := func(h float64) float64 {
			for j := range x {
				x[j] = at[j] + h*direction[j]
			}
			value, err := s.runSample(sample)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
		got := (along(step) - along(-step)) / (2 * step)
		copy(x, at)
		e := math.Abs(got-want) / (1e-4 + math.Abs(got) + math.Abs(want))
		if !(e <= 1e-5) {
			t.Errorf("%s: finite difference %.9g, gradient %.9g, relative error %.2g", p.Name, got, want, e)
		}
		worst = max(worst, e)
	}
	t.Logf("%d parameters, worst relative error %.2g", len(grads), worst)
}

// TestGradientsBehindRows: what the full cache says of an answer has gradients through the rows that stay in every parameter, and
// none that differences do not have.
func TestGradientsBehindRows(t *testing.T) {
	m := modeltest.Llama{Hidden: 8, Heads: 4, KVHeads: 2, HeadDim: 4, Intermediate: 10, Vocab: 20, Seed: 3}.Open(t, "reference64")
	kind, err := model.RowsKinds.Lookup(lora.RestoreKind)
	if err != nil {
		t.Fatal(err)
	}
	a, err := kind.New(m, model.AdapterConfig{Rows: 9, Rank: 1, Alpha: 2, Modules: model.Modules, InitToken: 2, InitNoise: 0.5, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	for _, p := range a.Parameters()[1:] {
		for i, v := range p.Tensor.F64() {
			p.Tensor.F64()[i] = v + 0.2*rng.NormFloat64()
		}
	}
	o, err := newObjective(m, a, &AdapterConfig{Loss: "distil", Label: "context-mean", Pooling: 1}, eviction.EqualHeads(m))
	if err != nil {
		t.Fatal(err)
	}
	s, err := newStudent(m, a, o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.graph.Close()
	prompt := modeltest.Tokens(m, 5, 120)
	p, err := prepareSample(t.Context(), runner.New(m), Sample{ID: "a", Prompt: prompt}, 4, []label{o.label})
	if err != nil {
		t.Fatal(err)
	}
	sample := s.sampleOf(m, p, prompt, 0)
	kept := make(map[int][][]int32) // differences must not change what is selected
	sample.Answer.Past = func(b kernels.Backend, memory *kernels.Arena, layer int, scores *kernels.Tensor) []kernels.KV {
		if kept[layer] == nil {
			kept[layer] = o.policy.SelectRows(eviction.Prompt{Tokens: prompt, Entries: 120, Budget: 30, Config: &m.Config}, layer, p.past[layer], b, scores)
		}
		return kernels.GatherPairs(b, p.past[layer], kept[layer], true, memory)
	}
	checked, worst := checkElements(t, s, sample, a.Parameters())
	t.Logf("%d gradients checked, worst relative error %.2g", checked, worst)
	for _, heads := range kept {
		for _, idx := range heads {
			if len(idx) != 22 { // beside 8 rows
				t.Fatalf("%d entries are kept, want 22", len(idx))
			}
		}
	}
}
