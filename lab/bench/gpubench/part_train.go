package main

import (
	"context"
	"fmt"

	"glimpse/internal/bytesize"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/training"
)

// trainRow is a training step of one sample, without the optimiser's part of it, which
// comes once a batch.
type trainRow struct {
	Prompt   int     `json:"prompt"`
	Response int     `json:"response"`
	Prefill  float64 `json:"prefill_ms"`
	Step     float64 `json:"step_ms"`
	Floor    float64 `json:"floor"` // operations of the step over those of the prefill
	Peak     int64   `json:"peak_bytes"`
	Limit    int64   `json:"limit_bytes,omitempty"`
	Error    string  `json:"error,omitempty"`
	Missing  string  `json:"missing,omitempty"`
}

func init() {
	parts.Add("train", part{"the training step of a LookaheadKV adapter", func(ctx context.Context, b *bench, out *result) error {
		m, a, c, err := b.student(out)
		if err != nil {
			return err
		}
		for _, n := range b.sizes.train {
			row := trainRow{Prompt: n, Response: b.sizes.response}
			if b.late() {
				row.Missing = "no time left"
			} else if row, err = b.trainStep(ctx, m, a, c, n, b.repeats); err != nil {
				return err
			}
			out.Train = append(out.Train, row)
			out.Peak = max(out.Peak, row.Peak)
		}
		return nil
	}})
	parts.Add("train24", part{"a training step with as much memory as a small card has", func(ctx context.Context, b *bench, out *result) error {
		limit, err := bytesize.Parse(b.sizes.limit)
		if err != nil {
			return err
		}
		// What driver and libraries hold besides tensors counts, too: what is not free
		// before anything is made.
		use := b.meter.Memory()
		overhead := max(0, use.Total-use.Available-use.Held)
		if !out.Hardware {
			overhead = 0
		}
		defer b.meter.LimitMemory(limit - overhead)()
		row := trainRow{Prompt: b.sizes.limited, Response: b.sizes.response}
		m, a, c, err := b.student(out)
		if err == nil {
			row, err = b.trainStep(ctx, m, a, c, b.sizes.limited, 1)
		}
		if err != nil {
			row.Error = err.Error()
		}
		row.Limit = limit
		row.Peak += overhead
		out.Limited = &row
		return nil
	}})
}

func (b *bench) student(out *result) (m *model.Model, a model.RowsAdapter, c training.AdapterConfig, err error) {
	defer kernels.CatchDevice(&err)
	if m, err = b.model(out); err != nil {
		return nil, nil, c, err
	}
	a, name, err := adapter(m)
	if err != nil {
		return nil, nil, c, err
	}
	return m, a, training.AdapterConfig{Loss: name}, nil
}

// trainStep measures steps against the prefill in them.
func (b *bench) trainStep(ctx context.Context, m *model.Model, a model.RowsAdapter, c training.AdapterConfig, prompt, repeats int) (row trainRow, err error) {
	defer kernels.CatchDevice(&err)
	row = trainRow{Prompt: prompt, Response: b.sizes.response}
	b.meter.ResetPeak()
	t, err := training.Measure(ctx, m, a, c, tokens(m, prompt), tokens(m, b.sizes.response), repeats)
	if err != nil {
		return row, err
	}
	row.Prefill, row.Step, row.Floor = float64(t.Prefill)/1e6, float64(t.Step)/1e6, t.Floor
	row.Peak = b.meter.Memory().Peak
	fmt.Println(t)
	return row, nil
}
