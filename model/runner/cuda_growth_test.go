package runner_test

import (
	"testing"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestCUDAGrowingCache: a cache on a device grows into the memory that its blocks have anyway,
// so that a long answer moves it a few times and not every sixteen tokens, and a policy that
// keeps it at one length moves it once.
func TestCUDAGrowingCache(t *testing.T) {
	modeltest.NeedCUDA(t)
	if !modeltest.InArenas(t) {
		return
	}
	m := modeltest.Llama{Layers: 1, Heads: 2, KVHeads: 1, HeadDim: 16, MaxPositions: 1024}.Open(t, "cuda")
	r, cache := runner.New(m), kvcache.New(m)
	if _, err := r.Prefill(background, cache, modeltest.Tokens(m, 1, 600), runner.PrefillOptions{}); err != nil {
		t.Fatal(err)
	}
	moved := func(steps int, after func()) (n int) {
		bytes := cache.LayerBytes(0)
		for range steps {
			if _, err := r.Step(background, cache, 3, runner.Capture{}, nil); err != nil {
				t.Fatal(err)
			}
			if after != nil {
				after()
			}
			if now := cache.LayerBytes(0); now != bytes {
				bytes = now
				n++
			}
		}
		return n
	}
	// A block for 600 entries of 64 bytes has steps of 64 entries.
	if n := moved(200, nil); n > 200/64+2 {
		t.Errorf("200 tokens moved the cache %d times, want at most %d", n, 200/64+2)
	}
	if room := m.Backend.Traits().RoomFor(kernels.F32, 601, 16); room < 601 || room > 601+64 {
		t.Errorf("a tensor of 601 rows has room for %d", room)
	}
	all := make([]int32, cache.Entries(0, 0))
	for i := range all {
		all[i] = int32(i) // without the last entry
	}
	keep := func() {
		if err := cache.Retain(0, [][]int32{all}); err != nil {
			t.Fatal(err)
		}
	}
	if n := moved(40, keep); n > 1 {
		t.Errorf("40 tokens of a cache that is kept at one length moved it %d times", n)
	}
	if want := int64(2 * m.Backend.Traits().RoomFor(kernels.F32, len(all)+16, 16) * 16 * 4); cache.LayerBytes(0) > want {
		t.Errorf("%d bytes for %d entries, want at most %d", cache.LayerBytes(0), len(all), want)
	}
}
