package train

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"glimpse/datasets"
	"glimpse/kernels"
	"glimpse/model"
)

// Plan is what a run will take.
type Plan struct {
	Model    string        `json:"model"`
	Prompt   int           `json:"prompt_tokens"`   // of the longest prompt
	Response int           `json:"response_tokens"` // of the longest response
	Workers  int           `json:"workers"`
	Adapters []PlanAdapter `json:"adapters"`
	Memory   Memory        `json:"memory_bytes"`
	Time     PlanTime      `json:"time"`
}

// PlanAdapter is the size of an adapter.
type PlanAdapter struct {
	Name       string  `json:"name"`
	Kind       string  `json:"kind"`
	Parameters int64   `json:"parameters"`
	Share      float64 `json:"share"` // of the model's own
}

// Memory is a run's memory by purpose, in bytes: the process's, or on an accelerator the
// device's.
type Memory struct {
	Process     int64 `json:"process"` // program, runtime and compiled graphs
	Weights     int64 `json:"weights"` // as stored
	Cache       int64 `json:"cache"`   // keys, values and targets of the prompts worked on
	Activations int64 `json:"activations"`
	Adapters    int64 `json:"adapters"`  // parameters, and the best ones so far
	Optimiser   int64 `json:"optimiser"` // gradients and moments
	Samples     int64 `json:"samples"`   // kept prompts (cache_memory)
	Validation  int64 `json:"validation"`
	Drawing     int64 `json:"drawing"`   // of the curves
	Collector   int64 `json:"collector"` // garbage that is not collected yet, or not given back
	Total       int64 `json:"total"`
}

// PlanTime is an estimate from steps of a few layers with random weights.
type PlanTime struct {
	StepSeconds  float64 `json:"step_seconds"`
	TotalSeconds float64 `json:"total_seconds"`
	// GFLOPS is the speed that the estimate stands on, in 10⁹ operations a second of
	// which a multiply-add is two.
	GFLOPS float64 `json:"gflops"`
}

// gcPercent bounds garbage to a small share of what is in use: nearly all of it is
// large arrays of numbers, which the collector need not look into, so that collecting
// often costs next to nothing, while the usual 100% would double a run's memory.
const gcPercent = 10

// BoundMemory makes the collector keep garbage small, for the rest of the process.
func BoundMemory() { debug.SetGCPercent(gcPercent) }

// retainedPercent is what the runtime keeps beyond the heap's goal and does not give back
// to the system: a tenth of it by its own rule, and about as much between objects, as runs
// of 45 to 260 MiB have shown.
const retainedPercent = 20

// PlanOptions are what a plan depends on besides the configuration.
type PlanOptions struct {
	Prompt, Response int  // tokens of the longest sample
	MeanPrompt       int  // of all samples; 0: all are the longest
	Generated        bool // responses are generated on the way
	// Resident tells the bytes that the process holds now; nil or 0: it is not known.
	Resident func() int64
	// Draw draws curves as a run does; nil: it draws none.
	Draw func() error
}

// sketch sizes: small enough to be quick, wide enough to say something.
const (
	sketchLayers = 3
	sketchTokens = 512
	sketchVocab  = 1024
)

// NewPlan estimates memory and time of a configuration for an outlined model. It runs
// a few steps on a few layers with random weights.
func NewPlan(ctx context.Context, m *model.Model, c Config, o PlanOptions) (*Plan, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	if o.Prompt+o.Response > m.Config.MaxPositions {
		return nil, fmt.Errorf("train plan: %d prompt and %d response tokens, want at most %d together: %w", o.Prompt, o.Response, m.Config.MaxPositions, model.ErrContext)
	}
	var err error
	p := &Plan{Model: m.Name, Prompt: o.Prompt, Response: o.Response, Workers: c.concurrency(m)}
	element := int64(m.Backend.Compute().Size())
	p.Adapters = CountAll(m, c.Adapters)
	var rows []rowsOf
	for i, a := range c.Adapters {
		n := p.Adapters[i].Parameters
		rows = append(rows, rowsOf{float64(a.Rows), float64(n) - float64(a.Rows*m.Config.Hidden)})
		p.Memory.Adapters += n * element
		p.Memory.Optimiser += 3 * n * element
		if c.Validation.Every > 0 {
			p.Memory.Adapters += n * element
		}
	}
	k, workers := &p.Memory, int64(p.Workers)
	k.Weights, k.Samples = m.WeightBytes(), c.CacheMemory
	entries := int64(o.Prompt)
	k.Cache = workers * entries * (m.Config.CacheBytesPerToken(m.CacheDType().Size()) + 4*int64(m.Config.Layers*m.Config.Heads))
	if v := c.Validation; v.Samples > 0 {
		// Scores of all policies at all budgets, SnapKV's and the oracle's among them.
		k.Validation = workers * 4 * entries * int64(m.Config.Layers*m.Config.KVHeads*len(v.Budgets)*(len(c.Adapters)+2))
	}
	if k.Drawing, err = o.drawing(); err != nil {
		return nil, err
	}
	seconds, measured, activations, process, err := measureSketch(ctx, m, c, o, p.Workers)
	if err != nil {
		return nil, err
	}
	k.Activations, k.Process = workers*activations, process
	live := k.Cache + k.Activations + k.Adapters + k.Optimiser + k.Samples + k.Validation
	// The prompts before those worked on are garbage for a while, too.
	k.Collector = live*(gcPercent+retainedPercent)/100 + k.Cache
	k.Total = k.Process + k.Weights + live + k.Drawing + k.Collector
	if kernels.OwnMemory(m.Backend) {
		if p.Memory, err = Forecast(ctx, m, c, o); err != nil {
			return nil, err
		}
	}

	mean := o.MeanPrompt
	if mean == 0 {
		mean = o.Prompt
	}
	work := sampleWork(m, mean, o, rows)
	p.Time.GFLOPS = 2 * measured(rows) / seconds / 1e9
	p.Time.StepSeconds = work * float64(c.Batch) / (measured(rows) / seconds)
	p.Time.TotalSeconds = p.Time.StepSeconds * float64(c.Steps)
	return p, nil
}

// drawing is the memory that drawing curves takes besides what stays in the process
// from then on, as fonts do.
func (o PlanOptions) drawing() (int64, error) {
	if o.Draw == nil || o.Resident == nil {
		return 0, nil
	}
	if err := o.Draw(); err != nil {
		return 0, err
	}
	debug.FreeOSMemory()
	before := o.Resident()
	err := o.Draw()
	return max(0, o.Resident()-before), err
}

// CountAll is the sizes of adapters for a model, of which an outline will do. The
// kinds must be known.
func CountAll(m *model.Model, adapters []AdapterConfig) []PlanAdapter {
	total := modelParameters(m)
	var out []PlanAdapter
	for _, a := range adapters {
		kind, err := model.AdapterKinds.Lookup(a.Kind)
		if err != nil {
			panic("train: " + err.Error())
		}
		n := kind.Count(m, a.AdapterConfig)
		out = append(out, PlanAdapter{a.Name, a.Kind, n, float64(n) / float64(total)})
	}
	return out
}

// sampleWork are the multiply-adds of one sample.
func sampleWork(m *model.Model, prompt int, o PlanOptions, rows []rowsOf) float64 {
	a, b, c := operations(m, prompt, o.Response, rows)
	if o.Generated { // the response's tokens one by one, as for a target of all modules
		b *= 2
	}
	return a + b + c
}

// modelParameters is the number of all weights.
func modelParameters(m *model.Model) int64 {
	n := m.Network.Parameters() + int64(m.Network.Embedding.Len()) + int64(m.Network.FinalNorm.Weight.Len())
	if !m.Config.TieEmbeddings {
		n += int64(m.Network.Head.Weight.Len())
	}
	return n
}

// measureSketch runs steps of a sketch. It returns the seconds of one sample, the
// multiply-adds of such a sample, and the bytes of activations that one worker holds
// for the real model: those of the sketch, continued to all layers and entries. process is
// what the process holds besides the sketch's weights and numbers.
func measureSketch(ctx context.Context, m *model.Model, c Config, o PlanOptions, workers int) (seconds float64, work func([]rowsOf) float64, activations, process int64, err error) {
	whole := m.Network.Parameters() <= smallModel
	layers, vocab, tokens := sketchLayers, sketchVocab, min(o.Prompt, sketchTokens)
	if whole {
		layers, vocab, tokens = m.Config.Layers, m.Config.Vocab, o.Prompt
	}
	sketch := m.Sketch(layers, vocab)
	layers = sketch.Config.Layers
	c.Steps, c.Batch, c.Workers, c.Warmup = 3, workers, workers, 0
	c.MaxResponse, c.CacheMemory, c.CacheDisk = o.Response, 0, 0
	c.Validation = ValidationConfig{}
	c.Adapters = append([]AdapterConfig(nil), c.Adapters...)
	for i := range c.Adapters {
		c.Adapters[i].InitToken = -1
	}
	sample := func(n int) *Pairs {
		p := datasets.Pair{ID: "sketch", PromptIDs: make([]int32, n), ResponseIDs: make([]int32, o.Response)}
		for i := range p.PromptIDs {
			p.PromptIDs[i] = int32(i*7) % int32(vocab)
		}
		return &Pairs{Pairs: []datasets.Pair{p}, Name: "sketch"}
	}
	// graphs is the scratch memory of all adapters' graphs with so many layers and
	// entries.
	graphs := func(layers, n int) (float64, error) {
		cut, err := sketch.Cut(layers)
		if err != nil {
			return 0, err
		}
		t, err := New(cut, c, sample(n))
		if err != nil {
			return 0, err
		}
		defer t.Close()
		if err := t.Run(ctx, nil); err != nil {
			return 0, err
		}
		return float64(t.graphBytes()), nil
	}
	var source Source = sample(tokens)
	if o.Generated {
		source = generated{sample(tokens)}
	}
	t, err := New(sketch, c, source)
	if err != nil {
		return 0, nil, 0, 0, err
	}
	defer t.Close()
	var best time.Duration
	start := time.Now()
	err = t.Run(ctx, func(r StepResult) error {
		d := time.Since(start)
		if best == 0 || d < best {
			best = d
		}
		start = time.Now()
		return nil
	})
	if err != nil {
		return 0, nil, 0, 0, err
	}
	seconds = best.Seconds() / float64(c.Batch)
	process = defaultProcess
	if o.Resident != nil {
		debug.FreeOSMemory()
		if n := o.Resident(); n > 0 {
			process = n - sketch.WeightBytes() - t.numbers()
		}
	}
	work = func(rows []rowsOf) float64 {
		scaled := make([]rowsOf, len(rows))
		for i, r := range rows { // the factors of the sketch's layers
			scaled[i] = rowsOf{r.rows, r.low * float64(layers) / float64(m.Config.Layers)}
		}
		return sampleWork(sketch, tokens, o, scaled)
	}
	runner := float64(t.workers[0].runner.ScratchBytes())
	if beyond := float64(o.Prompt - tokens); beyond > 0 {
		// The residual stream, and the scores of one layer.
		runner += 4 * beyond * float64(m.Config.Hidden+m.Config.Heads)
	}
	scratch := float64(t.graphBytes())
	if !whole && (layers < m.Config.Layers || tokens < o.Prompt) {
		// Linear in the layers at a fixed number of entries, and the other way round.
		few, many := min(64, tokens), min(256, tokens)
		below := max(1, layers-1)
		var at [2][2]float64
		for i, l := range []int{below, layers} {
			for j, n := range []int{few, many} {
				if at[i][j], err = graphs(l, n); err != nil {
					return 0, nil, 0, 0, err
				}
			}
		}
		perEntry := func(i int) float64 {
			if many == few {
				return 0
			}
			return (at[i][1] - at[i][0]) / float64(many-few)
		}
		full := func(i int) float64 { return at[i][1] + perEntry(i)*float64(o.Prompt-many) }
		scratch = full(1)
		if layers > below {
			scratch += (full(1) - full(0)) * float64(m.Config.Layers-layers)
		}
	}
	return seconds, work, int64(runner + scratch), process, nil
}

// generated hides the responses of pairs, so that the model generates them.
type generated struct{ *Pairs }

func (g generated) Repeats() bool { return false }

func (g generated) At(i int) (Sample, error) {
	s, err := g.Pairs.At(i)
	s.Response = nil
	return s, err
}

// graphBytes is the scratch memory of one worker's graphs.
func (t *Trainer) graphBytes() int64 {
	var n int64
	for _, g := range t.workers[0].graphs {
		n += g.ScratchBytes()
	}
	return n
}

// defaultProcess is about what program, runtime and graphs take, for systems that
// do not tell.
const defaultProcess = 48 << 20

// numbers is the memory of parameters, optimiser and scratch.
func (t *Trainer) numbers() int64 {
	var n int64
	for _, w := range t.workers {
		n += w.runner.ScratchBytes()
		for _, g := range w.graphs {
			n += g.ScratchBytes()
		}
	}
	for _, l := range t.learners {
		for _, p := range l.params {
			n += 4 * int64(p.Tensor.Bytes())
		}
	}
	return n
}
