package training_test

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/internal/compare"
	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/training"

	_ "glimpse/gates"
	_ "glimpse/lora"
	_ "glimpse/softtokens"
)

func reference(t testing.TB) *model.Model {
	t.Helper()
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

// shallow is the built-in model's first layers: what follows from training on them holds of any number.
func shallow(t testing.TB) *model.Model {
	t.Helper()
	return modeltest.OpenShallow(t, "cpu", 3)
}

// both is a configuration of one adapter of each kind.
func both(steps int) training.Config {
	c := training.DefaultConfig()
	c.Steps, c.Batch, c.Warmup, c.MaxResponse = steps, 4, 2, 16
	c.Adapters = []training.AdapterConfig{
		{Kind: "lookaheadkv", LearningRate: 5e-3, Pooling: 1, AdapterConfig: model.AdapterConfig{Rows: 8, Rank: 4, Alpha: 8, Modules: model.Modules, InitToken: 6, InitNoise: 0.3}},
		{Kind: "judgeq", LearningRate: 0.2, Pooling: 1, AdapterConfig: model.AdapterConfig{Rows: 8, InitToken: 6, InitNoise: 0.3}},
	}
	return c
}

func stream(t testing.TB, tokens int) training.Source {
	t.Helper()
	s, err := datasets.NewStream([]string{"needle", "section"}, datasets.Train, tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	return training.Fresh{Stream: s}
}

// run trains and returns all parameters and the losses of every step.
func run(t testing.TB, m *model.Model, c training.Config, s training.Source) (params []float32, losses []float64) {
	t.Helper()
	tr, err := training.New(m, c, s)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	err = tr.Run(context.Background(), func(r training.StepResult) error {
		for _, a := range r.Adapters {
			losses = append(losses, a.Loss)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.Adapters {
		for _, p := range tr.Adapter(i).Parameters() {
			params = append(params, p.Tensor.Float32s()...)
		}
	}
	return params, losses
}

func sameBits(a, b []float32) bool {
	return slices.EqualFunc(a, b, func(x, y float32) bool { return math.Float32bits(x) == math.Float32bits(y) })
}

// TestSameSeedSameBytes: threads, workers and sample caches change no bit.
func TestSameSeedSameBytes(t *testing.T) {
	m := shallow(t)
	var want []float32
	for _, threads := range []int{1, parallel.Threads(), 3} {
		previous := parallel.SetThreads(threads)
		c := both(3)
		c.Workers = threads
		got, _ := run(t, m, c, stream(t, 96))
		parallel.SetThreads(previous)
		if want == nil {
			want = got
		}
		if !sameBits(got, want) {
			t.Fatalf("parameters with %d threads differ from those with 1", threads)
		}
	}
}

// TestBaseWeightsUntouched compares the weights' hash before and after.
func TestBaseWeightsUntouched(t *testing.T) {
	m := shallow(t)
	before := m.Network.Head.Weight.Float32s()
	var all [][]float32
	for l := range m.Network.Layers {
		for _, module := range model.Modules {
			all = append(all, m.Network.Layers[l].Linear(module).Weight.Float32s())
		}
	}
	params, _ := run(t, m, both(2), stream(t, 64))
	if len(params) == 0 {
		t.Fatal("nothing was trained")
	}
	if !sameBits(before, m.Network.Head.Weight.Float32s()) {
		t.Fatal("the head has changed")
	}
	for l := range m.Network.Layers {
		for _, module := range model.Modules {
			if !sameBits(all[0], m.Network.Layers[l].Linear(module).Weight.Float32s()) {
				t.Fatalf("layer %d %s has changed", l, module)
			}
			all = all[1:]
		}
	}
}

// pairs are a few samples that come again and again.
func pairs(t testing.TB, m *model.Model, n, tokens int) *training.Pairs {
	t.Helper()
	s, err := datasets.NewStream([]string{"needle", "key1", "section"}, datasets.Train, tokens, 1)
	if err != nil {
		t.Fatal(err)
	}
	out := &training.Pairs{Name: "test", Seed: 5}
	for i := range n {
		e, err := s.At(i)
		if err != nil {
			t.Fatal(err)
		}
		for _, ids := range [][]int32{e.Prompt, e.Answer} { // of models with fewer tokens
			for i := range ids {
				ids[i] %= int32(m.Config.Vocab)
			}
		}
		out.Pairs = append(out.Pairs, datasets.Pair{ID: e.ID, PromptIDs: e.Prompt, ResponseIDs: e.Answer})
	}
	return out
}

// TestLossFalls trains on a few samples that come again.
func TestLossFalls(t *testing.T) {
	m := shallow(t)
	_, losses := run(t, m, both(60), pairs(t, m, 6, 64))
	mean := func(adapter, from, to int) float64 {
		sum := 0.0
		for s := from; s < to; s++ {
			sum += losses[2*s+adapter]
		}
		return sum / float64(to-from)
	}
	for i, kind := range []string{"lookaheadkv", "judgeq"} {
		first, last := mean(i, 0, 3), mean(i, 54, 60)
		t.Logf("%s: loss %.4g, after 60 steps %.4g", kind, first, last)
		if !(last < 0.8*first) {
			t.Errorf("%s: loss went from %v to %v, want it to fall by a fifth", kind, first, last)
		}
	}
}

// inBlocks replaces the weights of the layers by what hold makes of their blocks.
func inBlocks(m *model.Model, stored kernels.DType, hold func(blocks *kernels.Tensor) *kernels.Tensor) {
	for l := range m.Network.Layers {
		for _, module := range model.Modules {
			lin := m.Network.Layers[l].Linear(module)
			blocks := kernels.NewTensor(stored, lin.Weight.Shape...)
			kernels.Convert(blocks, lin.Weight)
			lin.Weight = hold(blocks)
		}
	}
}

// TestTrainsOverBlocks: over weights in blocks training goes as over the same weights in bf16, but for
// products of few rows, which round these to bytes.
func TestTrainsOverBlocks(t *testing.T) {
	for _, name := range []string{"Q8_0", "Q4_1"} {
		stored, err := kernels.ParseStored(name)
		if err != nil {
			t.Fatal(err)
		}
		losses := func(hold func(blocks *kernels.Tensor) *kernels.Tensor) []float64 {
			m := shallow(t)
			inBlocks(m, stored, hold)
			c := both(12)
			c.Adapters[0].Rows, c.Adapters[1].Rows = 32, 32
			_, losses := run(t, m, c, pairs(t, m, 6, 64))
			return losses
		}
		got, want := losses(func(b *kernels.Tensor) *kernels.Tensor { return b }), losses(kernels.Widened)
		compare.Close(t, name+": losses", got, want, 2e-2, compare.Floor(want[0]))
		if got[len(got)-2] > 0.9*got[0] {
			t.Errorf("%s: loss %v after %d steps, %v before", name, got[len(got)-2], len(got)/2, got[0])
		}
	}
}

// TestSampleCacheChangesNoBit: samples from memory and from disk give the bits of
// fresh ones.
func TestSampleCacheChangesNoBit(t *testing.T) {
	for _, cache := range []string{"float32", "q4_1"} {
		sampleCacheChangesNoBit(t, shallow(t), cache)
	}
	sampleCacheChangesNoBit(t, modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "qwen3-next").Folder), "cpu"), "float32")
}

func sampleCacheChangesNoBit(t *testing.T, m *model.Model, cache string) {
	if err := m.SetCacheDType(cache); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TMPDIR", t.TempDir())
	var want []float32
	for _, c := range []struct {
		name         string
		memory, disk int64
	}{{"none", 0, 0}, {"memory", 1 << 30, 0}, {"disk", 0, 1 << 30}, {"both", 300 << 10, 300 << 10}} {
		config := both(6)
		config.CacheMemory, config.CacheDisk = c.memory, c.disk
		got, _ := run(t, m, config, pairs(t, m, 5, 64))
		if want == nil {
			want = got
		}
		if !sameBits(got, want) {
			t.Errorf("%s, sample cache %q: parameters differ from those without a cache", cache, c.name)
		}
	}
	left, err := os.ReadDir(os.Getenv("TMPDIR"))
	if err != nil || len(left) > 0 {
		t.Errorf("sample cache left %v behind (%v)", left, err)
	}
}

// TestAdaptersDoNotDisturbEachOther: an adapter trained beside another one has
// the bits of one trained alone.
func TestAdaptersDoNotDisturbEachOther(t *testing.T) {
	m := shallow(t)
	together, _ := run(t, m, both(3), stream(t, 64))
	var apart []float32
	for i := range 2 {
		c := both(3)
		c.Adapters = c.Adapters[i : i+1]
		p, _ := run(t, m, c, stream(t, 64))
		apart = append(apart, p...)
	}
	if !sameBits(together, apart) {
		t.Fatal("adapters trained in one pass differ from those trained alone")
	}
}

// TestEmptyResponsesAreSkipped: a sample whose response ended at once has no
// target; it is counted and left out of the mean.
func TestEmptyResponsesAreSkipped(t *testing.T) {
	m := shallow(t)
	p := pairs(t, m, 4, 64)
	p.Pairs[2].ResponseIDs = nil
	tr, err := training.New(m, both(2), p)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	var last training.StepResult
	if err := tr.Run(context.Background(), func(r training.StepResult) error { last = r; return nil }); err != nil {
		t.Fatal(err)
	}
	if last.Skipped != 2 || last.Samples != 3 {
		t.Fatalf("skipped %d with %d samples in the last step, want 2 and 3", last.Skipped, last.Samples)
	}
}

// TestPromptsWithoutRoomForAnAnswer are counted and left out, and no validation fails by them.
func TestPromptsWithoutRoomForAnAnswer(t *testing.T) {
	m := shallow(t)
	p := pairs(t, m, 4, 64)
	p.Pairs[2].PromptIDs = modeltest.Tokens(m, 1, m.Config.MaxPositions-95)
	c := both(1)
	c.Adapters = c.Adapters[:1]
	c.Adapters[0].Kind, c.Adapters[0].Rows, c.Validation.Samples = "restorekv", 9, 4
	tr, err := training.New(m, c, p)
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	if err := errors.Join(tr.HoldOut(t.Context(), p), tr.Run(t.Context(), func(r training.StepResult) error {
		if r.TooLong != 1 || r.Skipped != 0 || r.Samples != 3 {
			t.Errorf("%d samples, %d too long, %d with an empty response, want 3, 1 and 0", r.Samples, r.TooLong, r.Skipped)
		}
		return nil
	})); err != nil {
		t.Fatal(err)
	}
	if v, err := tr.Validate(t.Context()); err != nil || v.Samples != 3 {
		t.Errorf("validation: %+v, %v, want 3 samples", v, err)
	}
	p = &training.Pairs{Pairs: p.Pairs[2:3]}
	if err := tr.HoldOut(t.Context(), p); err == nil || !strings.Contains(err.Error(), "no room for an answer of 96 tokens behind the prompt") {
		t.Errorf("held-out samples without room: %v", err)
	}
}

func TestConfigErrors(t *testing.T) {
	m := shallow(t)
	for name, c := range map[string]struct {
		change func(c *training.Config)
		want   string
	}{
		"no adapter":     {func(c *training.Config) { c.Adapters = nil }, "no adapter"},
		"unknown kind":   {func(c *training.Config) { c.Adapters[0].Kind = "lokahead" }, "want one of: judgeq, lookaheadkv"},
		"unknown loss":   {func(c *training.Config) { c.Adapters[0].Loss = "l1" }, "want one of: distil, kl, mse"},
		"same name":      {func(c *training.Config) { c.Adapters[1].Name = "lookaheadkv" }, "two adapters named"},
		"rows":           {func(c *training.Config) { c.Adapters[0].Rows = 0 }, "rows: got 0"},
		"rank":           {func(c *training.Config) { c.Adapters[0].Rank = 0 }, "rank: got 0"},
		"rate":           {func(c *training.Config) { c.Adapters[0].LearningRate = math.NaN() }, "learning rate: got NaN"},
		"pooling":        {func(c *training.Config) { c.Adapters[0].Pooling = 2 }, "pooling kernel: got 2"},
		"wide pooling":   {func(c *training.Config) { c.Adapters[0].Pooling = math.MaxInt64 }, "pooling kernel: got 9223372036854775807, want an odd width from 1 to 4095"},
		"steps":          {func(c *training.Config) { c.Steps = 0 }, "steps: got 0"},
		"schedule":       {func(c *training.Config) { c.Schedule = "linear" }, "want one of: constant, cosine"},
		"LoRA for soft":  {func(c *training.Config) { c.Adapters[1].Modules = model.Modules }, "Judge Q trains soft tokens only"},
		"init token":     {func(c *training.Config) { c.Adapters[0].InitToken = 480 }, "init token: got 480"},
		"beta2 of one":   {func(c *training.Config) { c.Beta2 = 1 }, "beta2: got 1"},
		"negative clip":  {func(c *training.Config) { c.Clip = -1 }, "clip: got -1"},
		"negative batch": {func(c *training.Config) { c.Batch = -4 }, "batch: got -4"},
	} {
		t.Run(name, func(t *testing.T) {
			config := both(1)
			c.change(&config)
			tr, err := training.New(m, config, stream(t, 64))
			if err == nil {
				tr.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want it to say %q", err, c.want)
			}
		})
	}
}

// TestStopsBetweenSamples: a cancelled run returns context.Canceled.
func TestStopsBetweenSamples(t *testing.T) {
	m := shallow(t)
	ctx, cancel := context.WithCancel(context.Background())
	tr, err := training.New(m, both(1000), stream(t, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer tr.Close()
	steps := 0
	err = tr.Run(ctx, func(training.StepResult) error {
		if steps++; steps == 2 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || steps != 2 {
		t.Fatalf("error %v after %d steps, want context.Canceled after 2", err, steps)
	}
}

// TestResumeHasTheSameBits stops a run after every number of steps, takes it up
// in a new trainer and compares the end with that of an undisturbed run.
func TestResumeHasTheSameBits(t *testing.T) {
	m := shallow(t)
	const steps = 4
	want, _ := run(t, m, both(steps), pairs(t, m, 5, 64))
	path := filepath.Join(t.TempDir(), "state")
	for stop := range steps {
		first, err := training.New(m, both(steps), pairs(t, m, 5, 64))
		if err != nil {
			t.Fatal(err)
		}
		enough := errors.New("enough")
		err = first.Run(context.Background(), func(r training.StepResult) error {
			if err := first.Save(path, "hash"); err != nil {
				return err
			}
			if r.Step > stop {
				return enough
			}
			return nil
		})
		first.Close()
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
		second, err := training.New(m, both(steps), pairs(t, m, 5, 64))
		if err != nil {
			t.Fatal(err)
		}
		if err := second.Resume(path, "hash"); err != nil {
			t.Fatal(err)
		}
		if second.Done() != stop+1 {
			t.Fatalf("resumed after %d steps, want %d", second.Done(), stop+1)
		}
		if err := second.Run(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
		var got []float32
		for i := range 2 {
			for _, p := range second.Adapter(i).Parameters() {
				got = append(got, p.Tensor.Float32s()...)
			}
		}
		second.Close()
		if !sameBits(got, want) {
			t.Fatalf("a run stopped after %d steps and resumed ends with other bits", stop+1)
		}
	}
}

// TestResumeRefusesOtherRuns: a checkpoint belongs to one run.
func TestResumeRefusesOtherRuns(t *testing.T) {
	m := shallow(t)
	path := filepath.Join(t.TempDir(), "state")
	first, err := training.New(m, both(4), pairs(t, m, 5, 64))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	if err := first.Save(path, "hash"); err != nil {
		t.Fatal(err)
	}
	other := both(4)
	other.Adapters[0].LearningRate = 1e-4
	for name, c := range map[string]struct {
		config training.Config
		source training.Source
		hash   string
		want   string
	}{
		"settings": {other, pairs(t, m, 5, 64), "hash", "settings"},
		"data":     {both(4), stream(t, 64), "hash", "data"},
		"model":    {both(4), pairs(t, m, 5, 64), "other", "model weights"},
	} {
		tr, err := training.New(m, c.config, c.source)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Resume(path, c.hash); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("other %s: error %v", name, err)
		}
		tr.Close()
	}
	state, err := checkpoints.ReadState(path)
	if err != nil {
		t.Fatal(err)
	}
	device, ours := regexp.MustCompile(`"device":"[^"]*"`), state.Run
	for was, resumes := range map[string]bool{kernels.DeviceOf(m.Backend): true, "cpu": true, "cpu elsewhere": false, "cuda": false} { // cpu alone is of earlier versions
		state.Run = device.ReplaceAll(ours, []byte(`"device":"`+was+`"`))
		if err := checkpoints.SaveState(path, state); err != nil {
			t.Fatal(err)
		}
		if err := first.Resume(path, "hash"); (err == nil) != resumes || err != nil && !strings.Contains(err.Error(), "device and instruction set") {
			t.Errorf("on %s: error %v", was, err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[len(data)/2] ^= 4
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := first.Resume(path, "hash"); err == nil {
		t.Error("a checkpoint with a flipped bit was taken up")
	}
}
