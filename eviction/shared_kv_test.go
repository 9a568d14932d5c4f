package eviction_test

import (
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// openShared is a model of which layers 3 and 5 read the keys and values of layer 1, and layer 4 those of layer 2, which has a window.
func openShared(t *testing.T) *model.Model {
	t.Helper()
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "gemma4-e2b").Folder), "cpu")
	var from []int
	for l := range m.Config.Layers {
		from = append(from, m.Config.KVLayer(l))
	}
	if want := []int{0, 1, 2, 1, 2, 1}; !slices.Equal(from, want) {
		t.Fatalf("layers read the keys and values of %v, want %v", from, want)
	}
	return m
}

// TestSharedCaches: of layers that share a cache every policy decides once, and the cache, its bytes and its traffic are those of one:
// in sessions, a study's forks, batches, further turns and after shared first tokens alike.
func TestSharedCaches(t *testing.T) {
	m := openShared(t)
	const n, budget, length = 200, 40, 12
	document := modeltest.Tokens(m, 5, n)
	all := slices.Clone(variants)
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		all = append(all, []string{name})
	}
	for _, v := range all {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			p := policy(t, m, v[0], v[1:]...)
			s := prefill(t, m, p, document, budget)
			for l, kept := range s.Kept() {
				if (kept != nil) != (l == 1) {
					t.Fatalf("layer %d: keeps %v, want a decision about layer 1 alone", l, kept)
				}
				if l > 2 && (s.Cache.LayerBytes(l) > 0 || s.Cache.LayerKVHeads(l) > 0) {
					t.Errorf("layer %d holds %d bytes, want those of another layer to be read", l, s.Cache.LayerBytes(l))
				}
			}
			if want := m.Config.CacheBytes(n, m.CacheDType()); s.FullBytes < want || s.FullBytes > want+want/4 {
				t.Errorf("the full cache takes %d bytes, want %d", s.FullBytes, want)
			}
			want := generate(t, s, length)
			if s.Traffic.Steps != length-1 {
				t.Errorf("counts %d steps, want %d", s.Traffic.Steps, length-1)
			}
			sameElsewhere(t, m, p, document, budget, want)
			shared := eviction.NewRuntime(m)
			shared.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
			for i := range 2 {
				tokens := slices.Clone(document)
				copy(tokens[150:], modeltest.Tokens(m, uint64(20+i), 50))
				got, err := shared.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				if reuses := i > 0 && reusesPrefix(m, p); (got.Reused >= 64) != reuses {
					t.Errorf("prompt %d: %d tokens were reused", i, got.Reused)
				}
				sameSession(t, got, prefill(t, m, p, tokens, budget))
			}
		})
	}
}

// TestSharedCachesAreObservedOnce: what is observed of a cache is the mean over the layers that read it, in passes of one piece, in
// chunks, of probes beside a prompt and with its last rows, and in steps; of peaks the largest. The judge is a model of the same
// numbers whose layers are told apart by what each of them alone reads: attention over the pairs that the cache holds.
func TestSharedCachesAreObservedOnce(t *testing.T) {
	m := openShared(t)
	tokens, probe := modeltest.Tokens(m, 7, 90), model.TokenRows(modeltest.Tokens(m, 8, 5))
	capture := runner.Capture{Windows: []int{8}, AllRows: true, Squares: true, Probes: []model.QueryRows{probe}, PeakWindows: []int{8}, PeakProbes: []model.QueryRows{probe}}
	type seen struct {
		order []int
		rows  map[string][]float32
	}
	observe := func(opt runner.PrefillOptions) (out seen) {
		out.rows = make(map[string][]float32)
		cache := kvcache.New(m)
		opt.Capture, opt.Observe = capture, func(o *runner.Observation) error {
			out.order = append(out.order, o.Layer)
			for what, x := range map[string][]*kernels.Tensor{
				"window": o.Windows, "probe": o.Probes, "peak window": o.PeakWindows, "peak probe": o.PeakProbes, "rows": {o.AllRows}, "squares": {o.Squares},
			} {
				if len(x) != 1 {
					t.Fatalf("layer %d: %d of %s, want 1", o.Layer, len(x), what)
				}
				var p []float32
				for h := range m.Config.Heads {
					for _, log := range x[0].Float32s()[h*x[0].Width():][:o.Cache.Entries(o.Layer, 0)] {
						p = append(p, float32(math.Exp(float64(log))))
					}
				}
				out.rows[fmt.Sprintf("layer %d: %s", o.Layer, what)] = p
			}
			return nil
		}
		if _, err := runner.New(m).Prefill(background, cache, tokens, opt); err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := observe(runner.PrefillOptions{})
	if order := []int{0, 2, 1}; !slices.Equal(want.order, order) {
		t.Errorf("observed %v, want %v: a shared cache when its last layer has run", want.order, order)
	}
	for _, chunk := range []int{7, 40} {
		got := observe(runner.PrefillOptions{Chunk: chunk})
		for what := range want.rows {
			compare.Close(t, fmt.Sprintf("%s in chunks of %d", what, chunk), got.rows[what], want.rows[what], 1e-5, compare.Floor(1e-2))
		}
	}
	// A policy ranks by what is observed of all of them.
	last := runner.PrefillOptions{Capture: runner.Capture{Windows: []int{1}}}
	var mean []float32
	last.Observe = func(o *runner.Observation) error {
		if o.Layer == 1 {
			x := o.Windows[0]
			mean = make([]float32, o.Cache.Entries(1, 0))
			for h := range m.Config.Heads {
				for j := range mean {
					mean[j] += float32(math.Exp(float64(x.Float32s()[h*x.Width()+j]))) / float32(m.Config.Heads)
				}
			}
		}
		return nil
	}
	if _, err := runner.New(m).Prefill(background, kvcache.New(m), tokens, last); err != nil {
		t.Fatal(err)
	}
	s := prefill(t, m, policy(t, m, "tova"), tokens, 20)
	if got, want := s.Kept()[1][0], kernels.TopK(mean, 20); !slices.Equal(got, want) {
		t.Errorf("keeps %v, want those that all layers which read the cache attend to most, %v", got, want)
	}
	for what, p := range want.rows {
		sum := 0.0
		for _, x := range p {
			sum += float64(x)
		}
		if heads := float64(m.Config.Heads); (what == "layer 1: window" || what == "layer 1: rows") && math.Abs(sum-heads) > 1e-4 {
			t.Errorf("%s: probabilities of %v heads sum to %v", what, heads, sum)
		}
	}
}
