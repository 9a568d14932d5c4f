package costmodel

import (
	"strings"
	"time"

	"glimpse/kernels"
	"glimpse/model"
)

// devices are the chips of [Chips] by their drivers' names. Others of the same families,
// such as two chips with a bridge, have other peaks.
var devices = map[string]string{
	"H100 PCIe": "h100-pcie", "H100 80GB HBM3": "h100-sxm", "A100-SXM4-80GB": "a100-80g",
	"A100-SXM4-40GB": "a100-40g", "A100-PCIE-40GB": "a100-40g", "L40S": "l40s", "H200": "h200",
}

// ChipOf is the chip that a model runs on: by its name where it is known, else by measuring it.
func ChipOf(m *model.Model) Chip {
	if name, ok := devices[strings.TrimPrefix(m.Backend.Model(), "NVIDIA ")]; ok {
		chip, _ := Chips.Lookup(name)
		return chip
	}
	return Calibrate(m)
}

// calibrated is how long a measurement goes on at least, calibrationRows the rows of a prompt
// that products are as fast with as with more.
const (
	calibrated      = 50 * time.Millisecond
	calibrationRows = 512
)

// Calibrate measures a model's device with the model's own weights: the rate of products of
// many rows, and the rate at which the weights are read for one row. Both are what is
// reached, so that their shares are 1. The weights of a small model stay in the
// processor's own memory, and so they do in its decoding steps. Of a model that has no weights, as of
// [model.OpenShapes], the first layer's weights are made up.
func Calibrate(m *model.Model) Chip {
	var weights []*kernels.Tensor
	bytes, flops := 0.0, 0.0
	layers := m.Network.Layers
	if !m.HasWeights() {
		layers = layers[:1]
	}
	for l := range layers {
		for _, name := range model.Modules {
			if lin := layers[l].Linear(name); lin != nil {
				w := lin.Weight
				if !m.HasWeights() {
					w = m.Backend.Alloc(w.DType, w.Shape...)
					m.Backend.Fill(w, 0.01)
				}
				weights = append(weights, w)
				bytes += float64(w.Bytes())
				flops += 2 * calibrationRows * float64(w.Len())
			}
		}
	}
	return Chip{
		Name: "measured", ComputeShare: 1, MemoryShare: 1,
		FLOPS: flops / perPass(m.Backend, weights, calibrationRows), Bandwidth: bytes / perPass(m.Backend, weights, 1),
	}
}

// perPass is the time, in seconds, of the products of rows and all weights, the best of
// several passes.
func perPass(b kernels.Backend, weights []*kernels.Tensor, rows int) float64 {
	type product struct{ y, x, w *kernels.Tensor }
	var products []product
	scratch := make(map[int]*kernels.Tensor) // by width
	rowsOf := func(width int) *kernels.Tensor {
		if scratch[width] == nil {
			scratch[width] = b.Alloc(b.Compute(), rows, width)
			b.Fill(scratch[width], 0.5)
		}
		return scratch[width]
	}
	for _, w := range weights {
		y := b.Alloc(b.Compute(), rows, w.Dim0())
		products = append(products, product{y, rowsOf(w.Width()), w})
	}
	best, all := time.Duration(0), time.Duration(0)
	for n := 0; all < calibrated || n < 3; n++ {
		took, _ := b.Time(func() error {
			for _, p := range products {
				b.Linear(p.y, p.x, p.w, nil, 1, 0)
			}
			return nil
		})
		if all += took; best == 0 || took < best {
			best = took
		}
	}
	return max(best.Seconds(), 1e-9)
}
