package evaluation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/eviction"
	"glimpse/model"
)

// Timing are times of one cell, which no other run repeats to the bit.
type Timing struct {
	Model   string `json:"model"`
	Task    string `json:"task"`
	Policy  string `json:"policy"`
	Adapter string `json:"adapter,omitempty"`
	Budget  string `json:"budget,omitempty"`

	PromptTokens          int     `json:"prompt_tokens"`
	Repeats               int     `json:"repeats"`       // of which the medians are
	TTFTMillis            float64 `json:"ttft_ms"`       // time to first token, median
	TTFTOverhead          float64 `json:"ttft_overhead"` // time added to a plain prefill, as a share of it
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_s"`
	PeakCacheBytes        int64   `json:"peak_cache_bytes"` // most that keys and values held during the prefill

	// PlainMillis is the median of the prefills without the policy, Spread the difference of
	// the slowest and the fastest time to first token as a share of the median, KeptBytes
	// what was held after the prompt, PeakMemoryBytes the most of a device's memory that was
	// in use, 0 of a host.
	PlainMillis     float64 `json:"plain_ttft_ms"`
	Spread          float64 `json:"ttft_spread"`
	KeptBytes       int64   `json:"kept_bytes"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes,omitempty"`
}

// TimeOptions say how times are taken.
type TimeOptions struct {
	Repeats int // of which the median counts
	Tokens  int // that are decoded for the speed, the first one besides
}

// UsualTimes are what runs have beside their tasks: three repeats of each task, or, where
// there are many tasks over which a table's times are means, one of each after the first.
func UsualTimes(task, tasks int) TimeOptions {
	const few = 4
	o := TimeOptions{Repeats: 3, Tokens: 24}
	if task > 0 && tasks > few {
		o.Repeats = 1
	}
	return o
}

// Time measures every cell on one prompt, one after the other on an otherwise idle machine:
// prefills with and without the policy in turn, and the speed of decoding.
func Time(ctx context.Context, m *model.Model, task string, ids []int32, contenders []Contender, budgets []eviction.Budget, o TimeOptions) ([]Timing, error) {
	rt := eviction.NewRuntime(m)
	plain, err := eviction.New(full, 0, nil, nil)
	if err != nil {
		return nil, err
	}
	rt.MaxNew = min(o.Tokens, m.Config.MaxPositions-len(ids)+1)
	s, err := rt.Prefill(ctx, plain, ids, len(ids), nil) // it also warms up
	if err != nil {
		return nil, err
	}
	response, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: rt.MaxNew, IgnoreEnd: true})
	if err != nil {
		return nil, err
	}
	var out []Timing
	var plains []float64 // seconds of the prefills without a policy, in order
	var around [][2]int  // of each cell the first and the last of them that come right before it
	prefill := func() error {
		s, err := rt.Prefill(ctx, plain, ids, len(ids), nil)
		if err == nil {
			plains = append(plains, s.PrefillTime.Seconds())
		}
		return err
	}
	for i, c := range CellsOf(contenders, budgets) {
		t := Timing{Model: m.Name, Task: task, Policy: c.Title(), Adapter: c.Adapter, Budget: c.budgetName(), PromptTokens: len(ids), Repeats: o.Repeats}
		budget := len(ids)
		if c.Budget != (eviction.Budget{}) {
			budget = c.Budget.Of(len(ids))
		}
		var ttft, speed []float64
		if m.Backend.OwnMemory() {
			m.Backend.ResetPeak()
		}
		first, shares := len(plains), o.Repeats == 1 && i%2 == 1
		if shares { // one prefill stands for two cells of one repeat
			first--
		}
		for range o.Repeats {
			if !shares {
				if err := prefill(); err != nil {
					return nil, err
				}
			}
			s, err := rt.Prefill(ctx, c.Configured, ids, budget, response)
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", c.Title(), err)
			}
			ttft = append(ttft, s.PrefillTime.Seconds())
			t.KeptBytes = s.Bytes()
			start := time.Now()
			tokens, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: rt.MaxNew, IgnoreEnd: true})
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", c.Title(), err)
			}
			speed = append(speed, float64(len(tokens)-1)/time.Since(start).Seconds())
			t.PeakCacheBytes = max(t.PeakCacheBytes, s.PeakBytes)
		}
		around = append(around, [2]int{first, len(plains) - 1})
		t.PeakMemoryBytes = m.Backend.Memory().Peak
		t.Spread = (slices.Max(ttft) - slices.Min(ttft)) / middle(ttft)
		t.TTFTMillis, t.DecodeTokensPerSecond = 1000*middle(ttft), middle(speed)
		out = append(out, t)
	}
	if err := prefill(); err != nil {
		return nil, err
	}
	// A cell's prefills without the policy are its own and the one on either side: one that was
	// disturbed does not count.
	for i := range out {
		t := &out[i]
		near := slices.Clone(plains[max(0, around[i][0]-1) : around[i][1]+2])
		t.PlainMillis = 1000 * middle(near)
		t.TTFTOverhead = t.TTFTMillis/t.PlainMillis - 1
	}
	return out, nil
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
