//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/kernels/cuda"
)

// TestCUDAStaging: what is written is what arrives, in pieces of all sizes, some larger
// than all pinned memory, while nothing waits for the device in between, and the host's
// data changes at once.
func TestCUDAStaging(t *testing.T) {
	d := openCUDA(t)
	defer cuda.StagePinned(t, d.B)()
	rng := rand.New(rand.NewPCG(7, 7))
	var tensors []*kernels.Tensor
	var want [][]float32
	data := make([]float32, 5<<20)
	for _, n := range []int{1, 3 << 20, 7, 5 << 20, 1 << 20, 333, 2 << 20, 1, 4 << 20} {
		tensor := d.B.Alloc(kernels.F32, n)
		for i := range n {
			data[i] = rng.Float32()
		}
		host := kernels.NewTensor(kernels.F32, n)
		copy(host.F32(), data[:n])
		kernels.Convert(tensor, host)
		tensors, want = append(tensors, tensor), append(want, slices.Clone(data[:n]))
		clear(host.F32())
	}
	for i, tensor := range tensors {
		got := kernels.NewTensor(kernels.F32, tensor.Len())
		kernels.Convert(got, tensor)
		if !slices.Equal(got.F32(), want[i]) {
			t.Errorf("tensor %d of %d numbers arrived as something else", i, tensor.Len())
		}
	}
}
