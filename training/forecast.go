package training

import (
	"context"
	"fmt"

	"glimpse/datasets"
	"glimpse/kernels"
	"glimpse/model"
)

// Forecast is the device memory that a run of an accelerator will take: that of a step
// with the longest sample, whose allocations are made on a model that only counts them.
// m may have shapes alone. Process and Collector are 0: they are the host's.
func Forecast(ctx context.Context, m *model.Model, c Config, o PlanOptions) (k Memory, err error) {
	workers := int64(c.concurrency(m))
	samples := int64(0) // whose gradients wait for the ranks before
	if o.Ranks > 1 {
		samples = int64((c.Batch + o.Ranks - 1) / o.Ranks)
	}
	counted, counter := m.Counted()
	k.Weights = counter.Live()
	// The second step has what the first one leaves behind for those that follow.
	c.Steps, c.Batch, c.Workers, c.Warmup, c.CacheDisk = 2, 1, 1, 0, 0
	k.Samples, c.CacheMemory = c.CacheMemory, 0
	c.MaxResponse = max(1, o.Response)
	pair := datasets.Pair{ID: "forecast", PromptIDs: make([]int32, o.Prompt), ResponseIDs: make([]int32, c.MaxResponse)}
	t, err := New(counted, c, &Pairs{Pairs: []datasets.Pair{pair}, Name: "forecast"})
	if err != nil {
		return k, fmt.Errorf("forecast: %w", err)
	}
	defer t.Close()
	base, kept := counter.Live(), int64(0)
	for _, l := range t.learners {
		for i, p := range l.params {
			n := int64(p.Tensor.Bytes())
			k.Adapters += n
			k.Optimiser += (3 + samples) * n
			kept += samples * n
			if l.best != nil {
				k.Adapters += int64(l.best[i].Bytes())
			}
		}
	}
	if err := t.Run(ctx, nil); err != nil {
		return k, fmt.Errorf("forecast: %w", err)
	}
	each := counter.Peak() - base
	cache := m.Config.CacheBytes(o.Prompt, counted.CacheDType()) + 4*int64(o.Prompt*m.Config.Layers*m.Config.Heads)
	if o.Generated {
		each += int64(c.MaxResponse) * m.Config.CacheBytesPerToken(counted.CacheDType())
	}
	k.Cache = workers * min(cache, each)
	k.Activations = workers*each - k.Cache
	k.Total = base + kept + workers*each + k.Samples
	return k, nil
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
