package engine

import (
	"context"
	"fmt"

	"glimpse/eviction"
	"glimpse/internal/hostmemory"
	"glimpse/model"
)

// CheckMemory is an error where one of the policies cannot fit what there is, before
// the weights are loaded. Which adapters and draft models come with them is not known
// yet: policies are taken with ones of the usual size.
func (o *Options) CheckMemory(ctx context.Context, m *model.Model, run eviction.FootprintOptions) error {
	available, ok := m.Available(hostmemory.Available)
	if !ok || run.Tokens < 1 || run.Tokens > m.Config.MaxPositions {
		return nil
	}
	run.Enough = max(0, available-m.HeldWeights())
	worst, err := o.Memory(ctx, m, run)
	if err != nil {
		return err
	}
	worst.Available = available
	worst.FitPrompt(run.Tokens, worst.Parts[0].Bytes)
	return worst.Check()
}

// Memory is the forecast of the policy that needs most.
func (o *Options) Memory(ctx context.Context, m *model.Model, run eviction.FootprintOptions) (worst *model.Forecast, err error) {
	overrides, err := eviction.ParseOverrides(o.Set)
	if err != nil {
		return nil, err
	}
	specs, err := parsePolicies(o.Policies)
	if err != nil {
		return nil, err
	}
	for _, spec := range specs {
		f, err := o.forecast(ctx, m, spec.name, merged(overrides, spec.set), run)
		if err != nil {
			return nil, err
		}
		if worst == nil || f.Need > worst.Need {
			worst = f
		}
	}
	return worst, nil
}

// forecast counts the memory of one policy. A policy that cannot be made without what
// the command line names is taken for one that keeps everything.
func (o *Options) forecast(ctx context.Context, m *model.Model, policy string, overrides eviction.Overrides, run eviction.FootprintOptions) (*model.Forecast, error) {
	counted, counter := m.Counted()
	weights := counter.Live()
	r, err := eviction.CountedResources(counted, policy, overrides)
	var named *eviction.Configured
	if err == nil {
		// Learned budgets of heads are of weights, which are not known yet: equal ones keep as much.
		named, err = o.configure(policy, overrides, r, func() (*eviction.HeadBudgets, error) { return eviction.EqualHeads(m), nil })
	}
	if err != nil {
		if named, err = eviction.New("full", o.Seed, nil, nil); err != nil {
			return nil, err
		}
	}
	adapter := counter.Live() - weights
	if run.Enough > 0 {
		run.Enough = max(0, run.Enough-adapter)
	}
	need, err := eviction.NewFootprint(ctx, m, named, run)
	if err != nil {
		return nil, fmt.Errorf("forecast of memory: policy %s: %w", policy, err)
	}
	return m.NewForecast(counted, adapter+need.Peak, []model.MemoryPart{
		{Name: fmt.Sprintf("keys and values of %d tokens", run.Tokens), Bytes: need.Cache},
		{Name: "activations", Bytes: need.Passes}, {Name: "temporary", Bytes: need.Temporary},
	}, "lower --budget with a policy that evicts layer by layer, such as snapkv or lookaheadkv", "use a device with more memory"), nil
}
