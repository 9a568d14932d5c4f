//go:build gpu && linux && (amd64 || arm64)

package cuda_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/kernels/kernelstest"
)

// TestCUDACopyPairs: all heads at once have the bits of one after the other, in the middle
// of their memory and in either type, and nothing else changes; what does not fit is
// refused.
func TestCUDACopyPairs(t *testing.T) {
	d := openCUDA(t)
	rng := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][3]int{{1, 1, 1}, {1, 8, 16}, {5, 3, 7}, {70, 2, 32}, {33, 4, 10}, {2, 300, 8}, {3, 3, 20}} { // rows, heads, width of a head
		rows, heads, dim := shape[0], shape[1], shape[2]
		k, v := d.Tensor(kernelstest.Random(rng, rows*heads*dim, 1), rows, heads, dim), d.Tensor(kernelstest.Random(rng, rows*heads*dim, 1), rows, heads, dim)
		for _, dtype := range []kernels.DType{kernels.F32, kernels.BF16} {
			fill := func(copy func(dst []kernels.KV)) (out [][]float64) {
				var whole []*kernels.Tensor
				var dst []kernels.KV
				for h := range heads {
					pair := [2]*kernels.Tensor{}
					for i := range pair {
						all := d.B.Alloc(dtype, rows+h+2, dim)
						d.B.Fill(all, 7)
						whole, pair[i] = append(whole, all), all.Rows(h+1, h+1+rows)
					}
					dst = append(dst, kernels.KV{K: pair[0], V: pair[1]})
				}
				copy(dst)
				for _, w := range whole {
					out = append(out, w.Float64s())
				}
				return out
			}
			want := fill(func(dst []kernels.KV) {
				for h, kv := range dst {
					d.B.CopyHead(kv.K, k, h)
					d.B.CopyHead(kv.V, v, h)
				}
			})
			for i, got := range fill(func(dst []kernels.KV) { d.B.CopyPairs(dst, k, v) }) {
				compare.Close(t, fmt.Sprintf("%v %s: tensor %d", shape, dtype, i), got, want[i], 0)
			}
		}
	}
	k, kv := d.Garbage(2, 2, 4), kernels.KV{K: d.Garbage(2, 4), V: d.Garbage(2, 4)}
	for what, f := range map[string]func(){
		"one head":   func() { d.B.CopyPairs([]kernels.KV{kv}, k, k) },
		"no head":    func() { d.B.CopyPairs(nil, k, k) },
		"fewer rows": func() { d.B.CopyPairs([]kernels.KV{kv, {K: kv.K, V: d.Garbage(1, 4)}}, k, k) },
		"values":     func() { d.B.CopyPairs([]kernels.KV{kv, kv}, k, d.Garbage(2, 1, 4)) },
		"type":       func() { d.B.CopyPairs([]kernels.KV{kv, {K: kv.K, V: d.B.Alloc(kernels.BF16, 2, 4)}}, k, k) },
	} {
		if refused(&fuzzCall{run: f}) == nil {
			t.Errorf("%s: not refused", what)
		}
	}
}
