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

// What is measured is small enough to be quick on a busy machine, and large enough to run as the whole does.
const (
	calibrated     = 20 * time.Millisecond // that a measurement goes on at least
	calibratedMost = 200 * time.Millisecond
	pieceRows      = 256
	pieceEntries   = 1024
	pieceNumbers   = 1 << 21 // of the weights that many rows go through
	pieceRead      = 1 << 24 // of those that one row reads: a processor's own memory does not hold them
)

// Calibrate measures a model's device with made-up weights of the model's shapes: the rates of products of many rows, of
// attention, and of norms and activations, and the rate at which weights are read for one row. All are what is
// reached, so that their shares are 1. The weights of a small model stay in the
// processor's own memory, and so they do in its decoding steps. It takes a fraction of a second, whatever the model's size.
func Calibrate(m *model.Model) Chip {
	c := &calibration{m.Backend, m}
	flops, bytes := 0.0, 0.0
	many := c.weights(pieceNumbers)
	for _, w := range many {
		flops += 2 * pieceRows * float64(w.Len())
	}
	one := c.weights(pieceRead)
	for _, w := range one {
		bytes += float64(w.Bytes())
	}
	return Chip{
		Name: "measured", ComputeShare: 1, MemoryShare: 1,
		FLOPS: flops / c.products(many, pieceRows), Bandwidth: bytes / c.products(one, 1), Attention: c.attention(), Elementwise: c.elements(),
	}
}

// calibration measures on a backend, in the shapes of a model.
type calibration struct {
	b kernels.Backend
	m *model.Model
}

// weights are the weights of the first layers, as many numbers as are wanted: the first rows of those that are larger.
func (c *calibration) weights(numbers int) (out []*kernels.Tensor) {
	for l := range c.m.Network.Layers {
		for _, name := range model.Modules {
			lin := c.m.Network.Layers[l].Linear(name)
			if lin == nil || numbers < lin.Weight.Width() {
				continue
			}
			rows := min(lin.Weight.Dim0(), numbers/lin.Weight.Width())
			numbers -= rows * lin.Weight.Width()
			stored := kernels.NewTensor(lin.Weight.DType, rows, lin.Weight.Width())
			bytes := stored.Memory()
			for i := range bytes { // memory that was never written is not read, and no number is denormal in any type
				bytes[i] = 0x11
			}
			out = append(out, c.b.Place(stored))
		}
	}
	return out
}

// rows are numbers of the type that the device computes in.
func (c *calibration) rows(shape ...int) *kernels.Tensor {
	t := c.b.Alloc(c.b.Compute(), shape...)
	c.b.Fill(t, 0.01)
	return t
}

// products is the time, in seconds, of the products of so many rows and all weights.
func (c *calibration) products(weights []*kernels.Tensor, rows int) float64 {
	type product struct{ y, x, w *kernels.Tensor }
	var products []product
	scratch := make(map[int]*kernels.Tensor) // by width
	for _, w := range weights {
		if scratch[w.Width()] == nil {
			scratch[w.Width()] = c.rows(rows, w.Width())
		}
		products = append(products, product{c.rows(rows, w.Dim0()), scratch[w.Width()], w})
	}
	return c.seconds(func() {
		for _, p := range products {
			c.b.Linear(p.y, p.x, p.w, nil, 1, 0)
		}
	})
}

// attention is the rate of a prompt's rows that attend to their cache, in floating-point operations per second.
func (c *calibration) attention() float64 {
	of := &c.m.Config
	kv := of.KV(of.FirstAttention())
	kvHeads, group := min(kv.Heads, 8), of.Heads/kv.Heads
	a := &kernels.Attend{
		Q: c.rows(pieceRows, kvHeads*group, kv.Dim), K: c.rows(pieceRows, kvHeads, kv.Dim), V: c.rows(pieceRows, kvHeads, kv.Dim), Scale: 0.1,
		Positions: make([]int32, pieceRows),
	}
	for i := range a.Positions {
		a.Positions[i] = int32(pieceEntries + i)
	}
	pairs := kernels.NewTensor(c.m.CacheDType(), pieceEntries, kv.Dim)
	past := c.b.Place(pairs)
	for range kvHeads {
		a.Past = append(a.Past, kernels.KV{K: past, V: past})
	}
	out := c.rows(pieceRows, a.Heads()*kv.Dim)
	return 4 * float64(a.Heads()*kv.Dim) * pairsSeen(pieceRows, pieceEntries, 0) / c.seconds(func() { c.b.Attention(out, nil, a) })
}

// elements is the rate of norms and activations, in bytes per second that they read and write.
func (c *calibration) elements() float64 {
	hidden, inner := min(c.m.Config.Hidden, 4096), min(max(c.m.Config.Intermediate, c.m.Config.ExpertWidth), 4096)
	x, y, w := c.rows(pieceRows, hidden), c.rows(pieceRows, hidden), c.rows(hidden)
	gate, up := c.rows(pieceRows, inner), c.rows(pieceRows, inner)
	bytes := float64(2*x.Bytes() + 3*gate.Bytes())
	return bytes / c.seconds(func() {
		c.b.Norm(y, x, nil, kernels.Norm{Weight: w, Eps: 1e-5})
		c.b.SiLUMul(gate, gate, up)
	})
}

// seconds is what f takes on average, after once that is not counted unless it took long. The shortest time would
// be that of moments in which other programs leave the machine alone.
func (c *calibration) seconds(f func()) float64 {
	timed := func() time.Duration {
		took, _ := c.b.Time(func() error { f(); return nil })
		return took
	}
	if first := timed(); first > calibratedMost {
		return first.Seconds()
	}
	all, n := time.Duration(0), 0
	for ; all < calibrated || n < 2 && all < calibratedMost; n++ {
		all += timed()
	}
	return max(all.Seconds()/float64(n), 1e-9)
}
