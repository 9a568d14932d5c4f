package training

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime/debug"

	"glimpse/engine/costmodel"
	"glimpse/internal/collector"
	"glimpse/kernels"
	"glimpse/kernels/memcount"
	"glimpse/model"
)

// RunPlan is what a run will take.
type RunPlan struct {
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

// defaultProcess is about what program, runtime and graphs take, for systems that
// do not tell.
const defaultProcess = 48 << 20

// resident is what the process holds.
func (o PlanOptions) resident() int64 {
	if o.Resident == nil {
		return defaultProcess
	}
	debug.FreeOSMemory()
	return cmp.Or(max(0, o.Resident()), defaultProcess)
}

// PlanH100 is what a run would take on one H100 SXM, computed from its data sheet.
type PlanH100 struct {
	StepSeconds  float64 `json:"step_seconds"`
	TotalSeconds float64 `json:"total_seconds"`
	Memory       int64   `json:"memory_bytes"` // with caches in bf16, one sample at a time
	Fits         bool    `json:"fits"`         // into its 80 GB
}

// The H100 of plans is an SXM, by its name in costmodel.Chips and with its multiprocessors.
const (
	h100Name       = "h100-sxm"
	h100Processors = 132
)

// NewPlan estimates memory and time of a run for a model, whose shapes will do, in a
// second and in little memory whatever its size: memory and work are counted on a model without
// numbers, and times are those of the chip, which is measured. A sweep has a configuration per pass, which differ in nothing but
// their adapters: times add up, memory is that of the pass that needs most, and passes whose adapters are of
// the same shapes are counted once.
func NewPlan(ctx context.Context, m *model.Model, passes []Config, o PlanOptions) (*RunPlan, error) {
	h100, err := costmodel.Chips.Lookup(h100Name)
	if err != nil {
		return nil, err
	}
	p := &planner{ctx: ctx, m: m, here: costmodel.ChipOf(m), h100: h100, counts: make(map[string]stepCount)}
	var (
		plan       *RunPlan // of the pass that needs most memory
		most       Config
		here, over float64
		adapters   []PlanAdapter
	)
	for _, c := range passes {
		if err := c.Validate(m); err != nil {
			return nil, err
		}
		one, err := p.plan(c, o, "", true)
		if err != nil {
			return nil, err
		}
		if one.H100, err = p.onH100(c, o); err != nil {
			return nil, err
		}
		adapters = append(adapters, CountAll(m, c.Adapters)...)
		here, over = here+one.Time.TotalSeconds, over+one.H100.TotalSeconds
		if plan == nil || one.Memory.Total > plan.Memory.Total {
			plan, most = one, c
		}
	}
	p.relative = here / plan.Time.TotalSeconds
	plan.Passes, plan.Adapters = len(passes), adapters
	plan.Time.TotalSeconds, plan.H100.TotalSeconds = here, over
	plan.Changes, err = p.changes(plan, most, o)
	return plan, err
}

// planner plans a model's runs.
type planner struct {
	ctx        context.Context
	m          *model.Model
	here, h100 costmodel.Chip
	relative   float64              // time of all passes in times of the one that is changed
	counts     map[string]stepCount // by what they depend on
}

// count is a run's count, on the model's device or on an H100.
func (p *planner) count(c Config, o PlanOptions, cacheDType string, onH100, peaks bool) (stepCount, error) {
	on := func() *memcount.Counter { return memcount.New(p.m.Backend) }
	if onH100 {
		cacheDType, on = "bf16", func() *memcount.Counter { return memcount.NewCUDA(h100Processors, p.h100.Memory) }
	}
	key := fmt.Sprintln(o.Prompt, o.Response, o.Generated, c.Validation.Every > 0, cacheDType, onH100)
	for _, a := range c.Adapters { // equal for adapters that take equal time and memory
		key += fmt.Sprintln(a.Kind, a.Rows, a.Rank, a.Modules, a.Label)
	}
	if n, ok := p.counts[key]; ok && (n.exact || !peaks) {
		return n, nil
	}
	if onH100 || !peaks || p.m.Backend.OwnMemory() {
		o.Resident = nil
	}
	n, err := countSteps(p.ctx, p.m, on, cacheDType, c, o, peaks)
	n.exact, p.counts[key] = peaks, n
	return n, err
}

// seconds is the time of one sample of mean length on a chip, and its floating-point operations.
func (p *planner) seconds(c Config, o PlanOptions, longest stepCount, cacheDType string, onH100 bool) (seconds, flops float64, err error) {
	if mean := o.MeanPrompt; mean > 0 && mean != o.Prompt {
		o.Prompt = mean
		if longest, err = p.count(c, o, cacheDType, onH100, false); err != nil {
			return 0, 0, err
		}
	}
	chip := p.here
	if onH100 {
		chip = p.h100
	}
	cost := chip.Cost(longest.work)
	return cost.Seconds, cost.FLOPs, nil
}

// plan is the plan of a valid configuration, without changes. Where peaks are not looked for, and not known, its memory is close.
func (p *planner) plan(c Config, o PlanOptions, cacheDType string, peaks bool) (*RunPlan, error) {
	m := p.m
	if o.Prompt+o.Response > m.Config.MaxPositions {
		return nil, fmt.Errorf("train plan: %d prompt and %d response tokens, want at most %d together: %w", o.Prompt, o.Response, m.Config.MaxPositions, model.ErrContext)
	}
	out := &RunPlan{Model: m.Name, Prompt: o.Prompt, Response: o.Response, Workers: c.concurrency(m)}
	n, err := p.count(c, o, cacheDType, false, peaks)
	if err != nil {
		return nil, err
	}
	dtype := m.CacheDType()
	if cacheDType != "" {
		dtype = kernels.BF16
	}
	out.Memory = n.memory(m, c, o, dtype)
	if !m.Backend.OwnMemory() {
		if err := out.Memory.addHost(m, c, o, n.process); err != nil {
			return nil, err
		}
	}
	sample, flops, err := p.seconds(c, o, n, cacheDType, false)
	if err != nil {
		return nil, err
	}
	out.Time = PlanTime{StepSeconds: sample * float64(c.Batch), TotalSeconds: sample * float64(c.Batch*c.Steps), GFLOPS: flops / sample / 1e9}
	if available, ok := m.Available(o.Available); ok {
		out.Available = available
	}
	return out, nil
}

// onH100 is what a run would take on an H100.
func (p *planner) onH100(c Config, o PlanOptions) (h PlanH100, err error) {
	n, err := p.count(c, o, "", true, true)
	if err != nil {
		return h, err
	}
	sample, _, err := p.seconds(c, o, n, "", true)
	h = PlanH100{StepSeconds: sample * float64(c.Batch), TotalSeconds: sample * float64(c.Batch*c.Steps), Memory: n.weights + n.base + n.each + c.CacheMemory}
	h.Fits = h.Memory <= p.h100.Memory
	return h, err
}

// addHost adds to the memory that is counted what the host needs besides.
func (k *Memory) addHost(m *model.Model, c Config, o PlanOptions, process int64) (err error) {
	if v := c.Validation; v.Samples > 0 {
		// Scores of all policies at all budgets, SnapKV's and the oracle's among them.
		k.Validation = int64(c.concurrency(m)) * 4 * int64(o.Prompt*m.Config.Layers*m.Config.KVHeads*len(v.Budgets)*(len(c.Adapters)+2))
	}
	if k.Drawing, err = o.drawing(&c); err != nil {
		return err
	}
	k.Process = cmp.Or(process, defaultProcess)
	live := k.Total - k.Weights + k.Validation
	// The prompts before those worked on are garbage for a while, too.
	k.Collector = collector.Garbage(live, LeastGarbage) + live*retainedPercent/100 + k.Cache
	k.Total = k.Process + k.Weights + live + k.Drawing + k.Collector
	return nil
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
		kind, err := model.RowsKinds.Lookup(a.Kind)
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
