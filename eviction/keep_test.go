package eviction_test

import (
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// spans are what stays in these tests, of prompts of 60 tokens: one span at the front, one in the middle, some single tokens.
var spans = []eviction.Span{{From: 3, To: 8}, {From: 30, To: 31}, {From: 26, To: 29}, {From: 27, To: 30}}

const spansTokens, keepBudget = 10, 24

func sessionWith(t testing.TB, m *model.Model, p *eviction.Configured, budget int, keep eviction.Keep) *eviction.Session {
	t.Helper()
	s, err := eviction.NewRuntime(m).NewSession(p, eviction.Pairs(budget))
	if err != nil {
		t.Fatal(err)
	}
	s.Keep = keep
	return s
}

func turn(t testing.TB, m *model.Model, p *eviction.Configured, s *eviction.Session, tokens []int32) {
	t.Helper()
	if err := s.Turn(background, eviction.Prompt{Tokens: tokens, MaxNew: mostNew(m, p)}); err != nil {
		t.Fatal(err)
	}
}

// lost names a position of the spans that a head does not hold; below 0 where none is lost.
func lost(s *eviction.Session, spans []eviction.Span) (layer, head, position int) {
	for l := range s.Cache.Layers() {
		for h := range s.Cache.LayerKVHeads(l) {
			for _, span := range spans {
				for p := span.From; p < span.To; p++ {
					if _, ok := slices.BinarySearch(s.Cache.Positions(l, h), int32(p)); !ok {
						return l, h, p
					}
				}
			}
		}
	}
	return -1, -1, -1
}

func TestEveryPolicyKeepsSpansWithinTheBudget(t *testing.T) {
	holds := func(t *testing.T, m *model.Model, p *eviction.Configured) {
		tokens := modeltest.Tokens(m, 4, 60)
		plain, kept := sessionWith(t, m, p, keepBudget, eviction.Keep{}), sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: spans})
		turn(t, m, p, plain, tokens)
		turn(t, m, p, kept, tokens)
		after := func(when string) {
			t.Helper()
			if l, h, position := lost(kept, spans); position >= 0 {
				t.Errorf("%s: layer %d, head %d: position %d is gone", when, l, h, position)
			}
			most := plain.Cache.Pairs()
			if planOf(m, p).Sparse != nil { // what it holds depends on the budget in ways of its own
				most += spansTokens * kept.Cache.Heads()
			}
			if got := kept.Cache.Pairs(); got > most {
				t.Errorf("%s: %d pairs with spans, want at most %d", when, got, most)
			}
		}
		after("prompt")
		for l, heads := range kept.Pool {
			for h, pool := range heads {
				for _, span := range spans {
					for j := span.From; j < span.To; j++ {
						if _, ok := slices.BinarySearch(pool, int32(j)); !ok {
							t.Errorf("layer %d, head %d: entry %d is not in the pool", l, h, j)
						}
					}
				}
				if most := len(plain.Pool[l][h]) + spansTokens; len(pool) > most {
					t.Errorf("layer %d, head %d: a pool of %d, want at most %d", l, h, len(pool), most)
				}
			}
		}
		generate(t, plain, 14)
		generate(t, kept, 14)
		after("answer")
		// A later turn does not lose them either, and one without them may.
		more := modeltest.Tokens(m, 5, 30)
		turn(t, m, p, plain, more)
		turn(t, m, p, kept, more)
		after("second turn")
	}
	everyPolicy(t, "cpu", holds)
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	for _, set := range []string{"random.decode=1", "kvzap.decode=1", "snapkv.per=query-head", "streamingllm.decode=0", "lacache.variant=code", "d2o.allocation=uniform"} {
		name, _, _ := strings.Cut(set, ".")
		t.Run(set, func(t *testing.T) { holds(t, m, policy(t, m, name, set)) })
	}
}

func TestSpansOfSharedBudgets(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, 60)
	for _, set := range []string{"snapkv.head-budgets=layer", "snapkv.head-budgets=global", "laq.head-budgets=global", "lookaheadkv.head-budgets=layer", "adakv.alpha=0"} {
		name, _, _ := strings.Cut(set, ".")
		p := policy(t, m, name, set)
		for _, context := range []bool{false, true} {
			s := sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: spans})
			if context {
				if err := s.Compress(background, eviction.Prompt{Tokens: tokens}, 8); err != nil {
					t.Fatal(err)
				}
			} else {
				turn(t, m, p, s, tokens)
			}
			if l, h, position := lost(s, spans); position >= 0 {
				t.Errorf("%s: layer %d, head %d: position %d is gone", set, l, h, position)
			}
			if got, want := s.Cache.Pairs(), 4*2*keepBudget; got > want {
				t.Errorf("%s: %d pairs, want at most %d", set, got, want)
			}
		}
	}
}

// TestSpansAsByHand selects again, entry by entry, from the scores that a session tells.
func TestSpansAsByHand(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, 60)
	fair := []int{0, 12, 40}
	for _, c := range []struct {
		name         string
		sink, recent int
		fair         []int
	}{{"snapkv", 0, 6, nil}, {"snapkv", 0, 6, fair}, {"knorm", 0, 0, nil}, {"knorm", 0, 0, fair}} {
		p := policy(t, m, c.name, "snapkv.window=6")
		s := sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: spans, Fair: c.fair})
		turn(t, m, p, s, tokens)
		scores := s.Scores()
		for l, heads := range s.Kept() {
			for h, kept := range heads {
				stays := make(map[int]bool)
				for _, span := range spans {
					for j := span.From; j < span.To; j++ {
						stays[j] = true
					}
				}
				if len(stays) != spansTokens {
					t.Fatalf("%d tokens of spans, want %d", len(stays), spansTokens)
				}
				for j := range 60 {
					if j < c.sink || j >= 60-c.recent {
						stays[j] = true
					}
				}
				part := func(j int) (n int) {
					for _, first := range c.fair {
						if first <= j {
							n++
						}
					}
					return n
				}
				left, room := keepBudget-len(stays), make(map[int]int)
				if c.fair == nil {
					room[0] = left
				} else { // largest remainders of the parts' free entries
					free, rest := make(map[int]int), left
					for j := range 60 {
						if !stays[j] {
							free[part(j)]++
						}
					}
					all := 60 - len(stays)
					for k, n := range free {
						room[k] = left * n / all
						rest -= room[k]
					}
					for ; rest > 0; rest-- {
						best := -1
						for k := 1; k <= len(c.fair); k++ {
							if room[k] <= left*free[k]/all && (best < 0 || left*free[k]%all > left*free[best]%all) {
								best = k
							}
						}
						room[best]++
					}
				}
				for {
					best := -1
					for j := range 60 {
						if !stays[j] && room[part(j)] > 0 && (best < 0 || scores[l][h][j] > scores[l][h][best]) {
							best = j
						}
					}
					if best < 0 {
						break
					}
					stays[best] = true
					room[part(best)]--
				}
				var want []int32
				for j := range int32(60) {
					if stays[int(j)] {
						want = append(want, j)
					}
				}
				if !slices.Equal(kept, want) {
					t.Errorf("%s, fair %v: layer %d, head %d: kept %v, want %v", c.name, c.fair, l, h, kept, want)
				}
			}
		}
	}
}

func TestStudyKeepsTheSpansOfASession(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, 60)
	for _, name := range []string{"snapkv", "pyramidkv", "laq", "d2o", "lookaheadkv"} {
		p := policy(t, m, name)
		keep := eviction.Keep{Spans: spans}
		s := sessionWith(t, m, p, keepBudget, keep)
		turn(t, m, p, s, tokens)
		study, err := eviction.NewRuntime(m).Study(background, []*eviction.Configured{p}, eviction.Prompt{Tokens: tokens, Keep: keep}, []int{keepBudget}, runner.GenerateOptions{MaxNew: 4})
		if err != nil {
			t.Fatal(err)
		}
		if !sameKept(study.Choices[0].Kept, s.Kept()) {
			t.Errorf("%s: a study keeps other entries than a session", name)
		}
	}
}

// TestSpansOfWhatIsKeptChangeNothing holds a session with spans to one without where the spans are what is kept in any case.
func TestSpansOfWhatIsKeptChangeNothing(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	tokens := modeltest.Tokens(m, 4, 60)
	for _, name := range []string{"snapkv", "streamingllm", "h2o"} {
		p := policy(t, m, name)
		plain := sessionWith(t, m, p, keepBudget, eviction.Keep{})
		turn(t, m, p, plain, tokens)
		kept := sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: []eviction.Span{{From: 58, To: 60}}})
		turn(t, m, p, kept, tokens)
		if !sameKept(plain.Kept(), kept.Kept()) {
			t.Errorf("%s: the last two tokens, which it keeps itself, change what it keeps", name)
		}
		if got, want := generate(t, kept, 10), generate(t, plain, 10); !slices.Equal(got, want) {
			t.Errorf("%s: got the answer %v, want %v", name, got, want)
		}
	}
}

func TestBudgetGrowsBesideSpans(t *testing.T) {
	for _, c := range []struct {
		budget        string
		tokens, stays int
		want          int
		grown         bool
	}{
		{"100", 1000, 0, 100, false}, {"100", 1000, 50, 100, false}, {"100", 1000, 51, 101, true}, {"100", 1000, 300, 350, true},
		{"10%", 1000, 300, 350, true}, {"100", 310, 300, 310, true}, {"1", 1000, 1, 2, true}, {"50%", 10, 1, 5, false},
	} {
		b, err := eviction.ParseBudget(c.budget)
		if err != nil {
			t.Fatal(err)
		}
		got, grown := b.Beside(c.tokens, c.stays)
		if got != c.want || grown != c.grown {
			t.Errorf("%s of %d tokens beside %d: got %d, %v, want %d, %v", c.budget, c.tokens, c.stays, got, grown, c.want, c.grown)
		}
		if err := b.CheckBeside(c.tokens, c.stays); (err != nil) != c.grown {
			t.Errorf("%s of %d tokens beside %d: error %v", c.budget, c.tokens, c.stays, err)
		}
	}
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	p := policy(t, m, "snapkv")
	s := sessionWith(t, m, p, 8, eviction.Keep{Spans: spans})
	turn(t, m, p, s, modeltest.Tokens(m, 4, 60))
	if _, _, position := lost(s, spans); position >= 0 {
		t.Errorf("position %d is gone under a budget that has to grow", position)
	}
	if got, want := s.Cache.Entries(0, 0), spansTokens+4; got != want {
		t.Errorf("%d entries, want %d", got, want)
	}
}

func TestContextsOfOtherSpansAreOthers(t *testing.T) {
	m := modeltest.Llama{Layers: 4, Heads: 4, KVHeads: 2, Seed: 2}.Open(t, "cpu")
	p := policy(t, m, "snapkv")
	tokens := modeltest.Tokens(m, 4, 60)
	s := sessionWith(t, m, p, keepBudget, eviction.Keep{Spans: append(slices.Clone(spans), eviction.Span{From: 58, To: 90})})
	if err := s.Compress(background, eviction.Prompt{Tokens: tokens}, 8); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		keep eviction.Keep
		want bool
	}{
		{eviction.Keep{}, false}, {eviction.Keep{Spans: spans}, false},
		{eviction.Keep{Spans: append(slices.Clone(spans), eviction.Span{From: 58, To: 60})}, true},
		{eviction.Keep{Spans: append(slices.Clone(spans), eviction.Span{From: 58, To: 60}), Fair: []int{0}}, false},
	} {
		if got := sessionWith(t, m, p, keepBudget, c.keep).Makes(s.Context); got != c.want {
			t.Errorf("%+v: makes the context: %v, want %v", c.keep, got, c.want)
		}
	}
}
