package lineup

import (
	"context"
	"fmt"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/kernels"
	"glimpse/model"
)

// CheckMemory is an error where none of a run's policies can fit what there is, before
// the weights are loaded. Which adapters and draft models come with them is not known
// yet: policies are taken with those of the usual size.
func (s *Options) CheckMemory(ctx context.Context, m *model.Model, policies []string, o eviction.FootprintOptions) error {
	available, ok := m.Available(cli.AvailableMemory)
	if !ok || m.RoughMemory(o.Tokens+o.MaxNew) <= available || o.Tokens < 1 || o.Tokens > m.Config.MaxPositions {
		return nil
	}
	worst, err := s.Memory(ctx, m, policies, o)
	if err != nil {
		return err
	}
	worst.Available = available
	worst.FitPrompt(o.Tokens, worst.Parts[0].Bytes)
	return worst.Check()
}

// Memory is the forecast of the policy that needs most.
func (s *Options) Memory(ctx context.Context, m *model.Model, policies []string, o eviction.FootprintOptions) (*model.Forecast, error) {
	overrides, err := eviction.ParseOverrides(s.Set)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, name := range policies {
		if name = strings.TrimSpace(name); name == "all" {
			names = append(names, eviction.Policies.Names()...)
		} else {
			names = append(names, name)
		}
	}
	var worst *model.Forecast
	for _, name := range names {
		f, err := forecast(ctx, m, name, s.Seed, overrides, o)
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
func forecast(ctx context.Context, m *model.Model, policy string, seed uint64, overrides eviction.Overrides, o eviction.FootprintOptions) (*model.Forecast, error) {
	counted, counter := m.Counted()
	weights := counter.Live()
	r, err := eviction.CountedResources(counted, policy, overrides)
	var named *eviction.Configured
	if err == nil {
		named, err = eviction.NewWith(policy, seed, overrides, r)
	}
	if err != nil {
		if named, err = eviction.New("full", seed, nil, nil); err != nil {
			return nil, err
		}
	}
	rt, held := eviction.NewRuntime(counted), counter.Live() // with the adapter
	need, err := rt.Footprint(ctx, named, o)
	if err != nil {
		return nil, fmt.Errorf("forecast of memory: policy %s: %w", policy, err)
	}
	f := &model.Forecast{
		Device: m.DeviceName(),
		Need:   held + need.Peak,
		Parts: []model.MemoryPart{
			{Name: "weights", Bytes: weights}, {Name: fmt.Sprintf("keys and values of %d tokens", o.Tokens), Bytes: need.Cache},
			{Name: "activations", Bytes: need.Passes}, {Name: "temporary", Bytes: counter.Temporary()},
		},
		Advice: []string{"lower --budget with a policy that evicts layer by layer, such as snapkv or lookaheadkv", "use a device with more memory"},
	}
	if counted.CacheDType() != kernels.BF16 {
		f.Advice = append([]string{"take --cache-dtype bf16"}, f.Advice...)
	}
	if m.DeviceName() == "cpu" { // where the weights are mapped, and read again if need be
		f.Need -= weights
		f.Parts[0].Bytes = 0
	}
	return f, nil
}
