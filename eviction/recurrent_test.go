package eviction_test

import (
	"fmt"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// hybrids are models of which some layers have a state in the place of attention.
func hybrids(t *testing.T, f func(t *testing.T, m *model.Model)) {
	for _, name := range []string{"qwen3-next", "qwen3.5", "lfm2"} {
		t.Run(name, func(t *testing.T) {
			m, err := model.Open(modeltest.GoldenNamed(t, name).Folder, model.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			f(t, m)
		})
	}
}

// TestRecurrentLayersAreLeftAlone: every policy decides about the layers that attend alone, with the budgets that they have by
// themselves, and answers by sessions, by a study's forks and in batches alike; what a layer's state takes is counted.
func TestRecurrentLayersAreLeftAlone(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		const n, budget, length = 60, 14, 12
		tokens := modeltest.Tokens(m, 4, n)
		state := int64(0)
		for _, x := range m.Config.Mixers {
			if x.Recurrence != nil {
				state = model.StateBytes(x.Recurrence, m.Backend.Compute())
			}
		}
		all := slices.Clone(variants)
		for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
			all = append(all, []string{name}, []string{name, name + ".windows=evict"})
		}
		for _, v := range all {
			t.Run(fmt.Sprint(v), func(t *testing.T) {
				p := policy(t, m, v[0], v[1:]...)
				s := prefill(t, m, p, tokens, budget)
				entries := 0
				for l, kept := range s.Kept() {
					if recurrent := m.Config.Recurrent(l); recurrent != (kept == nil) || recurrent && s.Cache.Pairs() > 0 && s.Cache.Entries(l, 0) > 0 {
						t.Fatalf("layer %d, recurrent %v: keeps %v", l, recurrent, kept)
					} else if recurrent && s.Cache.LayerBytes(l) != state {
						t.Errorf("layer %d: %d bytes, want those of its state, %d", l, s.Cache.LayerBytes(l), state)
					}
					for _, idx := range kept {
						entries += len(idx)
					}
				}
				if most := s.Cache.Heads() * budget; entries > most && p.Policy.Kind != "none" && planOf(m, p).Sparse == nil && p.Second == nil && v[0] != "duoattention" {
					t.Errorf("keeps %d entries, want at most %d", entries, most)
				}
				if want := m.Config.CacheBytes(n, m.CacheDType()); s.FullBytes < want || s.FullBytes > want+want/4 {
					t.Errorf("the full cache takes %d bytes, want %d", s.FullBytes, want)
				}
				want := generate(t, s, length)
				sameElsewhere(t, m, p, tokens, budget, want)
				if steps := s.Traffic.Steps; steps != length-1 {
					t.Errorf("counts %d steps, want %d", steps, length-1)
				}
			})
		}
	})
}

// TestStatesGoNowhereElse: a fork, probes, an answer that is undone and a study leave the state of a sequence as it is.
func TestStatesGoNowhereElse(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		tokens := modeltest.Tokens(m, 6, 50)
		r := runner.New(m)
		prompt := func() (*kvcache.Cache, *runner.Logits) {
			c := kvcache.New(m)
			logits, err := r.Forward(background, c, tokens, runner.PrefillOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return c, logits
		}
		step := func(c *kvcache.Cache) []float32 {
			logits, err := r.Step(background, c, 7, runner.Capture{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return logits
		}
		plain, _ := prompt()
		want := step(plain)
		for name, use := range map[string]func(c *kvcache.Cache, logits *runner.Logits) error{
			"fork": func(c *kvcache.Cache, _ *runner.Logits) error {
				f, err := c.Fork(nil)
				if err == nil {
					step(f)
					if got := step(f); sameBits(got, want) {
						t.Error("a fork's state stands still")
					}
				}
				return err
			},
			"probe": func(c *kvcache.Cache, _ *runner.Logits) error {
				return r.Probe(background, c, model.TokenRows(tokens[:9]), false, func(*runner.Observation) error { return nil })
			},
			"answer": func(c *kvcache.Cache, logits *runner.Logits) error {
				_, err := r.Respond(background, c, logits, runner.GenerateOptions{MaxNew: 8})
				return err
			},
			"two answers": func(c *kvcache.Cache, logits *runner.Logits) error {
				_, err := r.Respond(background, c, logits, runner.GenerateOptions{MaxNew: 8})
				if err == nil {
					_, err = r.Respond(background, c, logits, runner.GenerateOptions{MaxNew: 3})
				}
				return err
			},
		} {
			c, logits := prompt()
			bytes := c.Bytes()
			if err := use(c, logits); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if c.Bytes() > bytes+2*c.TokenBytes()*kvcache.GrowEntries {
				t.Errorf("%s: the cache takes %d bytes, before %d", name, c.Bytes(), bytes)
			}
			if got := step(c); !sameBits(got, want) {
				t.Errorf("%s: the next row has other logits", name)
			}
		}

		c, _ := prompt()
		if err := c.Truncate(30); err == nil {
			t.Error("goes back to a state that is not there")
		}
		if err := c.Truncate(50); err != nil {
			t.Errorf("stays where it is: %v", err)
		}
		if err := c.Truncate(0); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Forward(background, c, tokens, runner.PrefillOptions{}); err != nil {
			t.Fatal(err)
		}
		if got := step(c); !sameBits(got, want) {
			t.Error("from the beginning once more, the next row has other logits")
		}
	})
}

// TestProbesFollowThePrompt: rows after a prompt go through recurrent layers in order, from the state that the prompt leaves, and
// pay the attention to it that they pay as rows of a longer prompt.
func TestProbesFollowThePrompt(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		tokens, rows := modeltest.Tokens(m, 6, 50), modeltest.Tokens(m, 7, 9)
		r := runner.New(m)
		pass := func(c *kvcache.Cache, tokens []int32, capture runner.Capture, of func(o *runner.Observation) []float32) (out [][]float32) {
			_, err := r.Forward(background, c, tokens, runner.PrefillOptions{Capture: capture, Observe: func(o *runner.Observation) error {
				if !m.Config.Recurrent(o.Layer) {
					out = append(out, of(o))
				} else if len(o.Probes)+len(o.Windows) > 0 {
					t.Errorf("layer %d is observed", o.Layer)
				}
				return nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		long := pass(kvcache.New(m), slices.Concat(tokens, rows), runner.Capture{Windows: []int{len(rows)}}, func(o *runner.Observation) []float32 { return o.Windows[0].Float32s() })
		short := pass(kvcache.New(m), tokens, runner.Capture{Probes: []model.QueryRows{model.TokenRows(rows)}}, func(o *runner.Observation) []float32 { return o.Probes[0].Float32s() })
		for l := range short {
			for h := range m.Config.Heads {
				n, wide := len(tokens), len(long[l])/m.Config.Heads
				compare.Close(t, fmt.Sprintf("attending layer %d, head %d", l, h), short[l][h*n:][:n], long[l][h*wide:][:n], 1e-4)
			}
		}
	})
}

// TestRewindOfStates: a conversation that goes on where it ended goes on; one that was written in another way runs anew.
func TestRewindOfStates(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		tokens := modeltest.Tokens(m, 4, 40)
		p := policy(t, m, "full")
		for same, want := range map[int]int{30: 0, 39: 0, 40: 40} {
			s := prefill(t, m, p, tokens, 400)
			whole := slices.Concat(tokens[:same], modeltest.Tokens(m, 7, 10))
			kept, err := s.Rewind(whole)
			if err != nil || kept != want {
				t.Fatalf("%d tokens are the same: %d stand, %v, want %d", same, kept, err, want)
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: whole[kept:]}); err != nil {
				t.Fatal(err)
			}
			compare.Close(t, fmt.Sprintf("logits after %d", same), s.Logits(), prefill(t, m, p, whole, 400).Logits(), 1e-4)
		}
	})
}

// TestPrefixesOfStates: nothing is shared, and answers are as without.
func TestPrefixesOfStates(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		p := policy(t, m, "snapkv")
		shared := eviction.NewRuntime(m)
		shared.Prefixes = kvcache.NewPrefixCache(m, 1<<30)
		tokens := modeltest.Tokens(m, 5, 220)
		for range 2 {
			got, err := shared.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p), Budget: 20})
			if err != nil {
				t.Fatal(err)
			}
			if got.Reused > 0 || shared.Prefixes.Bytes() > 0 {
				t.Errorf("%d tokens are reused, %d bytes held", got.Reused, shared.Prefixes.Bytes())
			}
			sameSession(t, got, prefill(t, m, p, tokens, 20))
		}
	})
}

// sameElsewhere: a study's fork gives the answer want to tokens, as a session does, and in a batch with another sequence an answer,
// the turn after it and what both read are those of one alone in a batch.
func sameElsewhere(t *testing.T, m *model.Model, p *eviction.Configured, tokens []int32, budget int, want []int32) {
	t.Helper()
	opt := runner.GenerateOptions{MaxNew: len(want), IgnoreEnd: true}
	study, err := eviction.NewRuntime(m).Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: tokens}, []int{budget}, opt)
	if err != nil {
		t.Fatal(err)
	}
	if p.Second == nil && p.Name != "oracle" {
		fork, err := study.Session(study.Choices[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := generate(t, fork, len(want)); !slices.Equal(got, want) {
			t.Errorf("a fork answers %v, a session %v", got, want)
		}
	}
	// In a batch with another sequence, and then another turn.
	together, alone := prefill(t, m, p, tokens, budget), prefill(t, m, p, tokens, budget)
	var answers [2]*runner.Sequence
	for i, s := range []*eviction.Session{together, alone} {
		b := newBatch(t, m, 3)
		if answers[i], err = s.Join(b, opt); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			if _, err := prefill(t, m, policy(t, m, "h2o"), tokens[:31], budget).Join(b, runner.GenerateOptions{MaxNew: len(want) / 2, IgnoreEnd: true}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Run(background); err != nil {
			t.Fatal(err)
		}
		if err := answers[i].Err(); err != nil {
			t.Fatal(err)
		}
		if err := s.Turn(background, eviction.Prompt{Tokens: tokens[:20], MaxNew: mostNew(m, p)}); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(answers[0].Tokens(), answers[1].Tokens()) || !sameBits(together.Logits(), alone.Logits()) {
		t.Errorf("in a batch it answers %v, alone in one %v, or the next turn differs", answers[0].Tokens(), answers[1].Tokens())
	}
	if got, want := together.Traffic, alone.Traffic; got != want {
		t.Errorf("reads %+v in a batch, %+v alone in one", got, want)
	}
}

// TestHoldingsOfRecurrentLayers: layers with a state in the place of attention hold no entries that anything is told of.
func TestHoldingsOfRecurrentLayers(t *testing.T) {
	hybrids(t, func(t *testing.T, m *model.Model) {
		s := prefill(t, m, policy(t, m, "snapkv"), modeltest.Tokens(m, 1, 40), 8)
		attention := 0
		for l := range m.Config.Layers {
			if !m.Config.Recurrent(l) {
				attention++
			}
		}
		decided, windowed := s.Holdings()
		if decided.Layers != attention || decided.Entries != 8 || windowed.Layers != 0 {
			t.Errorf("%+v and %+v with a window, want 8 entries in %d layers", decided, windowed, attention)
		}
	})
}
