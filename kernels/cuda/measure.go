//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"runtime"
	"time"

	"glimpse/kernels"
	"glimpse/kernels/cudadriver"

	"gorgonia.org/cu"
)

// Time implements Measuring.
func (b *cuda) Time(f func() error) (d time.Duration, err error) {
	defer kernels.CatchDevice(&err)
	var events [2]cu.Event
	record := func(i int) {
		b.do("Time", func() {
			var err error
			events[i], err = cu.MakeEvent(cu.DefaultEvent)
			b.try("Time: event", err)
			b.try("Time: event", events[i].Record(b.stream))
		})
	}
	record(0)
	if err := f(); err != nil {
		return 0, err
	}
	record(1)
	b.do("Time", func() {
		b.synchronize("Time")
		ms, err := events[0].Elapsed(events[1])
		b.try("Time: elapsed", err)
		d = time.Duration(ms * float64(time.Millisecond))
		for i := range events {
			b.try("Time: event", cu.DestroyEvent(&events[i]))
		}
	})
	return d, nil
}

// Wait waits until all queued work is done.
func (b *cuda) Wait() { b.do("Wait", func() { b.synchronize("Wait") }) }

// Product computes c [m, n] = a [m, k] · w [n, k]ᵀ for a and w in BF16 and c in F32 by the
// library's product alone: a measure of the device's speed.
func (b *cuda) Product(c, a, w *kernels.Tensor) {
	const op = "Product"
	m, k, n := a.Dim0(), a.Width(), w.Dim0()
	kernels.CheckProduct(op, c, m, n, k, w.Width())
	b.do(op, func() {
		b.multiply(op, gemm{m: m, n: n, k: k, weightRows: n, transposed: true}.columnMajor(cudadriver.BF16), b.f32(op, c), b.at(op, w, kernels.BF16), b.at(op, a, kernels.BF16), 1, 0)
	})
	runtime.KeepAlive([]*kernels.Tensor{c, a, w})
}
