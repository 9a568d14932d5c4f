package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"

	"glimpse/internal/bytesize"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// batchRow is the decoding of as many sequences as fit (table 5 of D2O, arXiv:2406.13035).
type batchRow struct {
	Prompt    int     `json:"prompt"`
	Generated int     `json:"generated"`
	Budget    int     `json:"budget"` // entries per head; 0: all
	Batch     int     `json:"batch"`  // the largest power of two that fits
	Capped    bool    `json:"capped"` // larger ones were not tried
	Rate      float64 `json:"tokens_s"`
	Limit     int64   `json:"limit_bytes"`
	Missing   string  `json:"missing,omitempty"`
}

func init() {
	parts.Add("batch", part{"largest batch and throughput at a fixed memory", func(ctx context.Context, b *bench, out *result) error {
		if b.memory == "" {
			b.memory = b.sizes.memory
		}
		limit, err := bytesize.Parse(b.memory)
		if err != nil {
			return fmt.Errorf("--memory: %w", err)
		}
		defer b.meter.LimitMemory(limit)()
		m, err := b.model(out)
		if err != nil {
			return err
		}
		for _, lengths := range b.sizes.batch {
			for _, budget := range []int{0, lengths[0]} {
				row := batchRow{Prompt: lengths[0], Generated: lengths[1], Budget: budget, Limit: limit}
				if b.late() {
					row.Missing = "no time left"
				} else if err := b.largest(ctx, m, &row); err != nil {
					return err
				}
				out.Batch = append(out.Batch, row)
				fmt.Printf("%d+%d, budget %d: batch %d, %.1f tokens/s\n", row.Prompt, row.Generated, budget, row.Batch, row.Rate)
			}
		}
		return nil
	}})
}

// largest finds the largest batch and its throughput. The cache of a sequence grows from
// the prompt's length to that of everything, or stays at the budget: the time of a step is
// taken at both ends and in the middle, and put together by Simpson's rule.
func (b *bench) largest(ctx context.Context, m *model.Model, row *batchRow) error {
	end := row.Prompt + row.Generated
	held := func(position int) int {
		if row.Budget > 0 {
			return row.Budget
		}
		return position
	}
	for n := 1; n <= b.sizes.maxBatch; n *= 2 {
		ms, err := b.stepOf(ctx, m, n, end-2, held(end)-2, 1)
		if outOfMemory(err) {
			break
		}
		if err != nil {
			return err
		}
		row.Batch, row.Capped = n, 2*n > b.sizes.maxBatch
		// The step that found the size is its end.
		row.Rate = 1000 * float64(n) / ms
		if b.late() {
			row.Capped = true
			break
		}
	}
	if row.Batch == 0 || b.late() {
		return nil
	}
	total := 0.0
	for i, weight := range []float64{1, 4, 1} {
		at := row.Prompt + i*row.Generated/2 - 2*(i/2)
		ms, err := b.stepOf(ctx, m, row.Batch, at, min(held(at), at), b.repeats)
		if err != nil {
			return err
		}
		total += weight * ms / 6
	}
	row.Rate = 1000 * float64(row.Batch) / total
	return nil
}

func outOfMemory(err error) bool {
	return err != nil && (errors.As(err, new(*kernels.DeviceError)) && strings.Contains(err.Error(), "out of memory"))
}

// stepOf is the median time of a step of n sequences that hold so many entries.
func (b *bench) stepOf(ctx context.Context, m *model.Model, n, position, entries, repeats int) (ms float64, err error) {
	defer runtime.GC()
	caches, ids := make([]*kvcache.Cache, n), make([]int32, n)
	for i := range caches {
		if caches[i], err = randomCache(m, position, entries, repeats+2); err != nil {
			return 0, err
		}
		ids[i] = int32(i % m.Config.Vocab)
	}
	r := runner.New(m)
	saved := b.repeats
	b.repeats = repeats
	defer func() { b.repeats = saved }()
	return b.median(ctx, func() error {
		_, err := r.StepBatch(ctx, caches, ids, 0)
		return err
	})
}
