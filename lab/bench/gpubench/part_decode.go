package main

import (
	"context"
	"fmt"
	"time"

	"glimpse/model"
	"glimpse/model/runner"
)

// decodeRow is decoding one token after another.
type decodeRow struct {
	Context int     `json:"context"`
	Budget  int     `json:"budget"` // entries per head; 0: all
	Rate    float64 `json:"tokens_s"`
	Bytes   int64   `json:"bytes"` // weights and kept cache, which a token reads once
	Peak    int64   `json:"peak_bytes"`
	Missing string  `json:"missing,omitempty"`
}

// readWeights are the bytes of the weights that a decoding step reads: all but the
// embedding table, unless it is the head, too.
func readWeights(m *model.Model) int64 {
	n := m.WeightBytes()
	if !m.Config.TieEmbeddings {
		n -= int64(m.Network.Embedding.Bytes())
	}
	return n
}

func init() {
	parts.Add("decode", part{"decoding by context and budget", func(ctx context.Context, b *bench, out *result) error {
		m, err := b.model(out)
		if err != nil {
			return err
		}
		r := runner.New(m)
		measure := func(length, budget int) error {
			row := decodeRow{Context: length, Budget: budget}
			entries := budget
			if budget == 0 {
				entries = length
			}
			if b.late() {
				row.Missing = "no time left"
				out.Decode = append(out.Decode, row)
				return nil
			}
			b.meter.ResetPeak()
			steps := b.sizes.steps
			cache, err := randomCache(m, length, entries, (b.repeats+2)*steps)
			if err != nil {
				return err
			}
			row.Bytes = readWeights(m) + int64(entries+steps*(b.repeats+1)/2)*cache.LayerPairBytes(0)*int64(cache.Layers()*cache.KVHeads())
			logits := make([]float32, m.Config.Vocab)
			// By the wall clock: a user waits for the host, too.
			var rates []float64
			for i := range b.repeats + 1 {
				b.settle()
				start := time.Now()
				if _, _, err := r.Continue(ctx, cache, runner.HostLogits(logits), runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true}); err != nil {
					return err
				}
				if i > 0 {
					rates = append(rates, float64(steps)/time.Since(start).Seconds())
				}
			}
			row.Rate = middle(rates)
			row.Peak = b.meter.Memory().Peak
			out.Peak = max(out.Peak, row.Peak)
			out.Decode = append(out.Decode, row)
			fmt.Printf("decoding at %d, budget %d: %.1f tokens/s\n", length, budget, row.Rate)
			return nil
		}
		for _, n := range b.sizes.contexts {
			if err := measure(n, 0); err != nil {
				return err
			}
		}
		for _, n := range b.sizes.budgetContexts {
			for _, budget := range b.sizes.budgets {
				if err := measure(n, budget); err != nil {
					return err
				}
			}
		}
		return nil
	}})
}
