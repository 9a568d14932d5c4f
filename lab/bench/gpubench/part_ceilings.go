package main

import (
	"context"

	"glimpse/kernels"
	"glimpse/kernels/formats"
)

// ceilings are what the device can do, and so what everything else is a share of.
type ceilings struct {
	CopyGBs       float64 `json:"copy_gb_s"` // bytes read and written
	ProductTFLOPs float64 `json:"product_tflop_s"`
	Product       int     `json:"product"`
	// Weights are what single linear layers of decoding steps reach: no ceilings, but what
	// stands between these and the decoding rate.
	Weights []weightRow `json:"weights,omitempty"`
}

func init() {
	parts.Add("ceilings", part{"copy bandwidth, a large bf16 product by cuBLASLt, and linear layers of few rows", func(ctx context.Context, b *bench, out *result) error {
		c := &ceilings{Product: b.sizes.product}
		out.Ceilings = c
		half := b.sizes.copyBytes / 8
		x, y := b.meter.Alloc(kernels.F32, half), b.meter.Alloc(kernels.F32, half)
		b.meter.Fill(x, 1)
		ms, err := b.median(ctx, func() error { b.meter.Copy(y, x); return nil })
		if err != nil {
			return err
		}
		c.CopyGBs = 2 * 4 * float64(half) / ms / 1e6
		n := b.sizes.product
		operand := func(seed uint32) *kernels.Tensor { // numbers that differ: zeros are faster than any data
			host := kernels.NewTensor(kernels.BF16, n, n)
			for i := range host.U16() {
				seed = seed*1664525 + 1013904223
				host.U16()[i] = formats.F32ToBF16(float32(int32(seed)) / (1 << 31))
			}
			return b.meter.Place(host)
		}
		library := b.meter.(interface{ Product(c, a, w *kernels.Tensor) }) // of kernels/cuda
		a, w, p := operand(1), operand(2), b.meter.Alloc(kernels.F32, n, n)
		// Several in a row, so that the time between launches does not count.
		const row = 10
		ms, err = b.median(ctx, func() error {
			for range row {
				library.Product(p, a, w)
			}
			return nil
		})
		if err != nil {
			return err
		}
		c.ProductTFLOPs = row * 2 * float64(n) * float64(n) * float64(n) / ms / 1e9
		c.Weights, err = b.measureWeights(ctx)
		return err
	}})
}
