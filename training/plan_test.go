package training_test

import (
	"context"
	"math"
	"path/filepath"
	"testing"

	"glimpse/model"
	"glimpse/training"
)

// TestPublishedParameterCounts: LookaheadKV, arXiv:2603.10899, table 1, from the models' published
// configurations.
func TestPublishedParameterCounts(t *testing.T) {
	for name, want := range map[string]struct{ millions, percent float64 }{
		"Llama-3.2-1B-Instruct": {5.4, 0.44}, "Llama-3.2-3B-Instruct": {11.9, 0.37}, "Llama-3.1-8B-Instruct": {20.6, 0.26},
		"Qwen3-1.7B": {8.5, 0.49}, "Qwen3-4B": {16.2, 0.40}, "Qwen3-8B": {21.5, 0.26},
	} {
		m, err := model.OpenShapes(filepath.Join("testdata", "published", name), "cpu")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := training.Presets.Lookup("lookaheadkv")
		n := float64(training.CountAll(m, []training.AdapterConfig{p.Adapter})[0].Parameters)
		share := 100 * training.CountAll(m, []training.AdapterConfig{p.Adapter})[0].Share
		t.Logf("%s: %.2fM, %.3f%%", name, n/1e6, share)
		if math.Abs(n/1e6-want.millions) > 0.1 {
			t.Errorf("%s: %.2fM parameters, want %.1fM", name, n/1e6, want.millions)
		}
		if math.Abs(share-want.percent) > 0.03 {
			t.Errorf("%s: %.3f%% of the model, want %.2f%%", name, share, want.percent)
		}
	}
}

// TestCountIsWhatNewMakes: the count of every kind, with shapes alone, is that of the
// parameters of a real adapter.
func TestCountIsWhatNewMakes(t *testing.T) {
	m := reference(t)
	shapes, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	c := both(1)
	qv := c.Adapters[0]
	qv.Modules = []model.Module{model.QProj, model.VProj}
	c.Adapters = append(c.Adapters, qv)
	for i, a := range c.Adapters {
		kind, err := model.RowsKinds.Lookup(a.Kind)
		if err != nil {
			t.Fatal(err)
		}
		made, err := kind.New(m, a.AdapterConfig)
		if err != nil {
			t.Fatal(err)
		}
		want := int64(0)
		for _, p := range made.Parameters() {
			want += int64(p.Tensor.Len())
		}
		if got := kind.Count(shapes, a.AdapterConfig); got != want {
			t.Errorf("adapter %d: count %d, New makes %d", i, got, want)
		}
	}
}

// TestPlanScales: memory and time grow as they must.
func TestPlanScales(t *testing.T) {
	shapes, err := model.OpenShapes("", "cpu")
	if err != nil {
		t.Fatal(err)
	}
	plan := func(prompt int, change func(c *training.Config)) *training.RunPlan {
		c := both(10)
		change(&c)
		p, err := training.NewPlan(context.Background(), shapes, []training.Config{c}, training.PlanOptions{Prompt: prompt, Response: 8})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	// The time alone says how busy the machine was, too.
	work := func(p *training.RunPlan) float64 { return p.Time.StepSeconds * p.Time.GFLOPS }
	base := plan(128, func(*training.Config) {})
	long := plan(512, func(*training.Config) {})
	many := plan(128, func(c *training.Config) {
		for i := range 3 {
			a := c.Adapters[0]
			a.Name = string(rune('a' + i))
			c.Adapters = append(c.Adapters, a)
		}
	})
	if long.Memory.Cache != 4*base.Memory.Cache || !(long.Memory.Activations > base.Memory.Activations) || !(work(long) > 2*work(base)) {
		t.Errorf("longer prompts: %+v, short ones %+v", long, base)
	}
	if many.Memory.Optimiser <= 3*base.Memory.Optimiser || many.Memory.Cache != base.Memory.Cache || !(many.Memory.Activations > base.Memory.Activations) {
		t.Errorf("more adapters: %+v, two %+v", many.Memory, base.Memory)
	}
	k := base.Memory
	if sum := k.Process + k.Weights + k.Cache + k.Activations + k.Adapters + k.Optimiser + k.Samples + k.Validation + k.Drawing + k.Collector; sum != k.Total {
		t.Errorf("parts sum to %d, total is %d", sum, k.Total)
	}
}
