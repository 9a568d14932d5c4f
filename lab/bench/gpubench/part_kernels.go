package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"glimpse/kernels"
)

// kernelRow is one operation of a layer by itself.
type kernelRow struct {
	Operation string  `json:"operation"`
	Shape     string  `json:"shape"`
	Prompt    int     `json:"prompt,omitempty"` // tokens, of a whole prompt's attention
	Millis    float64 `json:"ms"`
	Bytes     float64 `json:"bytes"` // read and written at least: inputs and outputs once
	FLOP      float64 `json:"flop"`  // of products alone; 0 where there are none
}

func init() {
	parts.Add("kernels", part{"the operations of a layer, each by itself", func(ctx context.Context, b *bench, out *result) error {
		return b.measureKernels(ctx, &out.Kernels)
	}})
}

// measureKernels measures what a layer of the model does between its products with weights: in a prompt, when
// rows are observed, in a decoding step, and in a training step's backward pass.
func (b *bench) measureKernels(ctx context.Context, rows *[]kernelRow) error {
	var c struct {
		Hidden  int `json:"hidden_size"`
		Heads   int `json:"num_attention_heads"`
		KVHeads int `json:"num_key_value_heads"`
		Dim     int `json:"head_dim"`
		Inner   int `json:"intermediate_size"`
	}
	if err := json.Unmarshal([]byte(b.sizes.config), &c); err != nil {
		return err
	}
	on := b.meter
	var failed error
	measure := func(row kernelRow, run func()) {
		if failed != nil || b.late() {
			return
		}
		ms, err := b.median(ctx, func() error { run(); return nil })
		if err != nil {
			failed = fmt.Errorf("%s of %s: %w", row.Operation, row.Shape, err)
			return
		}
		row.Millis = ms
		*rows = append(*rows, row)
		fmt.Printf("%s, %s: %.3f ms, %.0f GB/s, %.0f TFLOP/s\n", row.Operation, row.Shape, ms, row.Bytes/ms/1e6, row.FLOP/ms/1e9)
	}
	one := func(operation, shape string, bytes, flop int, run func()) {
		measure(kernelRow{Operation: operation, Shape: shape, Bytes: float64(bytes), FLOP: float64(flop)}, run)
	}
	random := func(shape ...int) *kernels.Tensor { // in float32
		t := on.Alloc(kernels.F32, shape...)
		kernels.Convert(t, randomWeight(1, t.Len()).Reshape(shape...))
		return t
	}
	past := func(n int) (kv []kernels.KV) {
		pair := randomWeight(n, c.Dim)
		for range c.KVHeads {
			kv = append(kv, kernels.KV{K: on.Place(pair), V: on.Place(pair)})
		}
		return kv
	}
	scale := 1 / float64(c.Dim)
	pairs := func(n int) int { return 2 * 2 * c.KVHeads * n * c.Dim } // bytes of n entries in bf16

	// A prompt: rows are the last entries of the cache.
	for _, n := range b.sizes.prefill {
		a := &kernels.Attend{Q: random(n, c.Heads, c.Dim), Past: past(n), Scale: scale}
		y := on.Alloc(kernels.F32, n, c.Heads*c.Dim)
		row := kernelRow{Operation: "prompt attention", Shape: fmt.Sprintf("%d rows", n), Prompt: n, Bytes: float64(pairs(n) + 8*y.Len()), FLOP: float64(2 * c.Heads * c.Dim * n * (n + 1))}
		measure(row, func() { on.Attention(y, nil, a) })
	}
	n := b.sizes.prefill[min(1, len(b.sizes.prefill)-1)]
	gate, up, inner := random(n, c.Inner), random(n, c.Inner), on.Alloc(kernels.BF16, n, c.Inner)
	one("SwiGLU", fmt.Sprintf("%d × %d", n, c.Inner), 10*inner.Len(), 0, func() { on.SiLUMul(inner, gate, up) })
	x, delta, w, y := random(n, c.Hidden), random(n, c.Hidden), random(c.Hidden), on.Alloc(kernels.BF16, n, c.Hidden)
	one("sum and RMSNorm", fmt.Sprintf("%d × %d", n, c.Hidden), 14*y.Len(), 0, func() { on.Norm(y, x, delta, kernels.Norm{Weight: w, Eps: 1e-5}) })
	q, k, pos := random(n, c.Heads, c.Dim), random(n, c.KVHeads, c.Dim), make([]int32, n)
	for i := range pos {
		pos[i] = int32(i)
	}
	table := on.RoPETable(make([]float32, c.Dim/2), n, 1)
	one("RoPE", fmt.Sprintf("%d × %d × %d", n, c.Heads, c.Dim), 8*q.Len(), 0, func() { on.RoPE(q, q, pos, table, false) })
	cache := past(n)
	one("pairs into a cache", fmt.Sprintf("%d × %d × %d", n, c.KVHeads, c.Dim), 12*k.Len(), 0, func() { on.CopyPairs(cache, k, k) })

	// Observed rows: an adapter's, and a response's, whose queries are rounded.
	for _, rows := range []int{b.sizes.draft, b.sizes.response} {
		a := &kernels.Attend{Q: random(rows, c.Heads, c.Dim), Past: cache, K: random(rows, c.KVHeads, c.Dim), V: random(rows, c.KVHeads, c.Dim), Scale: scale}
		y, lse, scores := on.Alloc(kernels.F32, rows, c.Heads*c.Dim), on.Alloc(kernels.F32, c.Heads, rows), on.Alloc(kernels.F32, c.Heads, n)
		shape := fmt.Sprintf("%d rows, %d entries", rows, n)
		one("observed attention", shape, pairs(n)+8*y.Len()+4*scores.Len(), 6*c.Heads*c.Dim*rows*n, func() { on.ObserveAttention(y, lse, scores, a) })
		if rows != b.sizes.draft {
			continue
		}
		dq, dk, dv := on.Alloc(kernels.F32, rows, c.Heads, c.Dim), on.Alloc(kernels.F32, rows, c.KVHeads, c.Dim), on.Alloc(kernels.F32, rows, c.KVHeads, c.Dim)
		dOut, dScores := random(rows, c.Heads*c.Dim), random(c.Heads, n)
		one("gradient of attention", shape, pairs(n)+8*scores.Len(), 8*c.Heads*c.Dim*rows*n, func() {
			on.AttentionGrad(dq, dk, dv, a, y, lse, scores, dOut, dScores)
		})
	}

	// A decoding step.
	for _, n := range b.sizes.contexts {
		a := &kernels.Attend{Q: random(1, c.Heads, c.Dim), Past: past(n), Scale: scale}
		y := on.Alloc(kernels.F32, 1, c.Heads*c.Dim)
		one("step attention", fmt.Sprintf("%d entries", n), pairs(n), 4*c.Heads*c.Dim*n, func() { on.Attention(y, nil, a) })
	}
	return failed
}

func (r *report) writeKernels(w io.Writer) {
	section(w, "\n### Operations by themselves\n\nOf one layer, launched one by one; bytes are inputs and outputs once.\n\n", r.of("kernels").Kernels,
		[]string{"operation", "shape", "ms", "GB/s", "of copies", "TFLOP/s", "of the ceiling", "PyTorch's best, ms", "PyTorch ÷ ours"}, func(row kernelRow) []string {
			rate, products := row.Bytes/row.Millis/1e6, row.FLOP/row.Millis/1e9
			peer, beside := "–", "–"
			if best, kernel := r.torchAttention(row.Prompt); best > 0 {
				peer, beside = fmt.Sprintf("%.3f (%s)", best, kernel), number("%.2f", best/row.Millis)
			}
			return []string{row.Operation, row.Shape, number("%.3f", row.Millis), number("%.0f", rate), number("%.1f%%", 100*share(rate, r.bandwidth())),
				number("%.1f", products), number("%.1f%%", 100*share(products, r.product())), peer, beside}
		})
}
