package runner_test

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// contents is everything that a cache holds.
func contents(c *kvcache.Cache) (keys [][]float32, pos [][]int32) {
	for l := range c.Layers() {
		for h, kv := range c.View(l) {
			keys = append(keys, kv.K.Float32s(), kv.V.Float32s())
			pos = append(pos, slices.Clone(c.Positions(l, h)))
		}
	}
	return keys, pos
}

func sameContents(a, b *kvcache.Cache) bool {
	ka, pa := contents(a)
	kb, pb := contents(b)
	return slices.EqualFunc(ka, kb, slices.Equal) && slices.EqualFunc(pa, pb, slices.Equal) && a.Next() == b.Next()
}

// TestRefusedPromptsLeaveTheCacheAlone: an empty cache, and one that holds a
// prompt.
func TestRefusedPromptsLeaveTheCacheAlone(t *testing.T) {
	m := modeltest.Llama{MaxPositions: 50}.Open(t, "cpu")
	observe := func(*runner.Observation) error { return nil }
	for _, held := range []int{0, 10} {
		for name, c := range map[string]struct {
			tokens []int32
			opt    runner.PrefillOptions
			want   string
			is     error
		}{
			"no tokens":             {nil, runner.PrefillOptions{}, "empty prompt", nil},
			"negative id":           {[]int32{1, -1}, runner.PrefillOptions{}, "token 1: id -1, want 0 to 39", nil},
			"id past vocabulary":    {[]int32{1, 2, 40}, runner.PrefillOptions{}, "token 2: id 40, want 0 to 39", nil},
			"too long":              {make([]int32, 51-held), runner.PrefillOptions{}, "want at most 50", model.ErrContext},
			"windows unobserved":    {[]int32{1}, runner.PrefillOptions{Capture: runner.Capture{Windows: []int{1}}}, "no observer", nil},
			"all rows unobserved":   {[]int32{1}, runner.PrefillOptions{Capture: runner.Capture{AllRows: true}}, "no observer", nil},
			"probes unobserved":     {[]int32{1}, runner.PrefillOptions{Capture: runner.Capture{Probes: []model.QueryRows{model.TokenRows{1}}}}, "no observer", nil},
			"queries unobserved":    {[]int32{1}, runner.PrefillOptions{Capture: runner.Capture{Queries: true}}, "no observer", nil},
			"negative id, observed": {[]int32{-5}, runner.PrefillOptions{Capture: runner.Capture{AllRows: true}, Observe: observe}, "id -5", nil},
		} {
			r, cache := runner.New(m), kvcache.New(m)
			if held > 0 {
				if _, err := r.Prefill(background, cache, modeltest.Tokens(m, 1, held), runner.PrefillOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			before, err := cache.Fork(nil)
			if err != nil {
				t.Fatal(err)
			}
			bytes := cache.Bytes()
			logits, err := r.Prefill(background, cache, c.tokens, c.opt)
			if err == nil || !strings.Contains(err.Error(), c.want) || logits != nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s on %d: %v, want %q", name, held, err, c.want)
			}
			if !sameContents(before, cache) || cache.Bytes() != bytes {
				t.Errorf("%s on %d: the cache changed", name, held)
			}
			// It still works.
			if _, err := r.Prefill(background, cache, []int32{1, 2}, runner.PrefillOptions{}); err != nil {
				t.Errorf("%s on %d: afterwards: %v", name, held, err)
			}
		}
	}
	// The longest prompt that fits.
	if _, err := runner.New(m).Prefill(background, kvcache.New(m), modeltest.Tokens(m, 1, 50), runner.PrefillOptions{}); err != nil {
		t.Error(err)
	}
}

func TestPrefillIsCancelled(t *testing.T) {
	m := modeltest.Llama{Layers: 4}.Open(t, "cpu")
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	layers := 0
	observe := func(*runner.Observation) error {
		if layers++; layers == 2 {
			cancel()
		}
		return nil
	}
	_, err := runner.New(m).Prefill(ctx, kvcache.New(m), []int32{1, 2, 3}, runner.PrefillOptions{Observe: observe})
	if !errors.Is(err, context.Canceled) || layers != 2 {
		t.Errorf("%v after %d layers, want context.Canceled after 2", err, layers)
	}
	r, cache, _ := start(t, m, []int32{1, 2, 3})
	layers = -1 // ctx is done already
	if err := r.Probe(ctx, cache, model.TokenRows{1}, false, observe); !errors.Is(err, context.Canceled) || layers != -1 {
		t.Errorf("probe: %v, want context.Canceled at once", err)
	}
	stop := errors.New("stop")
	_, err = r.Prefill(background, kvcache.New(m), []int32{1}, runner.PrefillOptions{Observe: func(o *runner.Observation) error {
		if o.Layer == 1 {
			return stop
		}
		return nil
	}})
	if !errors.Is(err, stop) {
		t.Errorf("the observer's error became %v", err)
	}
	// The runner can be used again after all of these.
	if _, err := r.Prefill(background, kvcache.New(m), []int32{1}, runner.PrefillOptions{}); err != nil {
		t.Error(err)
	}
}

// TestTurns: a prompt in several calls is the prompt in one.
func TestTurns(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3}.Open(t, device)
		tokens := modeltest.Tokens(m, 7, 60)
		want, whole := prefill(t, m, tokens, 0)
		r, cache := runner.New(m), kvcache.New(m)
		var logits []float32
		for _, cut := range [][2]int{{0, 25}, {25, 26}, {26, 60}} {
			var err error
			if logits, err = r.Prefill(background, cache, tokens[cut[0]:cut[1]], runner.PrefillOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		compare.CloseToScale(t, device+": logits", logits, want, 1e-5)
		for l := range cache.Layers() {
			for h, kv := range cache.View(l) {
				compare.CloseToScale(t, device+": values", kv.V.Float32s(), whole.View(l)[h].V.Float32s(), 1e-5)
			}
		}
	}
}

// TestCacheOnly: the same cache, no logits.
func TestCacheOnly(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3}.Open(t, device)
		tokens := modeltest.Tokens(m, 7, 60)
		_, want := prefill(t, m, tokens, 16)
		cache := kvcache.New(m)
		logits, err := runner.New(m).Prefill(background, cache, tokens, runner.PrefillOptions{CacheOnly: true, Chunk: 16})
		if err != nil || logits != nil {
			t.Fatalf("%s: logits %v, %v", device, logits, err)
		}
		if !sameContents(cache, want) {
			t.Errorf("%s: the cache is not that of a pass with logits", device)
		}
	}
}

// TestObservationsDoNotDependOnChunks: windows of any length, all rows, probes and
// queries, whatever the chunks, on an empty cache and on an evicted one.
func TestObservationsDoNotDependOnChunks(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3}.Open(t, device)
		for _, earlier := range []int{0, 30} {
			n := 41
			type layer struct {
				windows       [][]float32
				all, probe    []float32
				queries, keys []float32
			}
			pass := func(chunk int, capture runner.Capture, cacheOnly bool) (out []layer) {
				r, cache := runner.New(m), kvcache.New(m)
				if earlier > 0 {
					if _, err := r.Prefill(background, cache, modeltest.Tokens(m, 8, earlier), runner.PrefillOptions{}); err != nil {
						t.Fatal(err)
					}
					for l := range cache.Layers() { // ragged
						if err := cache.Retain(l, [][]int32{{0, 3, 9, int32(10 + l)}, {1}}); err != nil {
							t.Fatal(err)
						}
					}
				}
				_, err := r.Prefill(background, cache, modeltest.Tokens(m, 7, n), runner.PrefillOptions{
					Chunk: chunk, Capture: capture, CacheOnly: cacheOnly,
					Observe: func(o *runner.Observation) error {
						l := layer{}
						for _, w := range o.Windows {
							l.windows = append(l.windows, w.Float32s())
						}
						if o.AllRows != nil {
							l.all = o.AllRows.Float32s()
						}
						for _, p := range o.Probes {
							l.probe = p.Float32s()
						}
						if o.Queries != nil {
							l.queries, l.keys = o.Queries[0].Float32s(), o.Keys.Float32s()
						}
						out = append(out, l)
						return nil
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				return out
			}
			capture := runner.Capture{Windows: []int{1, 7, n, n + 100}, AllRows: true, Queries: true, Probes: []model.QueryRows{model.TokenRows{3, 4, 5}}}
			want := pass(0, capture, false)
			same := func(what string, l int, got, want []float32) {
				t.Helper()
				width := len(want) / m.Config.Heads
				if len(got) != len(want) {
					t.Fatalf("%s: layer %d: %d scores, want %d", what, l, len(got), len(want))
				}
				for h := range m.Config.Heads { // columns beyond a head's entries are undefined
					k := n
					if earlier > 0 {
						k += []int{4, 1}[h/m.Config.Group()]
					}
					compare.Close(t, what, got[h*width:][:k], want[h*width:][:k], 1e-5, compare.EqualInf())
				}
			}
			sameVectors := func(what string, l int, got, want []float32, heads int) {
				t.Helper()
				if len(want) != n*heads*m.Config.HeadDim {
					t.Fatalf("%s: layer %d: %d numbers of %d rows", what, l, len(want), n)
				}
				compare.Close(t, what, got, want, 1e-5, compare.Floor(1))
			}
			for _, chunk := range []int{1, 6, 40} {
				for _, cacheOnly := range []bool{false, true} {
					for l, got := range pass(chunk, capture, cacheOnly) {
						for i := range capture.Windows {
							same(device+": window", l, got.windows[i], want[l].windows[i])
						}
						same(device+": all rows", l, got.all, want[l].all)
						same(device+": probe", l, got.probe, want[l].probe)
						sameVectors(device+": queries", l, got.queries, want[l].queries, m.Config.Heads)
						sameVectors(device+": keys", l, got.keys, want[l].keys, m.Config.KVHeads)
					}
				}
			}
			// All rows are the window of the whole pass; a longer window is clipped to it.
			for l := range want {
				same(device+": all rows as a window", l, want[l].windows[2], want[l].all)
				same(device+": longer window", l, want[l].windows[3], want[l].windows[2])
			}
			// One thing observed at a time.
			for l, got := range pass(6, runner.Capture{Windows: []int{7}}, false) {
				same(device+": window alone", l, got.windows[0], want[l].windows[1])
				if got.all != nil || got.probe != nil || got.queries != nil {
					t.Errorf("%s: something was observed that nobody asked for", device)
				}
			}
			for l, got := range pass(6, runner.Capture{AllRows: true}, true) {
				same(device+": all rows alone", l, got.all, want[l].all)
			}
			for l, got := range pass(6, runner.Capture{Queries: true}, true) {
				sameVectors(device+": queries alone", l, got.queries, want[l].queries, m.Config.Heads)
			}
		}
	}
}

// TestObservingAllRowsIsBounded: a prompt whose rows are all observed, or whose queries are, goes
// through in chunks all the same, or a long one would need activations for every
// row at once.
func TestObservingAllRowsIsBounded(t *testing.T) {
	m := modeltest.Llama{Hidden: 32, Intermediate: 3000}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 1, 1000)
	scratch := func(c runner.Capture) int64 {
		r := runner.New(m)
		if _, err := r.Prefill(background, kvcache.New(m), tokens, runner.PrefillOptions{
			Chunk: 64, Capture: c, Observe: func(*runner.Observation) error { return nil },
		}); err != nil {
			t.Fatal(err)
		}
		return r.ScratchBytes()
	}
	plain := scratch(runner.Capture{})
	for _, c := range []runner.Capture{{AllRows: true}, {Queries: true}} {
		if observed := scratch(c); observed > 3*plain {
			t.Errorf("observing %+v takes %d bytes of scratch memory, a plain pass %d", c, observed, plain)
		}
	}
}

// TestScratchMemoryOfGrowingPrompts: a runner that serves longer and longer
// prompts holds what the longest needs.
func TestScratchMemoryOfGrowingPrompts(t *testing.T) {
	m := modeltest.Llama{Hidden: 256, HeadDim: 16, Intermediate: 512, Layers: 1}.Open(t, "cpu")
	r := runner.New(m)
	for n := 600; n <= 2400; n += 100 {
		if _, err := r.Prefill(background, kvcache.New(m), modeltest.Tokens(m, 1, n), runner.PrefillOptions{CacheOnly: true}); err != nil {
			t.Fatal(err)
		}
	}
	fresh := runner.New(m)
	if _, err := fresh.Prefill(background, kvcache.New(m), modeltest.Tokens(m, 1, 2400), runner.PrefillOptions{CacheOnly: true}); err != nil {
		t.Fatal(err)
	}
	if got, want := r.ScratchBytes(), fresh.ScratchBytes(); got > 2*want {
		t.Errorf("%d bytes of scratch memory after growing prompts, the longest alone takes %d", got, want)
	}
}

// TestObserveQueries: the scores of a step's own queries and keys, taken
// afterwards on a cache without them, are those of a probe of the same token.
func TestObserveQueries(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{Layers: 3}.Open(t, device)
		prompt := modeltest.Tokens(m, 4, 33)
		r, cache, _ := start(t, m, prompt)
		full, err := cache.Fork(nil)
		if err != nil {
			t.Fatal(err)
		}
		queries, keys := make([]*kernels.Tensor, 3), make([]*kernels.Tensor, 3)
		clone := func(x *kernels.Tensor) *kernels.Tensor {
			y := m.Backend.Alloc(x.DType, x.Shape...)
			m.Backend.Copy(y, x)
			return y
		}
		if _, err := r.Step(background, cache, 9, runner.Capture{Queries: true}, func(o *runner.Observation) error {
			queries[o.Layer], keys[o.Layer] = clone(o.Queries[0]), clone(o.Keys)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		var want [][]float32
		if err := r.Probe(background, full, model.TokenRows{9}, false, func(o *runner.Observation) error {
			want = append(want, o.Probes[0].Float32s())
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for l := range want {
			got := r.ObserveQueries(full, l, queries[l:l+1], keys[l])
			compare.Close(t, device, got.Float32s(), want[l], 1e-5, compare.Floor(1))
		}
	}
}

// TestProbeOfAnEmptyCache has no column to observe.
func TestProbeOfAnEmptyCache(t *testing.T) {
	for _, device := range devices {
		m := modeltest.Llama{}.Open(t, device)
		if err := runner.New(m).Probe(background, kvcache.New(m), model.TokenRows{1, 2}, false, func(o *runner.Observation) error {
			if o.Probes[0].Len() != 0 {
				t.Errorf("%s: scores %v of no entries", device, o.Probes[0].Shape)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestEvictedEntriesAreGone: decoding after Retain is decoding with those entries
// masked, at the original positions.
func TestEvictedEntriesAreGone(t *testing.T) {
	m := modeltest.Llama{Layers: 1}.Open(t, "reference64") // one layer: its keys do not depend on what is evicted
	prompt := modeltest.Tokens(m, 4, 12)
	r, cache, _ := start(t, m, prompt)
	keep := []int32{0, 3, 4, 9, 11}
	if err := cache.Retain(0, [][]int32{keep, keep}); err != nil {
		t.Fatal(err)
	}
	var got []float32
	if _, err := r.Step(background, cache, 5, runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
		got = o.Windows[0].Float32s()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	// With everything kept, and the probabilities normalised over what was kept.
	_, full, _ := start(t, m, prompt)
	var all []float32
	if _, err := r.Step(background, full, 5, runner.Capture{Windows: []int{1}}, func(o *runner.Observation) error {
		all = o.Windows[0].Float32s()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	width := len(prompt) + 1
	for h := range m.Config.Heads {
		var want []float64
		sum := 0.0
		for _, j := range append(slices.Clone(keep), int32(width-1)) {
			p := math.Exp(float64(all[h*width+int(j)]))
			want, sum = append(want, p), sum+p
		}
		for i := range want {
			want[i] = math.Log(want[i] / sum)
		}
		compare.Close(t, "scores", got[h*len(want):][:len(want)], want, 1e-6, compare.Floor(1))
	}
	if next := cache.Next(); next != int32(width) || !slices.Equal(cache.Positions(0, 1), append(keep, int32(width-1))) {
		t.Errorf("next %d, positions %v", next, cache.Positions(0, 1))
	}
}
