package training

import (
	"context"
	"fmt"
	"time"

	"glimpse/internal/collector"
	"glimpse/kernels"
	"glimpse/model"
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
func (p *Plan) TooLong() bool { return p.Time.TotalSeconds > patience.Seconds() }

// Fits tells that the run has the memory it needs, as far as is known.
func (p *Plan) Fits() bool { return p.Available == 0 || p.Memory.Total <= p.Available }

// changes are what to change in a run that takes too long or does not fit, in the order of
// what they cost its result.
func (p *passPlan) changes(ctx context.Context, m *model.Model, o PlanOptions) (out []PlanChange, err error) {
	c, mean, rows := &p.config, p.mean, p.rows
	// took is the time of all passes where this one's prompts or rows are others.
	took := func(prompt int, o PlanOptions, rows []rowsOf) float64 {
		return p.seconds(workOf(m, prompt, o, rows)) * float64(c.Batch*c.Steps) * p.relative
	}
	run := p.Time.TotalSeconds
	add := func(seconds float64, memory int64, format string, args ...any) {
		out = append(out, PlanChange{fmt.Sprintf(format, args...), seconds, memory})
	}
	k := &p.Memory
	if !p.Fits() {
		if p.Workers > 1 {
			each := int64(p.Workers - 1)
			add(run, k.Total-(k.Cache+k.Activations)/int64(p.Workers)*each, "--workers 1")
		}
		if m.CacheDType().Numbers() != kernels.BF16 {
			add(run, k.Total-int64(p.Workers)*m.Config.CacheBytes(p.Prompt, m.CacheDType())/2, "--cache-dtype bf16")
		}
		if k.Samples > 0 {
			add(run, k.Total-k.Samples, "--cache-memory 0")
		}
		// What grows with the prompt.
		grows := k.Cache + k.Activations + k.Validation + k.Collector
		if left := p.Available - (k.Total - grows); left > 0 {
			shorter := int(float64(o.Prompt) * float64(left) / float64(grows) * 0.95)
			if shorter > 0 {
				factor := float64(shorter) / float64(o.Prompt)
				add(took(min(mean, shorter), o, rows), k.Total-int64(float64(grows)*(1-factor)), "prompts of at most %d tokens (--max-prompt of train generate)", shorter)
			}
		}
	}
	if p.TooLong() {
		each := run / float64(c.Steps)
		if steps := int(patience.Seconds() / each); steps > 0 {
			add(float64(steps)*each, k.Total, "--steps %d", steps)
		}
		if c.Batch > 1 {
			batch := max(1, c.Batch/8)
			add(run*float64(batch)/float64(c.Batch), k.Total, "--batch %d", batch)
		}
		if o.Prompt > 2048 {
			short := o
			short.Prompt = o.Prompt / 8
			add(took(max(1, mean/8), short, rows), k.Total-(k.Cache+k.Activations)*7/8, "prompts of at most %d tokens (--max-prompt of train generate)", short.Prompt)
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	for i, a := range c.Adapters {
		if a.Rows > 8 && p.Passes == 1 { // the grid of a sweep decides on rows
			fewer := append([]rowsOf(nil), rows...)
			fewer[i].rows /= 4
			memory := k.Total
			if !p.Fits() && !m.Backend.OwnMemory() {
				less := *c
				less.Adapters = append([]AdapterConfig(nil), c.Adapters...)
				less.Adapters[i].Rows /= 4
				scratch, err := countScratch(ctx, m, less, o)
				if err != nil {
					return nil, err
				}
				memory -= (k.Activations - int64(p.Workers)*scratch) * (100 + collector.Percent + retainedPercent) / 100
			}
			add(took(mean, o, fewer), memory, "--set adapters.%d.rows=%d", i, a.Rows/4)
			break
		}
	}
	if !m.Backend.OwnMemory() && p.H100.Fits {
		add(p.H100.TotalSeconds, p.H100.Memory, "--device cuda:0, were it an H100")
	}
	return out, nil
}
