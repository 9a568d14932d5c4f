package eviction_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestSharedPrefix: a prompt that begins as one before it keeps, scores and answers to the bit what it does by itself,
// and runs only what follows the pages that are there. Policies that observe every row run all of it.
func TestSharedPrefix(t *testing.T) {
	for i, shape := range []modeltest.Llama{
		{Layers: 2, Heads: 4, KVHeads: 2, Seed: 2, MaxPositions: 2048},
		{Layers: 2, Hidden: 192, Heads: 3, KVHeads: 1, HeadDim: 64, Intermediate: 256, Seed: 3, MaxPositions: 2048},
		{Layers: 2, Heads: 4, KVHeads: 2, Seed: 4, MaxPositions: 2048},
	} {
		m := shape.Open(t, "cpu")
		if i == 2 {
			modeltest.SetWindows(m, 200, 0)
		}
		document := modeltest.Tokens(m, 5, 1300)
		names := modeltest.Some(t, eviction.Policies.Names())
		if i > 0 { // what differs is caches, of which these make all kinds
			names = modeltest.Some(t, []string{"full", "snapkv", "h2o", "d2o", "lookaheadkv", "rocketkv", "duoattention", "oracle"})
		}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				p := policy(t, m, name)
				shared := eviction.NewRuntime(m)
				shared.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
				reuses := reusesPrefix(m, p)
				for i, n := range []int{1100, 1100, 700, 1290, 1041} {
					tokens := slices.Clone(document[:n])
					copy(tokens[n-60:], modeltest.Tokens(m, uint64(20+i), 60))
					if i == 1 { // the same prompt once more
						copy(tokens[n-60:], modeltest.Tokens(m, 20, 60))
					}
					got, err := shared.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: 100})
					if err != nil {
						t.Fatal(err)
					}
					if least := min(n, 1000) - 200; reuses && i > 0 && got.Reused < least || !reuses && got.Reused > 0 || i == 0 && got.Reused > 0 {
						t.Errorf("prompt %d of %d tokens: %d were reused", i, n, got.Reused)
					}
					sameSession(t, got, prefill(t, m, p, tokens, 100))
				}
			})
		}
	}
}

// reusesPrefix tells that a policy observes nothing of a prompt's first rows.
func reusesPrefix(m *model.Model, p *eviction.Configured) bool {
	capture := planOf(m, p).Capture
	return !capture.AllRows && !capture.Queries && len(capture.Gates) == 0
}

// sameSession compares two sessions to the bit, and what they answer.
func sameSession(t *testing.T, got, want *eviction.Session) {
	t.Helper()
	if !sameBits(got.Logits(), want.Logits()) {
		t.Error("other logits")
	}
	if !sameKept(got.Kept(), want.Kept()) {
		t.Error("other entries are kept")
	}
	for l, heads := range got.Scores() {
		for h, scores := range heads {
			if !sameBits(scores, want.Scores()[l][h]) {
				t.Fatalf("layer %d head %d: other scores", l, h)
			}
		}
	}
	if g, w := generate(t, got, 8), generate(t, want, 8); !slices.Equal(g, w) {
		t.Errorf("answers %v, want %v", g, w)
	}
}

// TestPrefixCacheLimit: pages that were used longest ago go, none that is in use, and the memory is what the limit says.
func TestPrefixCacheLimit(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Heads: 4, KVHeads: 2, Seed: 2, MaxPositions: 2048}.Open(t, "cpu")
	p := policy(t, m, "snapkv")
	rt := eviction.NewRuntime(m)
	page := 64 * int64(m.Config.Layers*m.Config.KVHeads) * kvcache.New(m).LayerPairBytes(0)
	rt.Prefixes = kvcache.NewPrefixCache(m, 10*page)
	a, b := modeltest.Tokens(m, 5, 500), modeltest.Tokens(m, 6, 300)
	reused := func(tokens []int32) int {
		s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, Budget: 50})
		if err != nil {
			t.Fatal(err)
		}
		if n := rt.Prefixes.Bytes(); n > 10*page {
			t.Errorf("%d bytes, want at most %d", n, 10*page)
		}
		return s.Reused
	}
	for i, c := range []struct {
		tokens []int32
		want   int
	}{
		{a, 0}, {a, 448}, // 7 pages
		{b, 0}, {b, 256}, // 4 pages, for which one of a's goes
		{a, 384}, {b, 192}, // one of each takes the place of the other's
	} {
		if got := reused(c.tokens); got != c.want {
			t.Errorf("prompt %d: %d tokens were reused, want %d", i, got, c.want)
		}
	}
	rt.Prefixes = kvcache.NewPrefixCache(m, page/2)
	if reused(a); reused(a) != 0 || rt.Prefixes.Bytes() != 0 {
		t.Error("a limit below a page: want nothing in it")
	}
}

// TestPrefixFiles: pages outlive their cache in files of at most the limit; one that is damaged is gone, and another
// model has none.
func TestPrefixFiles(t *testing.T) {
	shape := modeltest.Llama{Layers: 2, Hidden: 192, Heads: 3, KVHeads: 1, HeadDim: 64, Intermediate: 256, Seed: 3}
	m := shape.Open(t, "cpu")
	p, dir := policy(t, m, "snapkv"), filepath.Join(t.TempDir(), "prefixes")
	tokens := modeltest.Tokens(m, 5, 700)
	units := 0 // of the last prompt
	run := func(m *model.Model, limit int64) int {
		rt := eviction.NewRuntime(m)
		rt.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
		if err := rt.Prefixes.KeepIn(t.Context(), m, dir, limit, nil); err != nil {
			t.Fatal(err)
		}
		got, err := rt.NewSession(p, eviction.Pairs(100))
		if err != nil {
			t.Fatal(err)
		}
		units = 0
		if err := got.Turn(runner.WithPause(background, func() error { units++; return nil }), eviction.Prompt{Tokens: tokens}); err != nil {
			t.Fatal(err)
		}
		rt.Prefixes.Stop()
		sameSession(t, got, prefill(t, m, p, tokens, 100))
		return got.Reused
	}
	files := func() (names []string, bytes int64) {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			names, bytes = append(names, filepath.Join(dir, e.Name())), bytes+info.Size()
		}
		return names, bytes
	}
	for i, want := range []int{0, 638} { // 638 = 512 + 2·63, of at most 700 - 32
		if got := run(m, 1<<30); got != want {
			t.Errorf("run %d: %d tokens were reused, want %d", i, got, want)
		}
		if names, _ := files(); i > 0 && units < len(names)-1+2 { // a page is beyond what may be reused
			t.Errorf("%d units, want one for each page of %d that is read, and for each of two layers", units, len(names))
		}
	}
	names, bytes := files()
	for _, name := range names {
		if err := os.Truncate(name, 100); err != nil {
			t.Fatal(err)
		}
	}
	if got := run(m, 1<<30); got != 0 {
		t.Errorf("damaged files: %d tokens were reused", got)
	}
	other := shape
	other.Seed = 4
	otherModel := other.Open(t, "cpu")
	own := p
	p = policy(t, otherModel, "snapkv")
	if got := run(otherModel, 1<<30); got != 0 {
		t.Errorf("another model: %d tokens were reused", got)
	}
	p = own
	if got := run(m, bytes/2); got == 638 {
		t.Error("more than half of the files are there")
	}
	if _, after := files(); after == 0 || after > bytes/2 {
		t.Errorf("%d bytes, want at most %d", after, bytes/2)
	}
}
