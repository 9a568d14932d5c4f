package eviction_test

import (
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// windowCaches are the types of caches that windows are tested with.
var windowCaches = []string{"float32", "bf16", "fp8", "q8_0", "q4_0", "kivi4"}

// windowed is a model with layers of both kinds, and a prompt that is much longer than their windows.
func windowed(t *testing.T, cache string) (*model.Model, []int32) {
	m := openHalf(t, modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, HeadDim: 32, Seed: 8, MaxPositions: 1 << 13}, "cpu", cache)
	modeltest.SetWindows(m, 20, 0, 300, 0)
	return m, modeltest.Tokens(m, 9, 1000)
}

// holdsWindows checks what layers hold of so many tokens.
func holdsWindows(t *testing.T, m *model.Model, s *eviction.Session) {
	t.Helper()
	n := int(s.Cache.Next())
	for l := range m.Config.Layers {
		w, held := m.Config.Window(l), s.Cache.Positions(l, 0)
		if w == 0 {
			continue
		}
		if most := w - 1 + kernels.WindowBlock; len(held) > most || len(held) < w-1 || int(held[0]) != n-len(held) {
			t.Errorf("layer %d: %d entries from position %d of %d, want the last %d to %d", l, len(held), held[0], n, w-1, most)
		}
		if most := int64(2 * 2 * kernels.StoredBytes(m.CacheDType(), w-1+kernels.WindowBlock+spare, m.Config.HeadDim)); s.Cache.LayerBytes(l) > most {
			t.Errorf("layer %d: %d bytes, want at most %d", l, s.Cache.LayerBytes(l), most)
		}
	}
}

// TestWindowsAreFreed: layers with a sliding window hold that alone, and every answer has the bits that it has where they
// hold everything: of one turn and the next, in batches, in a study's forks, and whatever the chunks are.
func TestWindowsAreFreed(t *testing.T) {
	for _, cache := range modeltest.Some(t, windowCaches) {
		t.Run(cache, func(t *testing.T) { windowsAreFreed(t, cache) })
	}
}

func windowsAreFreed(t *testing.T, cache string) {
	m, tokens := windowed(t, cache)
	free, whole := policy(t, m, "full"), policy(t, m, "full", "full.windows=evict")
	response := modeltest.Tokens(m, 10, 400)
	force := func(p *eviction.Configured) (logProbs [][]float64, s *eviction.Session) {
		s = prefill(t, m, p, tokens, 1)
		for range 2 {
			one, err := s.Force(background, response)
			if err != nil {
				t.Fatal(err)
			}
			logProbs = append(logProbs, one)
			if err := s.Turn(background, eviction.Prompt{Tokens: tokens[:500]}); err != nil {
				t.Fatal(err)
			}
		}
		return logProbs, s
	}
	got, s := force(free)
	want, all := force(whole)
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("turn %d: other log-probabilities than with everything held", i)
		}
	}
	if !sameBits(s.Logits(), all.Logits()) {
		t.Error("other logits than with everything held")
	}
	holdsWindows(t, m, s)
	if n := all.Cache.Entries(0, 0); n != int(all.Cache.Next()) {
		t.Errorf("told to evict in windows, a layer holds %d entries of %d", n, all.Cache.Next())
	}

	batched := func(p *eviction.Configured) []int32 {
		rt := eviction.NewRuntime(m)
		b, err := runner.New(m).NewBatch(2)
		if err != nil {
			t.Fatal(err)
		}
		var answers []*runner.Sequence
		for _, n := range []int{1000, 700} {
			s, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens[:n], MaxNew: mostNew(m, p), Budget: 1})
			if err != nil {
				t.Fatal(err)
			}
			a, err := s.Join(b, runner.GenerateOptions{MaxNew: 300, IgnoreEnd: true})
			if err != nil {
				t.Fatal(err)
			}
			answers = append(answers, a)
		}
		if err := b.Run(background); err != nil {
			t.Fatal(err)
		}
		return slices.Concat(answers[0].Tokens(), answers[1].Tokens())
	}
	if got, want := batched(free), batched(whole); len(want) != 600 || !slices.Equal(got, want) {
		t.Error("other answers in a batch than with everything held")
	}
}

// TestStudyLeavesWindowsAlone: a study's forks hold the windows of the prompt, whatever its response was, and answer as
// sessions do; only layers that hold the prompt count in hit rates.
func TestStudyLeavesWindowsAlone(t *testing.T) {
	for _, cache := range modeltest.Some(t, windowCaches) {
		t.Run(cache, func(t *testing.T) { studyLeavesWindowsAlone(t, cache) })
	}
}

func studyLeavesWindowsAlone(t *testing.T, cache string) {
	m, tokens := windowed(t, cache)
	var policies []*eviction.Configured
	for _, name := range []string{"snapkv", "pyramidkv", "h2o", "d2o", "laq", "duoattention", "oracle"} {
		policies = append(policies, policy(t, m, name))
	}
	rt := eviction.NewRuntime(m)
	study, err := rt.Study(background, policies, eviction.Prompt{Tokens: tokens, MaxNew: 64}, []int{64}, runner.GenerateOptions{MaxNew: 560, IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(study.Choices) != len(policies) {
		t.Fatalf("%d choices of %d policies", len(study.Choices), len(policies))
	}
	for i, choice := range study.Choices {
		p, name := policies[i], policies[i].Name
		forked, err := study.Session(choice)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		kept := choice.Kept
		if kept[0] != nil || kept[2] != nil || kept[1] == nil || kept[3] == nil {
			t.Errorf("%s: decides about %v, %v, %v, %v, want the layers that hold the prompt", name, kept[0] != nil, kept[1] != nil, kept[2] != nil, kept[3] != nil)
		}
		holdsWindows(t, m, forked)
		budget := 0 // of a uniform budget's layers
		for l := range kept {
			for _, idx := range kept[l] {
				budget += len(idx)
			}
		}
		if budget > 2*2*64 && name != "duoattention" {
			t.Errorf("%s: keeps %d entries, want at most %d", name, budget, 2*2*64)
		}
		alone, err := rt.Prefill(background, p, eviction.Prompt{Tokens: tokens, MaxNew: 64, Budget: 64, Response: study.Response})
		if err != nil {
			t.Fatal(err)
		}
		if !sameKept(alone.Kept(), kept) {
			t.Errorf("%s: a session keeps other entries", name)
		}
		if a, b := generate(t, forked, 20), generate(t, alone, 20); !slices.Equal(a, b) {
			t.Errorf("%s: a fork answers %v, a session %v", name, a, b)
		}
		if rate := eviction.HitRate(kept, kept); rate != 1 {
			t.Errorf("%s: hit rate of itself %v", name, rate)
		}
	}
}

// TestPoliciesOverRoundedWindows: every policy prefills and decodes over caches in few bits of a model with sliding windows, whose
// layers hold these alone, and gives the same answer twice: over entries in groups, and over one of the types of single ones.
func TestPoliciesOverRoundedWindows(t *testing.T) {
	for c, cache := range []string{"kivi4", "fp8", "q8_0", "q4_0"} {
		t.Run(cache, func(t *testing.T) {
			m, tokens := windowed(t, cache)
			for i, name := range modeltest.Some(t, eviction.Policies.Names()) {
				if c > 0 && i%3 != c-1 { // those of single entries take turns
					continue
				}
				p := policy(t, m, name)
				var answers [2][]int32
				for i := range answers {
					s := prefill(t, m, p, tokens[:640], 48)
					if answers[i] = generate(t, s, 12); len(answers[i]) != 12 {
						t.Errorf("%s: answer %v", name, answers[i])
					}
					holdsWindows(t, m, s)
				}
				if !slices.Equal(answers[0], answers[1]) {
					t.Errorf("%s: answers %v and %v", name, answers[0], answers[1])
				}
			}
		})
	}
}
