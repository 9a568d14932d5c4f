package training

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	"glimpse/internal/collector"
	"glimpse/model"
)

// Plan is what a run will take.
type Plan struct {
	Model    string        `json:"model"`
	Prompt   int           `json:"prompt_tokens"`   // of the longest prompt
	Response int           `json:"response_tokens"` // of the longest response
	Workers  int           `json:"workers"`
	Passes   int           `json:"passes"` // runs of a sweep, one after the other; 1: no sweep
	Adapters []PlanAdapter `json:"adapters"`
	Memory   Memory        `json:"memory_bytes"`
	Time     PlanTime      `json:"time"`
	H100     PlanH100      `json:"h100"`
	// Available is the memory that there is, in bytes; 0: it is not known.
	Available int64 `json:"available_bytes"`
	// Changes are what to change where the run takes too long or does not fit.
	Changes []PlanChange `json:"changes,omitempty"`
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

// PlanTime is an estimate from the rates of this machine.
type PlanTime struct {
	StepSeconds  float64 `json:"step_seconds"`  // of a sweep, of the pass that needs most memory
	TotalSeconds float64 `json:"total_seconds"` // of all passes
	// GFLOPS is the speed that the estimate stands on, in 10⁹ operations a second of
	// which a multiply-add is two.
	GFLOPS float64 `json:"gflops"`
}

// LeastGarbage is the garbage that is never too much, in bytes: with less, the built-in model was
// collected 200 times a second, which took a quarter of the time of its training.
const LeastGarbage = 3 << 20

// retainedPercent is what the runtime keeps beyond the heap's goal and does not give back
// to the system: a tenth of it by its own rule, and about as much between objects, as runs
// of 45 to 260 MiB have shown.
const retainedPercent = 20

// PlanOptions are what a plan depends on besides the configuration.
type PlanOptions struct {
	Prompt, Response int  // tokens of the longest sample
	MeanPrompt       int  // of all samples; 0: all are the longest
	Generated        bool // responses are generated on the way
	Ranks            int  // of the run; of several, GPUs keep the gradients of a rank's samples
	// Resident tells the bytes that the process holds now; nil or 0: it is not known.
	Resident func() int64
	// Available tells the memory that there is on the host; nil or 0: it is not known.
	Available func() int64
}

// NewPlan estimates memory and time of a run for a model, whose shapes will do, in a
// second and in little memory whatever its size: memory is counted on a model without
// numbers, and time computed from measured rates. Steps are run for models that are small
// enough. A sweep has a configuration per pass, which differ in nothing but their adapters:
// times add up, memory is that of the pass that needs most, and passes whose adapters are of
// the same shapes are estimated once.
func NewPlan(ctx context.Context, m *model.Model, passes []Config, o PlanOptions) (*Plan, error) {
	var (
		most       *passPlan // that needs most memory
		here, h100 float64
		adapters   []PlanAdapter
		estimated  = make(map[string]*passPlan)
	)
	for _, c := range passes {
		if err := c.Validate(m); err != nil {
			return nil, err
		}
		shapes := sizesOf(c.Adapters)
		if estimated[shapes] == nil {
			var err error
			if estimated[shapes], err = planPass(ctx, m, c, o); err != nil {
				return nil, err
			}
		}
		one := estimated[shapes]
		adapters = append(adapters, CountAll(m, c.Adapters)...)
		here, h100 = here+one.Time.TotalSeconds, h100+one.H100.TotalSeconds
		if most == nil || one.Memory.Total > most.Memory.Total {
			most = one
		}
	}
	most.relative = here / most.Time.TotalSeconds
	p := &most.Plan
	p.Passes, p.Adapters = len(passes), adapters
	p.Time.TotalSeconds, p.H100.TotalSeconds = here, h100
	var err error
	p.Changes, err = most.changes(ctx, m, o)
	return p, err
}

// passPlan is the plan of one configuration, with what it was made of.
type passPlan struct {
	Plan
	config   Config
	mean     int // tokens of a prompt
	rows     []rowsOf
	seconds  func(w work) float64 // of one sample
	relative float64              // time of all passes in times of this one
}

// sizesOf is equal for adapters that take equal time and memory.
func sizesOf(adapters []AdapterConfig) string {
	var text strings.Builder
	for _, a := range adapters {
		fmt.Fprintln(&text, a.Kind, a.Rows, a.Rank, a.Modules)
	}
	return text.String()
}

// activeFactors are the numbers of LoRA factors that a row goes through.
func activeFactors(m *model.Model, c model.AdapterConfig) (n float64) {
	for l := range m.Config.Layers {
		for _, module := range c.Modules {
			if _, active, out, in := m.Network.Layers[l].Factors(module); module.ReachesScores(l, m.Config.ScoredLayers()) {
				n += float64(active * c.Rank * (out + in))
			}
		}
	}
	return n
}

// planPass is the plan of a valid configuration, without changes.
func planPass(ctx context.Context, m *model.Model, c Config, o PlanOptions) (*passPlan, error) {
	if o.Prompt+o.Response > m.Config.MaxPositions {
		return nil, fmt.Errorf("train plan: %d prompt and %d response tokens, want at most %d together: %w", o.Prompt, o.Response, m.Config.MaxPositions, model.ErrContext)
	}
	var err error
	p := &passPlan{Plan: Plan{Model: m.Name, Prompt: o.Prompt, Response: o.Response, Workers: c.concurrency(m)}, config: c, mean: o.MeanPrompt}
	element := int64(m.Backend.Compute().Size())
	for i, size := range CountAll(m, c.Adapters) {
		a, n := c.Adapters[i], size.Parameters
		p.rows = append(p.rows, rowsOf{float64(a.Rows), activeFactors(m, a.AdapterConfig)})
		p.Memory.Adapters += n * element
		p.Memory.Optimiser += 3 * n * element
		if c.Validation.Every > 0 {
			p.Memory.Adapters += n * element
		}
	}
	k, workers := &p.Memory, int64(p.Workers)
	k.Weights, k.Samples = m.WeightBytes(), c.CacheMemory
	entries := int64(o.Prompt)
	k.Cache = workers * (m.Config.CacheBytes(o.Prompt, m.CacheDType()) + 4*entries*int64(m.Config.Layers*m.Config.Heads))
	if v := c.Validation; v.Samples > 0 {
		// Scores of all policies at all budgets, SnapKV's and the oracle's among them.
		k.Validation = workers * 4 * entries * int64(m.Config.Layers*m.Config.KVHeads*len(v.Budgets)*(len(c.Adapters)+2))
	}
	if k.Drawing, err = o.drawing(&c); err != nil {
		return nil, err
	}
	scratch, err := countScratch(ctx, m, c, o)
	if err != nil {
		return nil, err
	}
	var speed speed
	if m.Network.Parameters() <= smallModel {
		speed, err = measureSteps(ctx, m, c, o, p.rows, p.Workers)
	} else {
		speed, err = measureRates(ctx, m, c, o)
	}
	if err != nil {
		return nil, err
	}
	k.Activations, k.Process = workers*scratch, speed.process
	live := k.Cache + k.Activations + k.Adapters + k.Optimiser + k.Samples + k.Validation
	// The prompts before those worked on are garbage for a while, too.
	k.Collector = collector.Garbage(live, LeastGarbage) + live*retainedPercent/100 + k.Cache
	k.Total = k.Process + k.Weights + live + k.Drawing + k.Collector
	if m.Backend.OwnMemory() {
		if p.Memory, err = Forecast(ctx, m, c, o); err != nil {
			return nil, err
		}
	}

	if p.mean == 0 {
		p.mean = o.Prompt
	}
	p.seconds = speed.seconds
	sample := workOf(m, p.mean, o, p.rows)
	seconds := speed.seconds(sample)
	p.Time.GFLOPS = 2 * sample.total() / seconds / 1e9
	p.Time.StepSeconds = seconds * float64(c.Batch)
	p.Time.TotalSeconds = p.Time.StepSeconds * float64(c.Steps)
	p.addH100(m, c, o, sample)
	if n, ok := m.Available(o.Available); ok {
		p.Available = n
	}
	return p, nil
}

// drawing is the memory that drawing curves takes besides what stays in the process
// from then on, as fonts do.
func (o PlanOptions) drawing(c *Config) (int64, error) {
	if o.Resident == nil {
		return 0, nil
	}
	draw := func() error { return drawCurves(io.Discard, c.Adapters, exampleSteps(c)) }
	if err := draw(); err != nil {
		return 0, err
	}
	debug.FreeOSMemory()
	before := o.Resident()
	err := draw()
	return max(0, o.Resident()-before), err
}

// CountAll is the sizes of adapters for a model, whose shapes will do. The
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

// modelParameters is the number of all weights.
func modelParameters(m *model.Model) int64 {
	n := m.Network.Parameters() + int64(m.Network.Embedding.Len()) + int64(m.Network.FinalNorm.Weight.Len())
	if !m.Config.TieEmbeddings {
		n += int64(m.Network.Head.Weight.Len())
	}
	return n
}
