package model_test

import (
	"math"
	"testing"

	"glimpse/checkpoints"
	"glimpse/internal/simd"
	"glimpse/kernels"
	"glimpse/kernels/formats"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestPiecesOfLargeWeights: a prompt in pieces gives the logits of the whole, to 1e-5
// where products are computed in float32, and to the rounding of bfloat16 where the
// processor multiplies large bfloat16 weights in pairs.
func TestPiecesOfLargeWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("of 23 million weights")
	}
	f := newFolder(t, modeltest.Llama{Hidden: 1024, Layers: 2, Heads: 16, KVHeads: 8, HeadDim: 64, Intermediate: 2816, Vocab: 1024})
	f.tensors(func(v checkpoints.TensorView) *checkpoints.TensorView {
		half := make([]byte, 0, v.Len()*2)
		for _, x := range values(t, v) {
			u := formats.F32ToBF16(x)
			half = append(half, byte(u), byte(u>>8))
		}
		v.DType, v.Data = kernels.BF16, half
		return &v
	})
	m, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	ids := modeltest.Tokens(m, 3, 64)
	run := func(piece int) (logits []float32) {
		cache := kvcache.New(m)
		for at := 0; at < len(ids); at += piece {
			if logits, err = runner.New(m).Prefill(t.Context(), cache, ids[at:min(len(ids), at+piece)], runner.PrefillOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		return logits
	}
	bound := 1e-5
	if simd.RoundsBF16() {
		bound = 1e-2
	}
	whole, largest := run(len(ids)), 0.0
	for _, x := range whole {
		largest = max(largest, math.Abs(float64(x)))
	}
	worst := 0.0
	for _, piece := range []int{16, 8, 1} {
		for i, x := range run(piece) {
			worst = max(worst, math.Abs(float64(x-whole[i]))/largest)
		}
	}
	t.Logf("%s: %.2g of the largest logit", simd.Level(), worst)
	if !(worst <= bound) {
		t.Errorf("%s: pieces differ by %.2g of the largest logit, want at most %g", simd.Level(), worst, bound)
	}
}
