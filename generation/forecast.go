package generation

import (
	"context"
	"fmt"

	"glimpse/eviction"
	"glimpse/model"
)

// CheckMemory is an error that wraps model.ErrMemory where not even one response at a time in
// every group of Pairs fits what there is, for so many prompts of so many tokens; 0: any
// number. There is an accelerator's memory, else what host tells, where weights are mapped and
// not counted. It is for [model.Options.BeforeWeights]: m may have shapes alone.
func CheckMemory(ctx context.Context, m *model.Model, host func() int64, tokens, prompts int, opt Options) error {
	tokens = min(tokens, m.Config.MaxPositions)
	available, ok := m.Available(host)
	if !ok || tokens < 1 || opt.resolveDefaults() != nil {
		return nil
	}
	full, err := eviction.New("full", 0, nil, nil)
	if err != nil {
		return err
	}
	counted, _ := m.Counted()
	groups, size := opt.groups(counted)
	of := eviction.FootprintOptions{Tokens: tokens, Budget: tokens, MaxNew: opt.MaxNew, Rows: size, Enough: max(0, available-m.HeldWeights()) / int64(groups)}
	need, err := eviction.NewFootprint(ctx, m, full, of)
	if err != nil {
		return fmt.Errorf("forecast of memory: %w", err)
	}
	n := int64(groups)
	f := m.NewForecast(counted, n*need.Need(), []model.MemoryPart{
		{Name: fmt.Sprintf("a prompt of %d tokens and up to %d of its response", tokens, opt.MaxNew), Bytes: n * need.Own()},
		{Name: "activations", Bytes: n * (need.Passes + need.Steps)},
	}, "lower --max-prompt (--tokens of synthetic tasks) or --max-new", "use a device with more memory")
	f.Available = available
	f.FitPrompt(tokens, f.Parts[0].Bytes)
	return f.Check()
}
