package runner_test

import (
	"context"
	"testing"

	"glimpse/internal/parallel"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// BenchmarkDevices prefills a prompt and decodes, with one thread for each device: "cpu" is a
// model on one, the others on several whose chunks overlap, or, observed, do not.
func BenchmarkDevices(b *testing.B) {
	shape := modeltest.Llama{Hidden: 512, Layers: 8, Heads: 8, KVHeads: 2, HeadDim: 64, Intermediate: 1536, Vocab: 512, MaxPositions: 8192, Seed: 1}
	for _, device := range []string{"cpu", "cpu,cpu", "cpu,cpu,cpu,cpu"} {
		m := shape.Open(b, device)
		r, tokens := runner.New(m), modeltest.Tokens(m, 1, 4096)
		prefill := func(b *testing.B, opt runner.PrefillOptions) *kvcache.Cache {
			cache := kvcache.New(m)
			if _, err := r.Prefill(context.Background(), cache, tokens, opt); err != nil {
				b.Fatal(err)
			}
			return cache
		}
		b.Run("tokens=4096/pipelined/"+device, func(b *testing.B) {
			defer parallel.SetThreads(parallel.SetThreads(1))
			for b.Loop() {
				prefill(b, runner.PrefillOptions{})
			}
		})
		b.Run("tokens=4096/layer-by-layer/"+device, func(b *testing.B) {
			defer parallel.SetThreads(parallel.SetThreads(1))
			observe := func(*runner.Observation) error { return nil }
			for b.Loop() {
				prefill(b, runner.PrefillOptions{Observe: observe})
			}
		})
		b.Run("step/"+device, func(b *testing.B) {
			defer parallel.SetThreads(parallel.SetThreads(1))
			cache := kvcache.New(m)
			for b.Loop() {
				if cache.Next() == 2048 {
					if err := cache.Truncate(0); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := r.Step(context.Background(), cache, 1, runner.Capture{}, nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
