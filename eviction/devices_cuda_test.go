//go:build gpu && linux && (amd64 || arm64)

package eviction_test

import (
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model/modeltest"
)

// TestCUDAOverSeveralDevices: on two devices a policy keeps the entries, says the tokens
// and finds the scores, bit for bit, that it does on one. No operation takes a tensor of the
// other device. Of one GPU the second device is the host driver's.
func TestCUDAOverSeveralDevices(t *testing.T) {
	needCUDA(t)
	t.Setenv("HOSTCUDA_DEVICES", "2")
	if n := len(kernels.Devices().Devices); n < 2 {
		t.Skipf("%d devices, want 2", n)
	}
	shape := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 8, Seed: 2, Tied: true}
	// What keeps something of its own on a device, and full.
	for _, name := range modeltest.Some(t, []string{"adakv", "cam", "d2o", "full", "laq++", "lookaheadkv", "quest", "roco", "rocketkv", "sparq", "tova"}) {
		t.Run(name, func(t *testing.T) {
			lengths := []int{70, 20}
			want := turns(t, "cuda", name, shape, lengths, 24)
			for i, got := range turns(t, "cuda:0-1", name, shape, lengths, 24) {
				w := want[i]
				same := slices.EqualFunc(got.Scores, w.Scores, func(a, b [][]float32) bool { return slices.EqualFunc(a, b, sameBits) })
				if !sameKept(got.Kept, w.Kept) || !same || !sameBits(got.Logits, w.Logits) || !slices.Equal(got.Tokens, w.Tokens) || !slices.EqualFunc(got.Position, w.Position, slices.Equal) {
					t.Errorf("turn %d: kept %v, scores %v, logits %v, tokens %v and %v", i, sameKept(got.Kept, w.Kept), same, sameBits(got.Logits, w.Logits), got.Tokens, w.Tokens)
				}
				if got.Traffic != w.Traffic || got.Bytes != w.Bytes {
					t.Errorf("turn %d: %+v and %d bytes, want %+v and %d", i, got.Traffic, got.Bytes, w.Traffic, w.Bytes)
				}
			}
		})
	}
}
