package eviction_test

import (
	"runtime"
	"runtime/metrics"
	"testing"
	"time"

	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/model/modeltest"
)

// live is the memory that the last collection found in use.
func live() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// peakLive runs f, collecting all the time, and returns by how much the memory in
// use grew at most.
func peakLive(f func()) int64 {
	runtime.GC()
	start, stop, done := live(), make(chan struct{}), make(chan int64)
	go func() {
		most := int64(0)
		for {
			runtime.GC()
			most = max(most, live())
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	f()
	close(stop)
	return <-done - start
}

// TestPrefillPeak measures real memory: with layer-by-layer eviction, a prompt of
// 8,192 tokens at a budget of 128 takes no more than weights, activations, one
// layer's cache, what is kept, and 10%.
func TestPrefillPeak(t *testing.T) {
	if testing.Short() {
		t.Skip("a long prompt")
	}
	const n, budget, window = 8192, 128, 8
	shape := modeltest.Llama{Layers: 5, Hidden: 64, Heads: 8, KVHeads: 8, HeadDim: 64, Intermediate: 96, Vocab: 256, MaxPositions: n + 64}
	folder, err := shape.Folder()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"adakv"} {
		var rt *eviction.Runtime
		var s *eviction.Session
		peak := peakLive(func() {
			rt = eviction.NewRuntime(modeltest.OpenFolder(t, folder, "cpu"))
			var err error
			if s, err = rt.Prefill(background, policy(t, rt.Runner.Model, name, "snapkv.window=8"), eviction.Prompt{Tokens: modeltest.Tokens(rt.Runner.Model, 1, n), Budget: budget}); err != nil {
				t.Fatal(err)
			}
		})
		m := rt.Runner.Model
		weights := m.WeightBytes() + n*int64(m.Config.HeadDim)*4 // with the table of rotations
		// Besides the arena, every thread holds the logits of the observed rows and their
		// probabilities; the session has the scores.
		scores := int64(m.Config.Layers*m.Config.KVHeads) * n * 4
		activations := rt.Runner.ScratchBytes() + int64(parallel.Threads())*2*window*n*4 + scores
		layer := s.FullBytes / int64(m.Config.Layers)
		parts := weights + activations + layer + s.Cache.Bytes()
		t.Logf("%s: peak %.1f MiB; weights %.1f, activations %.1f, one layer %.1f, kept %.1f, together %.1f; the full cache has %.1f", name,
			mib(peak), mib(weights), mib(activations), mib(layer), mib(s.Cache.Bytes()), mib(parts), mib(s.FullBytes))
		if peak > parts*11/10 {
			t.Errorf("%s: peak %.2f times its parts, want at most 1.1", name, float64(peak)/float64(parts))
		}
		if peak < layer+weights || 2*parts > s.FullBytes {
			t.Errorf("%s: the test would not notice a full cache", name)
		}
	}
}

// TestLayersUseTheSameMemory: a layer's full cache goes to the next layer and not
// to the collector, which would leave several of them around for a while.
func TestLayersUseTheSameMemory(t *testing.T) {
	const n, budget = 2048, 32
	m := modeltest.Llama{Layers: 10, Hidden: 32, Heads: 8, KVHeads: 8, HeadDim: 32, Intermediate: 48, MaxPositions: n}.Open(t, "cpu")
	rt, p, ids := eviction.NewRuntime(m), policy(t, m, "streamingllm"), modeltest.Tokens(m, 1, n)
	var before, after runtime.MemStats
	for range 2 { // the first makes the scratch memory
		runtime.ReadMemStats(&before)
		if _, err := rt.Prefill(background, p, eviction.Prompt{Tokens: ids, Budget: budget}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
	}
	full := m.Config.CacheBytesPerToken(kernels.F32) * n
	if got := int64(after.TotalAlloc - before.TotalAlloc); got > full/2 {
		t.Errorf("a prefill allocated %.1f MiB, the full cache has %.1f", mib(got), mib(full))
	}
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }
