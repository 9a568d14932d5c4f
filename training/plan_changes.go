package training

import (
	"fmt"
	"slices"
	"time"

	"glimpse/kernels"
)

// patience is how long a run may take before a plan says what would shorten it.
const patience = 24 * time.Hour

// PlanChange is a change of the configuration, and what the run then takes.
type PlanChange struct {
	Change       string  `json:"change"` // --steps 100
	TotalSeconds float64 `json:"total_seconds"`
	Memory       int64   `json:"memory_bytes"`
}

// TooLong tells that the run takes longer than people wait.
func (p *RunPlan) TooLong() bool { return p.Time.TotalSeconds > patience.Seconds() }

// Fits tells that the run has the memory it needs, as far as is known.
func (p *RunPlan) Fits() bool { return p.Available == 0 || p.Memory.Total <= p.Available }

// changes are what to change in a run that takes too long or does not fit, in the order of
// what they cost its result.
func (p *planner) changes(plan *RunPlan, c Config, o PlanOptions) (out []PlanChange, err error) {
	add := func(c Config, o PlanOptions, cacheDType, format string, args ...any) {
		if err != nil {
			return
		}
		var changed *RunPlan
		if changed, err = p.plan(c, o, cacheDType, false); err == nil {
			out = append(out, PlanChange{fmt.Sprintf(format, args...), changed.Time.TotalSeconds * p.relative, changed.Memory.Total})
		}
	}
	shorten := func(prompt int) {
		short := o
		short.Prompt, short.MeanPrompt = prompt, min(o.MeanPrompt, prompt)
		add(c, short, "", "prompts of at most %d tokens (--max-prompt of train generate)", prompt)
	}
	k := &plan.Memory
	if !plan.Fits() {
		if plan.Workers > 1 {
			one := c
			one.Workers = 1
			add(one, o, "", "--workers 1")
		}
		if p.m.CacheDType().Numbers() != kernels.BF16 {
			add(c, o, "bf16", "--cache-dtype bf16")
		}
		if k.Samples > 0 {
			none := c
			none.CacheMemory = 0
			add(none, o, "", "--cache-memory 0")
		}
		// What grows with the prompt.
		grows := k.Cache + k.Activations + k.Validation + k.Collector
		if left := plan.Available - (k.Total - grows); left > 0 {
			if shorter := int(float64(o.Prompt) * float64(left) / float64(grows) * 0.95); shorter > 0 {
				shorten(shorter)
			}
		}
	}
	if plan.TooLong() {
		if steps := int(patience.Seconds() / plan.Time.TotalSeconds * float64(c.Steps)); steps > 0 {
			fewer := c
			fewer.Steps = steps
			add(fewer, o, "", "--steps %d", steps)
		}
		if c.Batch > 1 {
			fewer := c
			fewer.Batch = max(1, c.Batch/8)
			add(fewer, o, "", "--batch %d", fewer.Batch)
		}
		if o.Prompt > 2048 {
			shorten(o.Prompt / 8)
		}
	}
	if len(out) == 0 || err != nil {
		return nil, err
	}
	for i, a := range c.Adapters {
		if a.Rows > 8 && plan.Passes == 1 { // the grid of a sweep decides on rows
			fewer := c
			fewer.Adapters = slices.Clone(c.Adapters)
			fewer.Adapters[i].Rows /= 4
			add(fewer, o, "", "--set adapters.%d.rows=%d", i, a.Rows/4)
			break
		}
	}
	if !p.m.Backend.OwnMemory() && plan.H100.Fits {
		out = append(out, PlanChange{"--device cuda:0, were it an H100", plan.H100.TotalSeconds, plan.H100.Memory})
	}
	return out, err
}
