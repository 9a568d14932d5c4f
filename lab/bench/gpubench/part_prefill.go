package main

import (
	"context"
	"fmt"

	"glimpse/engine/costmodel"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// prefillRow is the prefill of a prompt, to the logits of its last token.
type prefillRow struct {
	Tokens  int     `json:"tokens"`
	Millis  float64 `json:"ms"`
	TFLOPs  float64 `json:"tflop_s"` // operations counted causally
	Peak    int64   `json:"peak_bytes"`
	Chunk   int     `json:"chunk,omitempty"` // rows at once, where it is not the usual number
	Missing string  `json:"missing,omitempty"`
}

func init() {
	parts.Add("prefill", part{"prefill by prompt length", func(ctx context.Context, b *bench, out *result) error {
		m, err := b.model(out)
		if err != nil {
			return err
		}
		r := runner.New(m)
		measure := func(n, chunk int) error {
			row := prefillRow{Tokens: n, Chunk: chunk}
			if b.late() {
				row.Missing = "no time left"
				out.Prefill = append(out.Prefill, row)
				return nil
			}
			b.meter.ResetPeak()
			ids := tokens(m, n)
			row.Millis, err = b.median(ctx, func() error {
				_, err := r.Prefill(ctx, kvcache.New(m), ids, runner.PrefillOptions{Chunk: chunk})
				return err
			})
			if err != nil {
				return err
			}
			row.Peak = b.meter.Memory().Peak
			out.Peak = max(out.Peak, row.Peak)
			row.TFLOPs = prefillWork(m, n) / row.Millis / 1e9
			out.Prefill = append(out.Prefill, row)
			fmt.Printf("prefill of %d tokens: %.1f ms\n", n, row.Millis)
			return nil
		}
		for _, n := range b.sizes.prefill {
			if err := measure(n, 0); err != nil {
				return err
			}
		}
		// Whether fewer or more rows at once would be faster.
		for _, chunk := range []int{512, 8192} {
			if err := measure(b.sizes.prefill[1], chunk); err != nil {
				return err
			}
		}
		return nil
	}})
}

// prefillWork are the floating-point operations of a prompt to the logits of its last
// token: what this pass does, which leaves out all but one row of the last layer's MLP.
func prefillWork(m *model.Model, n int) float64 {
	return costmodel.New(m, costmodel.H100PCIe, costmodel.Runtime).Prefill(n).FLOPs
}
