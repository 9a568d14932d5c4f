package main

import (
	"context"
	"fmt"
	"time"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/training"
)

// ttftRow is the time to the first token under a policy.
type ttftRow struct {
	Tokens  int     `json:"tokens"`
	Policy  string  `json:"policy"`
	Budget  int     `json:"budget"`
	Millis  float64 `json:"ms"`
	Over    float64 `json:"overhead"` // of plain prefill: median of the ratios within a round, less 1
	Missing string  `json:"missing,omitempty"`
}

// adapter is a LookaheadKV adapter as the paper has it, with random numbers.
func adapter(m *model.Model) (model.RowsAdapter, string, error) {
	kind, err := model.RowsKinds.Lookup("lookaheadkv")
	if err != nil {
		return nil, "", err
	}
	p, err := training.Presets.Lookup("lookaheadkv")
	if err != nil {
		return nil, "", err
	}
	c := p.Adapter.AdapterConfig
	c.InitToken, c.InitNoise = -1, 1
	a, err := kind.New(m, c)
	return a, kind.Loss, err
}

func init() {
	parts.Add("ttft", part{"time to the first token under policies", func(ctx context.Context, b *bench, out *result) error {
		m, err := b.model(out)
		if err != nil {
			return err
		}
		a, _, err := adapter(m)
		if err != nil {
			return err
		}
		overrides := eviction.Overrides{"laq": {"lookahead": float64(b.sizes.draft)}}
		var policies []*eviction.Configured
		for _, name := range []string{"full", "lookaheadkv", "snapkv", "laq"} {
			var with model.RowsAdapter
			if name == "lookaheadkv" {
				with = a
			}
			p, err := eviction.New(name, 1, overrides, with)
			if err != nil {
				return err
			}
			policies = append(policies, p)
		}
		rt := eviction.NewRuntime(m)
		for _, n := range b.sizes.ttft {
			if b.late() {
				out.TTFT = append(out.TTFT, ttftRow{Tokens: n, Budget: b.sizes.ttftBudget, Missing: "no time left"})
				continue
			}
			times, ratios := make([][]float64, len(policies)), make([][]float64, len(policies))
			ids := tokens(m, n)
			// In turn within a round, so that what drifts drifts for all.
			for round := range b.repeats + 1 {
				begun := time.Now()
				now := make([]float64, len(policies))
				for i, p := range policies {
					b.settle()
					d, err := b.meter.Time(func() error {
						_, err := rt.Prefill(ctx, p, eviction.Prompt{Tokens: ids, Budget: b.sizes.ttftBudget})
						return err
					})
					if err != nil {
						return fmt.Errorf("%s: %w", p.Name, err)
					}
					now[i] = float64(d) / float64(time.Millisecond)
				}
				// Another round would end too late: then this one counts, warm or not.
				late := time.Since(b.start)+time.Since(begun) > b.limit
				for i := range now {
					if round > 0 || late && len(times[i]) == 0 {
						times[i], ratios[i] = append(times[i], now[i]), append(ratios[i], now[i]/now[0])
					}
				}
				if late {
					break
				}
			}
			for i, p := range policies {
				out.TTFT = append(out.TTFT, ttftRow{Tokens: n, Policy: p.Name, Budget: b.sizes.ttftBudget, Millis: middle(times[i]), Over: middle(ratios[i]) - 1})
				fmt.Printf("%d tokens, %s: %.1f ms\n", n, p.Name, middle(times[i]))
			}
		}
		return nil
	}})
}
