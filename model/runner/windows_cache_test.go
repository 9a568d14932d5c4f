package runner_test

import (
	"fmt"
	"maps"
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
	"mistral": func(m *model.Model) { modeltest.SetWindows(m, 60, 60, 60) },
	"gemma": func(m *model.Model) { // 2, with soft caps; 3 without
		modeltest.SetWindows(m, 40, 0, 300)
		m.Config.AttentionCap, m.Config.LogitCap = 5, 10
	},
	"gpt-oss": func(m *model.Model) {
		modeltest.SetWindows(m, 40, 0, 300)
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
//
// Bounds are shares of what the type costs: of the distance between float64's logits with caches of the type and with
// unrounded ones, which no processor's level changes. A type with steps of h is off by h/√12 in root mean square. A number
// that float32 computes e off, e much below h, is rounded to the other neighbour with probability e/h, and then is off by h. So if
// a share f of the numbers went the other way, logits are off by √(12 f) of the cost. Float32 has e/h of 2·10⁻⁴ in bf16's first layer, and each
// layer makes e of its logits' distance for the next: f grows to 1/6 at most, where roundings have nothing in common and differ by √2 of the
// cost.
//
// half: the same numbers are rounded, and f is 1/48 at most. For q4_0, queries that are rounded to 8 bits give each number an error of a
// sixteenth of its step, which makes f as large.
//
// apart: the rounded numbers are others, since keys were in BF16 for other rows.
//
// queries: their 8 bits cost as much as those of q8_0, as do blocks that are widened to bf16, and caches are apart besides.
func TestWindowsOfRoundedCaches(t *testing.T) {
	const n, steps = 1240, 40
	type bounds struct{ whole, parts float64 }              // of what rounding costs
	const half, apart, queries = 0.5, math.Sqrt2, 1.7320508 // √3
	shape := modeltest.Llama{Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 32, Intermediate: 40, Layers: 3, Seed: 6}
	open := func(t *testing.T, device, cache string, change func(m *model.Model)) *model.Model {
		m := shape.Open(t, device)
		if err := m.SetCacheDType(cache); err != nil {
			t.Fatal(err)
		}
		change(m)
		return m
	}
	stepOf := func(t *testing.T, m *model.Model, c *kvcache.Cache, id int32) []float32 {
		t.Helper()
		logits, err := runner.New(m).Step(background, c, id, runner.Capture{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return logits
	}
	for k, kind := range slices.Sorted(maps.Keys(windowKinds)) {
		change := windowKinds[kind]
		unrounded := open(t, "reference64", "float32", change)
		tokens := modeltest.Tokens(unrounded, 7, n+steps)
		logits, free := prefill(t, unrounded, tokens[:n], 512)
		for _, id := range tokens[n:] {
			logits = append(logits, stepOf(t, unrounded, free, id)...)
		}
		for i, c := range []struct {
			cache string
			most  bounds
		}{
			{"bf16", bounds{half, half}}, {"fp8", bounds{half, half}}, {"q8_0", bounds{queries, queries}},
			{"q4_0", bounds{half, half}}, {"kivi4", bounds{half, apart}},
		} {
			cache, most := c.cache, c.most
			if testing.Short() && (i+k)%len(windowKinds) > 0 {
				continue // each cache with one kind of windows, each kind with a cache
			}
			t.Run(kind+", "+cache, func(t *testing.T) {
				step := func(m *model.Model, c *kvcache.Cache, id int32) []float32 {
					t.Helper()
					return stepOf(t, m, c, id)
				}
				m, exact := open(t, "cpu", cache, change), open(t, "reference64", cache, change)
				want, judge := prefill(t, exact, tokens[:n], 512)
				after, err := judge.Fork(nil)
				if err != nil {
					t.Fatal(err)
				}
				var wants []float32 // of all steps
				for _, id := range tokens[n:] {
					wants = append(wants, step(exact, after, id)...)
				}
				cost := relativeRMS(logits, slices.Concat(want, wants))
				if cost < 1e-4 {
					t.Errorf("rounding costs %g: nothing is rounded", cost)
				}
				far := func(what string, logits, want []float32, most float64) {
					t.Helper()
					if d := relativeRMS(logits, want); !(d <= most*cost) {
						t.Errorf("%s: logits are off by %.5f, want at most %.2f of what rounding costs, %.5f", what, d, most, cost)
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
				got, whole := prefill(t, m, tokens[:n], 0)
				far("at once", got, want, most.whole)
				holds("at once", whole)
				for _, chunk := range []int{100, 512, 700} {
					got, parts := prefill(t, m, tokens[:n], chunk)
					far(fmt.Sprint("chunks of ", chunk), got, want, most.parts)
					holds(fmt.Sprint("chunks of ", chunk), parts)
				}
				one := kvcache.New(m)
				for _, id := range tokens[:n] {
					got = step(m, one, id)
				}
				far("token by token", got, want, most.parts)
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
				r := runner.New(m)
				var alone, first, second []float32 // of all steps, the latter in a batch
				for i, id := range tokens[n:] {
					logits := step(m, whole, id)
					if !slices.Equal(step(m, fork, id), logits) {
						t.Fatalf("step %d: a fork has other logits", i)
					}
					both, err := r.StepBatch(background, []*kvcache.Cache{beside, one}, []int32{id, id}, 0)
					if err != nil {
						t.Fatal(err)
					}
					alone, first, second = append(alone, logits...), append(first, both[0]...), append(second, both[1]...)
				}
				far("steps", alone, wants, most.whole)
				far("steps in a batch, after a prompt at once", first, wants, most.whole)
				far("steps in a batch, after a prompt token by token", second, wants, most.parts)
				if err := whole.Truncate(n); err != nil {
					t.Fatal(err)
				}
				far("a step that was undone, the second time", step(m, whole, tokens[n]), alone[:len(want)], most.parts)
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
