package eviction_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// contextModels are models of every kind of layer and cache, with whether sliding windows are evicted, too.
func contextModels(t *testing.T, f func(t *testing.T, m *model.Model, options ...string)) {
	for _, c := range []struct{ model, cache, option string }{
		{"llama", "float32", ""}, {"llama", "bf16", ""}, {"llama", "float32", "keydiff.refit=matching"}, {"llama", "bf16", "keydiff.refit=values"}, {"llama", "q8_0", ""}, {"llama", "kivi4", ""},
		{"gemma3", "float32", ""}, {"gemma3", "float32", "keydiff.windows=evict"}, {"qwen3-next", "float32", ""}, {"lfm2", "bf16", ""}, {"gemma4-e2b", "float32", ""},
	} {
		t.Run(strings.Join([]string{c.model, c.cache, c.option}, " "), func(t *testing.T) {
			m := openContextModel(t, c.model, c.cache)
			options := []string{}
			if c.option != "" {
				options = append(options, c.option)
			}
			f(t, m, options...)
		})
	}
}

func openContextModel(t *testing.T, name, cache string) *model.Model {
	t.Helper()
	if name == "llama" {
		m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, MaxPositions: 400, Seed: 3}.Open(t, "cpu")
		if err := m.SetCacheDType(cache); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m, err := model.Open(modeltest.GoldenNamed(t, name).Folder, model.Options{CacheDType: cache})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func saveContext(m *model.Model, path string, c *eviction.Context, o eviction.ContextOrigin) error {
	return atomicfile.Write(path, func(w io.Writer) error { return c.Write(context.Background(), m, w, o) })
}

// answerBehind is what a session says to a question.
func answerBehind(t *testing.T, s *eviction.Session, question []int32) []int32 {
	t.Helper()
	if err := s.Turn(context.Background(), eviction.Prompt{Tokens: question, MaxNew: 6}); err != nil {
		t.Fatal(err)
	}
	return generate(t, s, 6)
}

// compressed is a session behind a context.
func compressed(t *testing.T, m *model.Model, p *eviction.Configured, tokens []int32, budget int) *eviction.Session {
	t.Helper()
	s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(budget))
	if err == nil {
		err = s.Compress(context.Background(), eviction.Prompt{Tokens: tokens}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestContexts: what a session answers behind a context is what it answers to a second turn behind a first that was evicted, with
// nothing evicted any more; so it is for every copy of the context, whatever was said behind another, and for one that has gone through a file.
func TestContexts(t *testing.T) {
	contextModels(t, func(t *testing.T, m *model.Model, options ...string) {
		const n, budget = 90, 20
		p := policy(t, m, "keydiff", options...)
		tokens, first, second := modeltest.Tokens(m, 4, n), modeltest.Tokens(m, 5, 7), modeltest.Tokens(m, 6, 40)
		want := func(question []int32) []int32 {
			s := prefill(t, m, p, tokens, budget)
			if _, err := s.Force(context.Background(), nil); err != nil {
				t.Fatal(err)
			}
			s.KeepRest()
			return answerBehind(t, s, question)
		}
		s := compressed(t, m, p, tokens, budget)
		c := s.Context
		for l, heads := range c.Kept() {
			for h, positions := range heads {
				if m.Config.Window(l) == 0 && !m.Config.Recurrent(l) && len(positions) != budget {
					t.Errorf("layer %d, head %d: keeps %d entries, want %d", l, h, len(positions), budget)
				}
			}
		}
		before := c.Bytes()
		if got := answerBehind(t, s, first); !slices.Equal(got, want(first)) {
			t.Errorf("behind the context: %v, want %v", got, want(first))
		}
		if c.Bytes() != before {
			t.Errorf("the context holds %d bytes, before %d", c.Bytes(), before)
		}
		path := filepath.Join(t.TempDir(), "doc.kv")
		if err := saveContext(m, path, c, eviction.ContextOrigin{Policy: "keydiff", Budget: c.Budget.String()}); err != nil {
			t.Fatal(err)
		}
		f, err := eviction.OpenContext(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		read, err := f.Read(context.Background(), m)
		if err != nil {
			t.Fatal(err)
		}
		full := policy(t, m, "full")
		for _, question := range [][]int32{second, first} {
			for name, of := range map[string]*eviction.Context{"another copy": c, "a file": read} {
				s, err := eviction.NewRuntime(m).NewSession(full, eviction.Pairs(1))
				if err == nil {
					err = s.Resume(of, 0)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := answerBehind(t, s, question); !slices.Equal(got, want(question)) {
					t.Errorf("behind %s: %v, want %v", name, got, want(question))
				}
			}
		}
		if !slices.Equal(read.Tokens, tokens) || read.Bytes() > c.Bytes() {
			t.Errorf("read %d tokens in %d bytes, want %d in at most %d", len(read.Tokens), read.Bytes(), n, c.Bytes())
		}
	})
}

// TestLearnedContexts: a context has no question, and its heads keep by their shares alone.
func TestLearnedContexts(t *testing.T) {
	const n, budget = 120, 30
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, Seed: 8}.Open(t, "cpu")
	overrides, err := eviction.ParseOverrides([]string{"snapkv.head-budgets=learned", "snapkv.window=2"})
	if err != nil {
		t.Fatal(err)
	}
	b := randomBudgets(m, 2)
	p, err := eviction.NewWith("snapkv", policySeed, overrides, eviction.Resources{HeadBudgets: b})
	if err != nil {
		t.Fatal(err)
	}
	tokens := modeltest.Tokens(m, 4, n)
	want := eviction.HeadBudgetsOf(b, eviction.Prompt{Tokens: tokens, Entries: n, Budget: budget, Config: &m.Config}, 2)
	differs := false
	whole := prefill(t, m, p, tokens, budget).Kept()
	for l, heads := range compressed(t, m, p, tokens, budget).Context.Kept() {
		for h, kept := range heads {
			if len(kept) != want[l][h] {
				t.Errorf("layer %d, head %d: keeps %d entries, want %d", l, h, len(kept), want[l][h])
			}
			differs = differs || len(kept) != len(whole[l][h])
		}
	}
	if !differs {
		t.Error("a prompt with a question keeps as many")
	}
}

// TestRewindToContext: a conversation whose text was written in another way goes back to its context, and no further.
func TestRewindToContext(t *testing.T) {
	m := openContextModel(t, "llama", "float32")
	p := policy(t, m, "snapkv")
	tokens, question, other := modeltest.Tokens(m, 4, 90), modeltest.Tokens(m, 5, 7), modeltest.Tokens(m, 6, 9)
	s := compressed(t, m, p, tokens, 20)
	want := answerBehind(t, compressed(t, m, p, tokens, 20), other)
	answerBehind(t, s, question)
	whole := slices.Concat(tokens, other)
	kept, err := s.Rewind(whole)
	if err != nil || kept != len(tokens) {
		t.Fatalf("%d tokens are kept, error %v, want %d", kept, err, len(tokens))
	}
	if got := answerBehind(t, s, whole[kept:]); !slices.Equal(got, want) {
		t.Errorf("behind the context: %v, want %v", got, want)
	}
	if kept, err := s.Rewind(other); err != nil || kept != 0 || s.Cache.Pairs() != 0 {
		t.Errorf("another beginning: %d tokens are kept, error %v", kept, err)
	}
}

// TestContextsAreRefused: policies that decide while they decode, sessions that have begun, other models and caches, and files that are damaged anywhere.
func TestContextsAreRefused(t *testing.T) {
	m := openContextModel(t, "llama", "float32")
	tokens := modeltest.Tokens(m, 4, 40)
	for _, name := range []string{"h2o", "rocketkv", "rocketkv-mt", "quest"} {
		s, err := eviction.NewRuntime(m).NewSession(policy(t, m, name), eviction.Pairs(20))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Compress(context.Background(), eviction.Prompt{Tokens: tokens}, 0); err == nil || !strings.Contains(err.Error(), "policy "+name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	s := compressed(t, m, policy(t, m, "snapkv"), tokens, 10)
	if err := s.Compress(context.Background(), eviction.Prompt{Tokens: tokens}, 0); err == nil {
		t.Error("a session that has begun is taken")
	}
	path := filepath.Join(t.TempDir(), "doc.kv")
	if err := saveContext(m, path, s.Context, eviction.ContextOrigin{Budget: "10"}); err != nil {
		t.Fatal(err)
	}
	f, err := eviction.OpenContext(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	other := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, HeadDim: 32, MaxPositions: 400, Seed: 4}.Open(t, "cpu")
	if _, err := f.Read(context.Background(), other); err == nil || !strings.Contains(err.Error(), "weights") {
		t.Errorf("other weights: error %v", err)
	}
	if err := m.SetCacheDType("bf16"); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Read(context.Background(), m); err == nil || !strings.Contains(err.Error(), "--cache-dtype float32") {
		t.Errorf("another type of the cache: error %v", err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(whole); at += 1 + len(whole)/300 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 4
		if err := os.WriteFile(path, damaged, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := eviction.OpenContext(path); !errors.Is(err, checkpoints.ErrCorrupt) && !errors.Is(err, checkpoints.ErrVersion) {
			t.Fatalf("byte %d of %d damaged: error %v", at, len(whole), err)
		}
	}
	if err := os.WriteFile(path, whole[:len(whole)/2], 0o666); err != nil {
		t.Fatal(err)
	}
	if _, err := eviction.OpenContext(path); !errors.Is(err, checkpoints.ErrCorrupt) {
		t.Errorf("half a file: error %v", err)
	}
}

// TestContextsShareNothing: 2 sessions behind one context, decoded in one batch, answer as alone.
func TestContextsShareNothing(t *testing.T) {
	m := openContextModel(t, "llama", "kivi4")
	rt := eviction.NewRuntime(m)
	p := policy(t, m, "snapkv", "snapkv.head-budgets=global")
	tokens := modeltest.Tokens(m, 4, 120)
	s, err := rt.NewSession(p, eviction.Pairs(40))
	if err == nil {
		err = s.Compress(context.Background(), eviction.Prompt{Tokens: tokens}, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	b, err := rt.Runner.NewBatch(2)
	if err != nil {
		t.Fatal(err)
	}
	var want [][]int32
	var got []*runner.Sequence
	for seed := range uint64(2) {
		question := modeltest.Tokens(m, seed, 5+int(seed))
		alone, err := rt.NewSession(p, eviction.Pairs(40))
		if err == nil {
			err = alone.Resume(s.Context, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, answerBehind(t, alone, question))
		if err := alone.Resume(s.Context, 0); err != nil {
			t.Fatal(err)
		}
		if err := alone.Turn(context.Background(), eviction.Prompt{Tokens: question}); err != nil {
			t.Fatal(err)
		}
		a, err := alone.Join(b, runner.GenerateOptions{MaxNew: 6})
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, a)
	}
	if err := b.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if !slices.Equal(got[i].Tokens(), want[i]) {
			t.Errorf("question %d: %v, alone %v", i, got[i].Tokens(), want[i])
		}
	}
}
