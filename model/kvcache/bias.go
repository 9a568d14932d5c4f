package kvcache

import (
	"fmt"

	"glimpse/checkpoints"
	"glimpse/kernels"
)

// Refit gives a KV head of a layer other values [entries, headDim] in the place of those that its entries have, and adds biases to the
// logits of the first of them, [n] with n at most entries; nil leaves values as they are, or no biases. Values are rounded to the type
// of the cache. Biases are the cache's own memory from then on: entries that are appended have none, and those that stay keep theirs.
func (c *Cache) Refit(layer, head int, values, biases []float32) error {
	p := c.pairs(layer)
	h := &p.heads[head]
	n := len(h.pos)
	if values != nil && len(values) != n*p.dim || len(biases) > n {
		return fmt.Errorf("refit layer %d head %d: got %d numbers of values and %d biases, want %d and at most %d", layer, head, len(values), len(biases), n*p.dim, n)
	}
	if err := p.room.on.TakesBias(); err != nil {
		return fmt.Errorf("refit layer %d head %d: %w", layer, head, err)
	}
	if values != nil && n > 0 {
		kernels.Convert(h.v.Rows(0, n), kernels.FromF32(values, n, p.dim))
	}
	if h.bias = nil; len(biases) > 0 {
		h.bias = p.room.on.Alloc(p.room.on.Compute(), len(biases))
		kernels.Convert(h.bias, kernels.FromF32(biases, len(biases)))
	}
	c.changed()
	return nil
}

// Biased tells that some entry has a bias.
func (c *Cache) Biased() bool {
	for l := range c.layers {
		for i := range c.pairs(l).heads {
			if c.pairs(l).heads[i].bias != nil {
				return true
			}
		}
	}
	return false
}

// keptBiases are those of the entries at ascending indices, in memory of their own; nil where none of them has one.
func (p *pairs) keptBiases(biases *kernels.Tensor, keep []int32) *kernels.Tensor {
	kept := kernels.KV{Bias: biases}.BiasedAmong(keep)
	if kept == 0 {
		return nil
	}
	out := p.room.on.Alloc(biases.DType, kept)
	p.room.on.Gather(out.Reshape(kept, 1), biases.Reshape(biases.Len(), 1), keep[:kept])
	return out
}

const biasSuffix = ".biases"

// restoreBiases reads the biases of a head whose positions are known, if the file has any.
func (p *pairs) restoreBiases(s *checkpoints.Safetensors, name string, h *headCache) error {
	info, ok := s.Info(name)
	if !ok {
		return nil
	}
	if err := p.room.on.TakesBias(); err != nil {
		return fmt.Errorf("tensor %s: %w", name, err)
	}
	if len(info.Shape) != 1 || info.Shape[0] < 1 || info.Shape[0] > len(h.pos) {
		return fmt.Errorf("tensor %s: got shape %v, want 1 to %d numbers: %w", name, info.Shape, len(h.pos), checkpoints.ErrCorrupt)
	}
	h.bias = p.room.on.Alloc(p.room.on.Compute(), info.Shape[0])
	return restoreRows(s, name, h.bias)
}
