package training

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"glimpse/datasets"
	"glimpse/internal/collector"
	"glimpse/kernels"
	"glimpse/kernels/memcount"
	"glimpse/model"
)

// stepCount is what a run takes, counted by two steps of one sample on a model that computes nothing. Bytes.
type stepCount struct {
	weights  int64
	adapters int64         // parameters, and the best ones so far
	base     int64         // beside the weights before the first step: adapters, gradients and moments
	each     int64         // most that one worker takes besides, cache and activations
	sure     int64         // a peak that is known to be reached
	process  int64         // that the process holds; 0: not asked for
	exact    bool          // peaks were looked for
	work     memcount.Work // of one sample
}

// The layers that are counted of a model whose layers are alike: memory and work are linear in their
// number from the second one on; the last one has less.
const countedLayers, fewestLayers = 8, 2

// countSteps counts a run for the longest sample as on the model's device, or on another one. m may have shapes alone.
// Where it is not to count peaks there is work and no memory.
func countSteps(ctx context.Context, m *model.Model, on func() *memcount.Counter, cacheDType string, c Config, o PlanOptions, peaks bool) (stepCount, error) {
	// The second step has what the first one leaves behind for those that follow.
	c.Steps, c.Batch, c.Workers, c.Warmup, c.CacheDisk, c.CacheMemory = 2, 1, 1, 0, 0, 0
	c.MaxResponse = max(1, o.Response)
	c.Adapters = slices.Clone(c.Adapters)
	for i := range c.Adapters {
		c.Adapters[i].InitToken = -1 // rows start from noise, as no token of a model without numbers means anything
	}
	pair := datasets.Pair{ID: "forecast", PromptIDs: make([]int32, o.Prompt), ResponseIDs: make([]int32, c.MaxResponse)}
	var source Source = &Pairs{Pairs: []datasets.Pair{pair}, Name: "forecast"}
	if o.Generated {
		source = generated{source}
	}
	defer collector.Seldom()() // what is allocated here is small: collecting it often would take longest of all
	few, part := m.Config.Layers, int64(memcount.FinestPart)
	if few > countedLayers && layersAlike(m) {
		few, part = countedLayers, 500 // an error of what a layer adds counts as often as there are more
	}
	count := func(layers int) (n stepCount, err error) {
		for _, seek := range []bool{false, true} { // from what the first run holds at its end, which takes no collections
			if seek && !peaks {
				break
			}
			counter := on()
			counted := m.CountedOn(counter)
			if cacheDType != "" {
				if err := counted.SetCacheDType(cacheDType); err != nil {
					return n, err
				}
			}
			weights := counter.SeekBeside()
			counter.SeekFrom(n.sure, part)
			counter.SeekPeaks(seek)
			if n, err = countLayers(ctx, counted, layers, weights, c, source, o); err != nil {
				return n, err
			}
		}
		return n, nil
	}
	n, err := count(few)
	if more := int64(m.Config.Layers - few); err == nil && more > 0 {
		var fewer stepCount
		if fewer, err = count(fewestLayers); err == nil {
			const apart = countedLayers - fewestLayers
			n.adapters += more * (n.adapters - fewer.adapters) / apart
			n.base += more * (n.base - fewer.base) / apart
			n.each += more * (n.each - fewer.each) / apart
			fewer.work.Add(n.work, -1)
			n.work.Add(fewer.work, -float64(more)/apart)
		}
	}
	if err != nil {
		return n, fmt.Errorf("forecast: %w", err)
	}
	return n, nil
}

// countLayers counts the first layers of a model that computes nothing, whose weights take so many bytes.
func countLayers(ctx context.Context, counted *model.Model, layers int, weights int64, c Config, source Source, o PlanOptions) (n stepCount, err error) {
	of, counter := counted, counted.Counter()
	if layers < counted.Config.Layers {
		if of, err = counted.Cut(layers); err != nil {
			return n, err
		}
	}
	t, err := New(of, c, source)
	if err != nil {
		return n, err
	}
	defer t.Close()
	n.weights, n.base = weights, counter.Live()-weights
	for _, l := range t.learners {
		for i, p := range l.params {
			n.adapters += int64(p.Tensor.Bytes())
			if l.best != nil {
				n.adapters += int64(l.best[i].Bytes())
			}
		}
	}
	err = t.Run(ctx, func(StepResult) error {
		if n.work == nil { // the first
			n.work = counter.CountWork()
		}
		return nil
	})
	// Where peaks are not looked for, what stays and the prompt's cache are most of one.
	n.sure = counter.Live() + of.Config.CacheBytes(o.Prompt, counted.CacheDType()) // beside which there was a prompt's cache
	n.each = max(n.sure, counter.Peak()) - n.base - n.weights
	if o.Resident != nil {
		n.process = o.resident()
	}
	runtime.KeepAlive(counted)
	return n, err
}

// generated hides the responses of pairs, so that the model generates them.
type generated struct{ Source }

func (g generated) Repeats() bool { return false }

func (g generated) At(i int) (Sample, error) {
	s, err := g.Source.At(i)
	s.Response = nil
	return s, err
}

// layersAlike tells that all layers attend in the same way, and have weights of the same shapes.
func layersAlike(m *model.Model) bool {
	first := m.Network.Layers[0]
	return m.Config.Mixers == nil && !slices.ContainsFunc(m.Network.Layers, func(l model.Layer) bool {
		return (l.Experts != nil) != (first.Experts != nil) || slices.ContainsFunc(model.Modules, func(name model.Module) bool {
			a, b := l.Linear(name), first.Linear(name)
			return (a != nil) != (b != nil) || a != nil && !slices.Equal(a.Weight.Shape, b.Weight.Shape)
		})
	})
}

// memory is what a run takes by purpose, of a count with its longest sample. Of the host's own parts, as of the process,
// there is none.
func (n *stepCount) memory(m *model.Model, c Config, o PlanOptions, dtype kernels.DType) (k Memory) {
	workers := int64(c.concurrency(m))
	k.Weights, k.Adapters, k.Samples = n.weights, n.adapters, c.CacheMemory
	if !m.Backend.OwnMemory() {
		k.Weights = m.WeightBytes()
	}
	k.Optimiser = n.base - n.adapters
	if o.Ranks > 1 { // of the ranks before, the gradients of all samples wait
		parameters := int64(0)
		for _, a := range CountAll(m, c.Adapters) {
			parameters += a.Parameters * int64(m.Backend.Compute().Size())
		}
		k.Optimiser += int64((c.Batch+o.Ranks-1)/o.Ranks) * parameters
	}
	cache := m.Config.CacheBytes(o.Prompt, dtype) + 4*int64(o.Prompt*m.Config.Layers*m.Config.Heads)
	k.Cache = workers * min(cache, n.each)
	k.Activations = workers*n.each - k.Cache
	k.Total = k.Weights + k.Adapters + k.Optimiser + k.Cache + k.Activations + k.Samples
	return k
}

// Forecast is the device memory that a run of an accelerator will take: that of a step
// with the longest sample, whose allocations are made on a model that only counts them.
// m may have shapes alone. Process and Collector are 0: they are the host's.
func Forecast(ctx context.Context, m *model.Model, c Config, o PlanOptions) (Memory, error) {
	o.Resident = nil
	n, err := countSteps(ctx, m, func() *memcount.Counter { return memcount.New(m.Backend) }, "", c, o, true)
	if err != nil {
		return Memory{}, err
	}
	return n.memory(m, c, o, m.CacheDType()), nil
}

// CheckMemory is an error that wraps model.ErrMemory where a run on an accelerator cannot
// fit. The model is loaded: its weights are not in what is still available.
func CheckMemory(ctx context.Context, m *model.Model, c Config, o PlanOptions) error {
	if !m.Backend.OwnMemory() {
		return nil
	}
	available, ok := m.Available(nil)
	if !ok {
		return nil
	}
	k, err := Forecast(ctx, m, c, o)
	if err != nil {
		return err
	}
	f := model.Forecast{
		Device: m.DeviceName(), Need: k.Total, Available: available + k.Weights,
		Parts: []model.MemoryPart{
			{Name: "weights", Bytes: k.Weights}, {Name: fmt.Sprintf("keys, values and targets of %d tokens", o.Prompt), Bytes: k.Cache},
			{Name: "activations", Bytes: k.Activations}, {Name: "adapters", Bytes: k.Adapters}, {Name: "gradients and moments", Bytes: k.Optimiser},
		},
		Advice: []string{"lower --workers, --cache-memory, the adapters' rows or their number"},
	}
	if m.CacheDType().Numbers() != kernels.BF16 {
		f.Advice = append(f.Advice, "take --cache-dtype bf16")
	}
	if k.Samples > 0 {
		f.Parts = append(f.Parts, model.MemoryPart{Name: "kept samples", Bytes: k.Samples})
	}
	f.FitPrompt(o.Prompt, k.Weights+k.Adapters+k.Optimiser+k.Samples)
	return f.Check()
}

// Longest is the longest prompt and response of the pairs.
func (p *Pairs) Longest() (prompt, response int) {
	for _, pair := range p.Pairs {
		prompt, response = max(prompt, len(pair.PromptIDs)), max(response, len(pair.ResponseIDs))
	}
	return prompt, response
}
