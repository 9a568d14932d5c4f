package eviction_test

import (
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
)

// TestKVShapes: where layers with a window have other KV heads than the rest, the rest are evicted, memory is that of every
// layer's own, prompts share their first tokens, in memory and in files, and windows are not evicted.
func TestKVShapes(t *testing.T) {
	m := modeltest.OpenFolder(t, os.DirFS(modeltest.GoldenNamed(t, "gemma4").Folder), "cpu")
	if window, whole := m.Config.KV(0), m.Config.KV(1); window == whole || whole != (model.KVShape{Heads: m.Config.KVHeads, Dim: m.Config.HeadDim}) {
		t.Fatalf("KV heads %v and %v, want others in layers with a window", window, whole)
	}
	document := modeltest.Tokens(m, 5, 200)
	dir := t.TempDir()
	files := kvcache.NewPrefixCache(m, 1<<30)
	if err := files.KeepIn(background, m, dir, 1<<30, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		t.Run(name, func(t *testing.T) {
			p := policy(t, m, name)
			shared := eviction.NewRuntime(m)
			shared.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
			reuses := reusesPrefix(m, p)
			for i := range 2 {
				tokens := slices.Clone(document)
				copy(tokens[150:], modeltest.Tokens(m, uint64(20+i), 50))
				got, err := shared.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: 40})
				if err != nil {
					t.Fatal(err)
				}
				if want := i > 0 && reuses; (got.Reused >= 64) != want {
					t.Errorf("prompt %d: %d tokens were reused", i, got.Reused)
				}
				sameSession(t, got, prefill(t, m, p, tokens, 40))
			}
			if err := policy(t, m, name, name+".windows=evict").Fits(m); err == nil || !strings.Contains(err.Error(), "KV heads of different widths") {
				t.Errorf("windows that are evicted: %v", err)
			}
		})
	}
	// Files of pages are read back.
	p := policy(t, m, "snapkv")
	rt := eviction.NewRuntime(m)
	rt.Prefixes = files
	if _, err := rt.Prefill(background, p, eviction.Prompt{Tokens: document, MaxNew: mostNew(m, p), Budget: 40}); err != nil {
		t.Fatal(err)
	}
	files.Stop()
	again := kvcache.NewPrefixCache(m, 1<<30)
	if err := again.KeepIn(background, m, dir, 1<<30, nil); err != nil {
		t.Fatal(err)
	}
	defer again.Stop()
	rt.Prefixes = again
	got, err := rt.Prefill(background, p, eviction.Prompt{Tokens: document, MaxNew: mostNew(m, p), Budget: 40})
	if err != nil {
		t.Fatal(err)
	}
	if got.Reused < 64 {
		t.Errorf("%d tokens were reused of files", got.Reused)
	}
	sameSession(t, got, prefill(t, m, p, document, 40))
	// A full cache takes what the configuration says, but for the room that heads grow by.
	full := prefill(t, m, policy(t, m, "full"), document[:100], 100)
	if got, want := full.Cache.Bytes(), m.Config.CacheBytes(100, kernels.F32); math.Abs(float64(got-want)) > 0.25*float64(want) {
		t.Errorf("a full cache of %d bytes, want about %d", got, want)
	}
}
