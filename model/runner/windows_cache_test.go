package runner_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// windowKinds are what families with windows have besides.
var windowKinds = map[string]func(m *model.Model){
	"mistral": func(m *model.Model) { m.Config.Windows = []int{60, 60, 60} },
	"gemma": func(m *model.Model) { // 2, with soft caps; 3 without
		m.Config.Windows, m.Config.AttentionCap, m.Config.LogitCap = []int{40, 0, 300}, 5, 10
	},
	"gpt-oss": func(m *model.Model) {
		m.Config.Windows = []int{40, 0, 300}
		rng := rand.New(rand.NewPCG(3, 4))
		for l := range m.Network.Layers {
			sinks := m.Backend.Alloc(m.Backend.Compute(), m.Config.Heads)
			logits := make([]float64, m.Config.Heads)
			for h := range logits {
				logits[h] = rng.NormFloat64()
			}
			kernels.Convert(sinks, kernels.FromF64(logits, len(logits)))
			m.Network.Layers[l].Sinks = sinks
		}
	},
}

// TestWindowsOfRoundedCaches: with caches in few bits, layers with sliding windows compute what float64 does over caches of
// the type, whether a prompt comes at once, in chunks or token by token, alone or in a batch, and hold the same entries; a
// fork goes on to the bits of what it was forked from, and steps can be undone. Keys in groups are in BF16 for a row that
// comes soon after them: those of a prompt's first rows are not, where it comes at once.
func TestWindowsOfRoundedCaches(t *testing.T) {
	const n, steps = 900, 40
	shape := modeltest.Llama{Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 40, Layers: 3, Seed: 6}
	for kind, change := range windowKinds {
		for cache, most := range map[string]struct{ whole, parts float64 }{
			"bf16": {2e-4, 2e-4}, "fp8": {5e-4, 5e-4}, "q8_0": {4e-3, 4e-3}, "q4_0": {1e-2, 2e-2}, "kivi4": {5e-4, 4e-2},
		} {
			t.Run(kind+", "+cache, func(t *testing.T) {
				open := func(device, cache string) *model.Model {
					m := shape.Open(t, device)
					if err := m.SetCacheDType(cache); err != nil {
						t.Fatal(err)
					}
					change(m)
					return m
				}
				m, exact := open("cpu", cache), open("reference64", cache)
				tokens := modeltest.Tokens(m, 7, n+steps)
				want, judge := prefill(t, exact, tokens[:n], 512)
				far := func(what string, logits []float32, limit float64) {
					t.Helper()
					if d := relativeRMS(logits, want); !(d <= limit) {
						t.Errorf("%s: logits are off by %.5f, want at most %v", what, d, limit)
					}
				}
				holds := func(what string, c *kvcache.Cache) {
					t.Helper()
					for l := range c.Layers() {
						if w := m.Config.Window(l); w > 0 && c.Entries(l, 0) >= w-1+kernels.WindowBlock || !slices.Equal(c.Positions(l, 1), judge.Positions(l, 1)) {
							t.Errorf("%s: layer %d holds %d entries, want %d", what, l, c.Entries(l, 1), judge.Entries(l, 1))
						}
					}
					got, want, differ := c.View(0)[0], judge.View(0)[0], 0 // which no rounding of other layers has reached
					for i, x := range got.K.Float32s() {
						if math.Abs(float64(x)-want.K.At(i)) > 1e-3 || math.Abs(got.V.At(i)-want.V.At(i)) > 1e-3 {
							differ++
						}
					}
					if differ*100 > got.K.Len() {
						t.Errorf("%s: %d of %d keys and values of the first layer differ", what, differ, got.K.Len())
					}
				}
				plain, _ := prefill(t, open("cpu", "float32"), tokens[:n], 0)
				if relativeRMS(plain, want) == 0 {
					t.Error("nothing is rounded")
				}
				got, whole := prefill(t, m, tokens[:n], 0)
				far("at once", got, most.whole)
				holds("at once", whole)
				for _, chunk := range []int{100, 512, 700} {
					got, parts := prefill(t, m, tokens[:n], chunk)
					far(fmt.Sprint("chunks of ", chunk), got, most.parts)
					holds(fmt.Sprint("chunks of ", chunk), parts)
				}
				r, one := runner.New(m), kvcache.New(m)
				step := func(c *kvcache.Cache, id int32) []float32 {
					t.Helper()
					logits, err := r.Step(background, c, id, runner.Capture{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					return logits
				}
				for _, id := range tokens[:n] {
					got = step(one, id)
				}
				far("token by token", got, most.parts)
				holds("token by token", one)

				fork, err := whole.Fork(nil)
				if err != nil {
					t.Fatal(err)
				}
				beside, err := whole.Fork(nil)
				if err != nil {
					t.Fatal(err)
				}
				whole.Undoable()
				var first []float32
				for i, id := range tokens[n:] {
					alone := step(whole, id)
					if first == nil {
						first = alone
					}
					if !slices.Equal(step(fork, id), alone) {
						t.Fatalf("step %d: a fork has other logits", i)
					}
					both, err := r.StepBatch(background, []*kvcache.Cache{beside, one}, []int32{id, id}, 0)
					if err != nil {
						t.Fatal(err)
					}
					for at, limit := range []float64{most.whole, most.parts} {
						if d := relativeRMS(both[at], alone); !(d <= limit) {
							t.Errorf("step %d: sequence %d of a batch is off by %.5f, want at most %v", i, at, d, limit)
						}
					}
				}
				if err := whole.Truncate(n); err != nil {
					t.Fatal(err)
				}
				if d := relativeRMS(step(whole, tokens[n]), first); !(d <= most.parts) {
					t.Errorf("a step that was undone is off by %.5f the second time, want at most %v", d, most.parts)
				}
			})
		}
	}
}

// relativeRMS is the difference in root mean squares of what is wanted.
func relativeRMS(got, want []float32) float64 {
	var off, all float64
	for i, w := range want {
		off, all = off+math.Pow(float64(got[i])-float64(w), 2), all+math.Pow(float64(w), 2)
	}
	return math.Sqrt(off / all)
}
