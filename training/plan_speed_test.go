package training

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"glimpse/datasets"
	"glimpse/kernels/memcount"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// shapesOf is a Llama of so many numbers.
func shapesOf(t *testing.T, dtype string, hidden, layers, heads, kvHeads, inner, vocab int) *model.Model {
	t.Helper()
	dir := t.TempDir()
	config := fmt.Sprintf(`{"architectures": ["LlamaForCausalLM"], "hidden_size": %d, "num_hidden_layers": %d, "num_attention_heads": %d,
"num_key_value_heads": %d, "intermediate_size": %d, "vocab_size": %d, "max_position_embeddings": 131072, "rms_norm_eps": 1e-5,
"rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": %q, "eos_token_id": 2}`, hidden, layers, heads, kvHeads, inner, vocab, dtype)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := model.OpenShapes(dir, "cpu")
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// lookaheadkv is the preset with one sample a step.
func lookaheadkv(t *testing.T) Config {
	t.Helper()
	p, err := Presets.Lookup("lookaheadkv")
	if err != nil {
		t.Fatal(err)
	}
	c, a := p.Config, p.Adapter
	a.Name, a.LearningRate, a.InitToken = "one", 1e-3, -1
	c.Adapters, c.Validation = []AdapterConfig{a}, ValidationConfig{}
	return c
}

// TestStepsAreCounted: what a few layers without numbers take, continued to all of them, is what all take but for the blocks of a MiB
// that arenas take, and no less than a run with numbers holds. Work is that of all layers to the operation.
func TestStepsAreCounted(t *testing.T) {
	m := shapesOf(t, "float32", 256, 14, 8, 2, 700, 100)
	prompts := []int{100, 1500, 2500}
	if testing.Short() {
		prompts = []int{100, 2500}
	}
	for _, prompt := range prompts {
		c, o := lookaheadkv(t), PlanOptions{Prompt: prompt, Response: 40}
		on := func() *memcount.Counter { return memcount.New(m.Backend) }
		few, err := countSteps(t.Context(), m, on, "", c, o, true)
		if err != nil {
			t.Fatal(err)
		}
		pair := datasets.Pair{ID: "one", PromptIDs: make([]int32, prompt), ResponseIDs: make([]int32, 40)}
		source := &Pairs{Pairs: []datasets.Pair{pair}, Name: "one"}
		c.Steps, c.Batch, c.Workers, c.MaxResponse = 2, 1, 1, 40
		counter := on()
		counted := m.CountedOn(counter)
		all, err := countLayers(t.Context(), counted, m.Config.Layers, counter.SeekBeside(), c, source, o)
		if err != nil {
			t.Fatal(err)
		}
		near := func(what string, got, want int64) {
			t.Helper()
			if math.Abs(float64(got-want)) > 0.02*float64(want)+2<<20 {
				t.Errorf("%d tokens: %s: counted %d bytes, want %d to 2%% and 2 MiB", prompt, what, got, want)
			}
		}
		near("adapters", few.adapters, all.adapters)
		near("before the first step", few.base, all.base)
		near("a worker", few.each, all.each)
		for o, n := range all.work {
			if math.Abs(few.work[o]-n) > 1e-9*n {
				t.Errorf("%d tokens: %+v is run %v times, want %v", prompt, o, few.work[o], n)
			}
		}
		r, err := New(modeltest.WithDummyWeights(m, m.Config.Layers, m.Config.Vocab), c, source)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		held := r.workers[0].runner.ScratchBytes() + int64(m.Config.Layers)*m.Backend.KeptBytes(c.Adapters[0].Rows, 8, 2, prompt)
		for _, s := range r.workers[0].students {
			held += s.graph.ScratchBytes()
		}
		r.Close()
		held += m.Config.CacheBytes(prompt+40, m.CacheDType()) + 4*int64(prompt*m.Config.Layers*m.Config.Heads)
		if few.each < held*98/100 || few.each > held*3/2 { // gradients and what lives for an operation come on top
			t.Errorf("%d tokens: counted %d bytes for a worker, a run with numbers holds %d", prompt, few.each, held)
		}
	}
}

// TestPlannedTimeIsTaken: the planned time of a step is that of a run of all layers, within
// what a busy machine allows: the ratio of turns that follow each other.
func TestPlannedTimeIsTaken(t *testing.T) {
	if testing.Short() {
		t.Skip("runs steps of models of 20 million weights")
	}
	builtin, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		name             string
		m                *model.Model
		prompt, response int
		batch            int
	}{
		{"built-in model", builtin, 512, 16, 8},
		{"20 million weights in float32", shapesOf(t, "float32", 768, 3, 12, 4, 2048, 2048), 640, 16, 1},
		{"25 million weights in bfloat16", shapesOf(t, "bfloat16", 1024, 2, 16, 4, 2816, 2048), 1500, 64, 1},
	} {
		t.Run(x.name, func(t *testing.T) {
			// Other programs may have the machine in some turns: one try within a minute has to be right.
			var ratio float64
			for start := time.Now(); time.Since(start) < time.Minute; {
				if ratio = plannedToTaken(t, x.m, x.prompt, x.response, x.batch); ratio > 0.6 && ratio < 1.67 {
					return
				}
			}
			t.Errorf("planned ÷ taken %.2f, want 0.6 to 1.67", ratio)
		})
	}
}

// plannedToTaken is the planned time of a step over that of a run's: the middle one of three turns.
func plannedToTaken(t *testing.T, m *model.Model, prompt, response, batch int) float64 {
	t.Helper()
	c, o := lookaheadkv(t), PlanOptions{Prompt: prompt, Response: response}
	c.Batch = batch
	run := c
	run.Steps = 4
	pair := datasets.Pair{ID: "one", PromptIDs: make([]int32, prompt), ResponseIDs: make([]int32, response)}
	for i := range pair.PromptIDs {
		pair.PromptIDs[i] = int32(i % 50)
	}
	r, err := New(modeltest.WithDummyWeights(m, m.Config.Layers, m.Config.Vocab), run, &Pairs{Pairs: []datasets.Pair{pair}, Name: "one"})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var ratios []float64
	err = r.Run(t.Context(), func(s StepResult) error {
		if s.Step == 1 {
			return nil
		}
		p, err := NewPlan(t.Context(), m, []Config{c}, o)
		if err != nil {
			return err
		}
		ratios = append(ratios, p.Time.StepSeconds/s.Seconds)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(ratios)
	t.Logf("planned ÷ taken %.2f", ratios)
	return ratios[len(ratios)/2]
}
