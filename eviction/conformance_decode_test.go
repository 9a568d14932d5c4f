package eviction_test

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"glimpse/eviction"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestTraffic: a sparse policy reads at most its budget in every step, estimation
// included; others read what they hold.
func TestTraffic(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		sparse := planOf(m, p).Sparse != nil
		heads := int64(m.Config.Layers * m.Config.KVHeads)
		for _, n := range []int{1, 9, 60, 250} {
			for _, budget := range modeltest.Some(t, []int{1, 2, 3, 8, 17, 64, 300}) {
				const steps = 30
				s := prefill(t, m, p, modeltest.Tokens(m, 5, n), budget)
				if s.Traffic != (eviction.Traffic{}) {
					t.Fatalf("traffic %+v before the first step", s.Traffic)
				}
				var want, most int64 // of what reads everything
				held := func() (n int64) {
					for l := range m.Config.Layers {
						for h := range m.Config.KVHeads {
							n += int64(s.Cache.Entries(l, h) + 1)
						}
					}
					return n * entryBytes(m)
				}
				next := held()
				_, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: steps + 1, IgnoreEnd: true, AfterStep: func() error {
					want, most, next = want+next, max(most, next), held()
					return nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				name := fmt.Sprintf("n=%d/budget=%d", n, budget)
				got := s.Traffic
				if got.Steps != steps {
					t.Errorf("%s: %d steps, want %d", name, got.Steps, steps)
				}
				if !sparse {
					if got.Bytes != want || got.Most != most || got.Estimation != 0 || got.PerStep() != float64(want)/steps {
						t.Errorf("%s: traffic %+v, want %d, and %d in one step", name, got, want, most)
					}
					continue
				}
				if limit := heads * int64(budget) * entryBytes(m); got.Most > limit || got.Bytes > want {
					t.Errorf("%s: %d bytes in one step, %d in all; want at most %d and %d", name, got.Most, got.Bytes, limit, want)
				}
				if n > 2*budget && got.Bytes < steps*heads*int64(budget-budget/2)*entryBytes(m) {
					t.Errorf("%s: %d bytes in all, less than the attention half of the budget", name, got.Bytes)
				}
				alone := p.Name == "quest" && budget == 2 // attention is for one entry, the current one
				if n > 4*budget && budget > 1 && got.Estimation == 0 && p.Name != "exact-topk" && !alone {
					t.Errorf("%s: estimation read nothing", name)
				}
			}
		}
	})
}

// TestSparseBytes: what a sparse policy says that it holds beside the cache is what
// it has allocated.
func TestSparseBytes(t *testing.T) {
	everyPolicy(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		plan := planOf(m, p)
		if plan.Sparse == nil {
			return
		}
		const n = 1200
		s := prefill(t, m, p, modeltest.Tokens(m, 5, n), 64)
		if s.Bytes() < s.Cache.Bytes() {
			t.Errorf("Bytes %d, the cache alone holds %d", s.Bytes(), s.Cache.Bytes())
		}
		const copies = 20
		states := make([]eviction.SparseState, copies)
		before := liveHeap()
		for i := range states {
			states[i] = plan.Sparse(s)
		}
		held := float64(liveHeap()-before) / copies
		reported := float64(states[0].Bytes())
		if math.Abs(held-reported) > 0.1*reported+4096 {
			t.Errorf("reports %.0f bytes, has allocated %.0f", reported, held)
		}
		runtime.KeepAlive(states)
		runtime.KeepAlive(s)
	})
}

func liveHeap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestLongResponsesDoNotGrow: over 1,000 steps a policy that evicts holds and
// allocates per step what it did in the beginning, and the others grow by their
// cache.
func TestLongResponsesDoNotGrow(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 2}.Open(t, "cpu")
	for _, name := range modeltest.Some(t, eviction.Policies.Names()) {
		t.Run(name, func(t *testing.T) {
			p := policy(t, m, name)
			evicts := planOf(m, p).Decode != nil
			s := prefill(t, m, p, modeltest.Tokens(m, 4, 40), 24)
			type usage struct{ live, held, total int64 }
			var at []usage
			steps := 0
			_, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 1101, IgnoreEnd: true, AfterStep: func() error {
				if steps++; steps == 100 || steps == 200 || steps == 1000 || steps == 1100 {
					live := liveHeap()
					var stats runtime.MemStats
					runtime.ReadMemStats(&stats)
					at = append(at, usage{live, s.Bytes(), int64(stats.TotalAlloc)})
				}
				return nil
			}})
			if err != nil || len(at) != 4 {
				t.Fatalf("%d steps, %v", steps, err)
			}
			grown, held := at[3].live-at[0].live, at[3].held-at[0].held
			if limit := held + held/2 + 64<<10; grown > limit {
				t.Errorf("the heap grew by %d bytes over 1,000 steps, the cache by %d", grown, held)
			}
			if !evicts {
				return
			}
			if held > 0 {
				t.Errorf("the cache grew by %d bytes", held)
			}
			if first, last := at[1].total-at[0].total, at[3].total-at[2].total; last > first+first/2 { // emptied pools of scratch memory make some difference
				t.Errorf("a hundred steps allocate %d bytes in the beginning and %d after a thousand", first, last)
			}
		})
	}
}

// TestSecondTurn: a turn is appended to what the policy kept; with an ample budget
// nothing is lost, and the answer is that of one pass over the whole conversation.
func TestSecondTurn(t *testing.T) {
	somePolicies(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		first, second := modeltest.Tokens(m, 6, 40), modeltest.Tokens(m, 7, 25)
		talk := func(p *eviction.Configured, budget int) (*eviction.Session, []int32) {
			s := prefill(t, m, p, first, budget)
			answer := generate(t, s, 10)
			if _, _, err := s.Generate(background, runner.GenerateOptions{MaxNew: 1}); err == nil || !strings.Contains(err.Error(), "answered already") {
				t.Errorf("a second answer to one prompt: %v", err)
			}
			if err := s.Turn(background, eviction.Prompt{Tokens: second}); err != nil {
				t.Fatal(err)
			}
			return s, answer
		}
		s, answer := talk(p, 200)
		whole := prefill(t, m, policy(t, m, "full"), slices.Concat(first, answer, second), 1)
		compare.Close(t, "logits of the second turn", s.Logits(), whole.Logits(), 1e-4, compare.Floor(1))
		if s.FullBytes != whole.FullBytes {
			t.Errorf("FullBytes %d, want %d", s.FullBytes, whole.FullBytes)
		}
		if a, b := generate(t, s, 20), generate(t, whole, 20); !slices.Equal(a, b) {
			t.Errorf("second answer %v, want %v", a, b)
		}

		const budget = 16
		s, _ = talk(p, budget)
		evicts := planOf(m, p).Decode != nil
		sparse := planOf(m, p).Sparse != nil
		keepsAll := planOf(m, p).KeepsAll
		total, heads := 0, m.Config.Layers*m.Config.KVHeads
		count := func() {
			total = 0
			for l := range m.Config.Layers {
				for h := range m.Config.KVHeads {
					total += s.Cache.Entries(l, h)
					if !slices.IsSorted(s.Cache.Positions(l, h)) {
						t.Errorf("layer %d head %d: positions %v", l, h, s.Cache.Positions(l, h))
					}
				}
			}
		}
		count()
		switch {
		case p.Policy.Kind == "none" || keepsAll || p.Policy.Kind == "decode":
			if total != heads*75 {
				t.Errorf("%d entries after two prompts and an answer, want all %d", total, heads*75)
			}
		case sparse:
			if total >= heads*75 {
				t.Errorf("%d entries, nothing was evicted", total)
			}
		default:
			if total > heads*budget {
				t.Errorf("%d entries after the second turn, the budget is %d", total, heads*budget)
			}
		}
		if got := generate(t, s, 30); len(got) != 30 {
			t.Errorf("second answer of %d tokens", len(got))
		}
		if evicts {
			if count(); total > heads*budget {
				t.Errorf("%d entries after the second answer, the budget is %d", total, heads*budget)
			}
		}
		if next, want := int(s.Cache.Next()), 75+29+2*rowsOf(m, p, true); next != want {
			t.Errorf("next position %d, want %d", next, want)
		}
		if sparse && s.Traffic.Most > int64(heads*budget)*entryBytes(m) {
			t.Errorf("%d bytes in a step of the second answer", s.Traffic.Most)
		}
		// A conversation repeats itself.
		again, _ := talk(policy(t, m, p.Name), budget)
		once, _ := talk(p, budget)
		if a, b := generate(t, again, 30), generate(t, once, 30); !slices.Equal(a, b) {
			t.Errorf("second answers %v and %v", a, b)
		}
		if err := once.Turn(background, eviction.Prompt{Tokens: nil}); err == nil || !strings.Contains(err.Error(), "empty prompt") {
			t.Errorf("empty turn: %v", err)
		}
	})
}

// TestAccumulatedScoresGoOn: what decides after a second turn is the attention of
// all rows of the conversation, whichever turn they belong to. Nothing is evicted
// before, so that one pass knows the same. Only what a layer of d2o gets is by the rows of
// the turn's prompt: with one layer that is the budget.
func TestAccumulatedScoresGoOn(t *testing.T) {
	for _, layers := range []int{1, 3} {
		accumulatedScoresGoOn(t, layers)
	}
}

func accumulatedScoresGoOn(t *testing.T, layers int) {
	m := modeltest.Llama{Layers: layers, Seed: 4}.Open(t, "reference64")
	first, second := modeltest.Tokens(m, 6, 30), modeltest.Tokens(m, 7, 22)
	for _, c := range []struct {
		name string
		set  []string
	}{{"h2o", nil}, {"roco", nil}, {"cam", nil}, {"d2o", nil}, {"h2o", []string{"h2o.kernel=5"}}, {"roco", []string{"roco.kernel=5"}}} {
		name, p := c.name, policy(t, m, c.name, c.set...)
		s := prefill(t, m, p, first, 50)
		answer := generate(t, s, 12)
		if err := s.Turn(background, eviction.Prompt{Tokens: second}); err != nil {
			t.Fatal(err)
		}
		whole := prefill(t, m, p, slices.Concat(first, answer, second), 50)
		for l := range s.Scores() {
			for h := range s.Scores()[l] {
				compare.Close(t, fmt.Sprintf("%s: layer %d head %d: scores", name, l, h), s.Scores()[l][h], whole.Scores()[l][h], 1e-5, compare.Floor(1e-7))
			}
		}
		if !sameKept(s.Kept(), whole.Kept()) && (name != "d2o" || layers == 1) {
			t.Errorf("%s: two turns keep %v, one pass %v", name, s.Kept(), whole.Kept())
		}
	}
}

// TestRocketKVMTPicksAnew: the second turn's pool is chosen from everything said
// so far, also from what the first turn's pool left out, by the rows of the second
// prompt: of its own rows, however large the window.
func TestRocketKVMTPicksAnew(t *testing.T) {
	m := modeltest.Llama{Layers: 2, Seed: 4}.Open(t, "reference64")
	for _, c := range []struct{ window, budget, rows int }{{4, 12, 4}, {64, 50, 31}} {
		t.Run(fmt.Sprintf("window=%d", c.window), func(t *testing.T) { picksAnew(t, m, c.window, c.budget, c.rows) })
	}
}

func picksAnew(t *testing.T, m *model.Model, window, budget, observed int) {
	exact := newNaive(m)
	p := policy(t, m, "rocketkv-mt", "rocketkv-mt.kernel=3", fmt.Sprintf("rocketkv-mt.window=%d", window))
	first, second := modeltest.Tokens(m, 6, 60), modeltest.Tokens(m, 7, 30)
	s := prefill(t, m, p, first, budget)
	pool := s.Pool
	cache := func() pairs {
		out := exact.empty()
		for l := range out {
			for h, kv := range s.Cache.View(l) {
				k, v := toMatrix(kv.K), toMatrix(kv.V)
				for j := range k {
					out[l][h] = append(out[l][h], pair{slices.Clone(k[j]), slices.Clone(v[j])})
				}
			}
		}
		return out
	}
	answer := generate(t, s, 9)
	past, next := cache(), int(s.Cache.Next())
	if err := s.Turn(background, eviction.Prompt{Tokens: second}); err != nil {
		t.Fatal(err)
	}
	rows := exact.run(past, exact.embed(append(answer[8:], second...)), next, nil)
	n := next + 31
	stage := (&naiveCase{option: option(p), tokens: make([]int32, n), budget: budget}).rocketFirst()
	fresh := 0
	scores := exact.meanScores(rows.attention, 31-observed, 31, n)
	plan := naivePlan{budgets: exact.uniform(stage), recent: observed}
	for l := range scores {
		for h, x := range scores[l] {
			scores[l][h] = append(pooled(x[:n-observed], 3), x[n-observed:]...)
		}
	}
	plan.scores = scores
	for l := range s.Pool {
		for h, got := range s.Pool[l] {
			if want := plan.kept(l, h, n); !slices.Equal(got, want) {
				t.Errorf("layer %d head %d: pool %v, want %v", l, h, got, want)
			}
			for _, j := range got {
				if j < 60 && !slices.Contains(pool[l][h], j) {
					fresh++
				}
			}
		}
	}
	if fresh == 0 {
		t.Error("the second pool has nothing that the first left out: the test's prompts don't tell")
	}
	generate(t, s, 20)
}

// TestSlidingWindows: layers with a window are left alone, unless the policy is told to evict in them: then what is out of
// sight is neither chosen nor counted. Within an ample budget everything is as with the full cache.
func TestSlidingWindows(t *testing.T) {
	somePolicies(t, "cpu", func(t *testing.T, m *model.Model, p *eviction.Configured) {
		modeltest.SetWindows(m, 0, 8, 8, 20)
		defer modeltest.SetWindows(m)
		tokens := modeltest.Tokens(m, 6, 60)
		told := policy(t, m, p.Name, p.Name+".windows=evict")
		answer := func(p *eviction.Configured, budget int) (*eviction.Session, []int32) {
			s := prefill(t, m, p, tokens, budget)
			return s, generate(t, s, 30)
		}
		full, want := answer(policy(t, m, "full"), 1)
		heads := int64(m.Config.KVHeads)
		if got := full.Traffic.Most - heads*entryBytes(m)*(8+8+20+60+29); got != 0 {
			t.Errorf("the full cache: a step reads %d bytes too many", got)
		}
		for _, p := range []*eviction.Configured{p, told} {
			if _, got := answer(p, 100); !slices.Equal(got, want) {
				t.Errorf("response %v, want %v", got, want)
			}
			s, first := answer(p, 12)
			if _, again := answer(p, 12); !slices.Equal(first, again) {
				t.Errorf("responses %v and %v", first, again)
			}
			last := int64(20) // entries that the layer with the wide window reads
			if p == told {
				last = 12
			} else {
				for l := 1; l < 4; l++ {
					if s.Kept()[l] != nil || s.Cache.Entries(l, 0) != 60+29+rowsOf(m, p, true) {
						t.Errorf("layer %d: kept %v of %d entries, want it left alone", l, s.Kept()[l], s.Cache.Entries(l, 0))
					}
				}
			}
			if limit := heads * entryBytes(m) * (12 + 8 + 8 + last); planOf(m, p).Sparse != nil && s.Traffic.Most > limit {
				t.Errorf("a step reads %d bytes, want at most %d", s.Traffic.Most, limit)
			}
		}
	})
}
