package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// asked is a request of the property test: what it is must not depend on what else there is.
type asked struct {
	policy  *eviction.Configured
	budget  int
	prompts [][]int32 // of the turns
	opt     runner.GenerateOptions
}

// said is what came of a request.
type said struct {
	turns [][]int32
	err   error
}

func policies(t *testing.T, names ...string) (out []*eviction.Configured) {
	t.Helper()
	for _, name := range names {
		p, err := eviction.New(name, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// play runs requests that arrive at the steps that arrive says, and are cancelled at those that
// cancel says (0: never), and returns what each has answered.
func play(t *testing.T, m *model.Model, all []asked, rows, units int, budget int64, arrive, cancel []int) []said {
	t.Helper()
	rt := eviction.NewRuntime(m)
	e, err := New(rt, rows)
	if err != nil {
		t.Fatal(err)
	}
	e.More, e.Budget = upTo(units), budget
	out, of, now := make([]said, len(all)), make(map[*Answer]int), make([]*Answer, len(all))
	submit := func(i int, s *eviction.Session) {
		opt := all[i].opt
		a, err := e.Submit(Request{Session: s, Prompt: all[i].prompts[len(out[i].turns)], Generate: opt})
		if err != nil {
			t.Fatal(err)
		}
		of[a], now[i] = i, a
	}
	arrived := 0
	for step := 0; arrived < len(all) || e.Len() > 0; step++ {
		for i, at := range arrive {
			if at == step {
				s, err := rt.NewSession(all[i].policy, eviction.Pairs(all[i].budget))
				if err != nil {
					t.Fatal(err)
				}
				submit(i, s)
				arrived++
			}
			if cancel[i] == step && step > 0 && now[i] != nil && !now[i].Done() {
				if err := e.Cancel(now[i]); err != nil {
					t.Fatal(err)
				}
				out[i].err = context.Canceled
				delete(of, now[i])
			}
		}
		events, err := e.Step(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if held := held(e); budget > 0 && held > budget {
			t.Errorf("step %d: %d bytes are held, budget %d", step, held, budget)
		}
		for _, ev := range events {
			i, ok := of[ev.Answer]
			if !ev.Done || !ok {
				continue
			}
			delete(of, ev.Answer)
			if err := ev.Answer.Err(); err != nil {
				out[i].err = err
				continue
			}
			out[i].turns = append(out[i].turns, slices.Clone(ev.Answer.Tokens()))
			if len(out[i].turns) < len(all[i].prompts) {
				submit(i, ev.Answer.Request.Session)
			}
		}
		if step > 10000 {
			t.Fatal("the engine does not come to an end")
		}
	}
	return out
}

// held is the memory of the requests that run, and of the passes.
func held(e *Engine) int64 {
	n := e.runtime.Runner.ScratchBytes()
	for _, a := range e.live {
		n += a.Request.Session.Cache.Bytes()
	}
	if e.filling != nil {
		n += e.filling.Request.Session.Cache.Bytes()
	}
	return n
}

// alone is what a request answers without an engine, decoded beside empty rows.
func alone(t *testing.T, m *model.Model, a asked, rows int) (turns [][]int32) {
	t.Helper()
	rt := eviction.NewRuntime(m)
	s, err := rt.NewSession(a.policy, eviction.Pairs(a.budget))
	if err != nil {
		t.Fatal(err)
	}
	for _, prompt := range a.prompts {
		if err := s.Turn(t.Context(), eviction.Prompt{Tokens: prompt, MaxNew: a.opt.MaxNew}); err != nil {
			t.Fatal(err)
		}
		b, err := runner.New(m).NewBatch(rows)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := s.Join(b, a.opt)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(b.Run(t.Context()), answer.Err()); err != nil {
			t.Fatal(err)
		}
		turns = append(turns, slices.Clone(answer.Tokens()))
	}
	return turns
}

// TestAnswersDependOnNothingElse: whatever arrives when, however the units of prompts and the
// steps of answers follow each other, and whatever is cancelled, a request answers what it
// answers alone, to the bit, under policies that draft, merge, wait for all layers, evict while
// decoding or read a part; and what they hold together stays within the budget, where there is one.
func TestAnswersDependOnNothingElse(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, MaxPositions: 512, Seed: 2}.Open(t, "cpu")
	kinds := policies(t, "full", "snapkv", "h2o", "d2o", "tova", "laq", "quest", "sparq", "rocketkv", "rocketkv-mt", "speckv", "oracle", "streamingllm", "cam")
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			n, rows := 3+rng.IntN(6), 1+rng.IntN(5)
			var all []asked
			arrive, cancel := make([]int, n), make([]int, n)
			for i := range n {
				a := asked{policy: kinds[rng.IntN(len(kinds))], budget: 4 + rng.IntN(40), opt: runner.GenerateOptions{MaxNew: 1 + rng.IntN(12), IgnoreEnd: true}}
				for range 1 + rng.IntN(2) {
					a.prompts = append(a.prompts, modeltest.Tokens(m, rng.Uint64(), 1+rng.IntN(90)))
				}
				if rng.IntN(2) == 0 {
					a.opt.Sampling = model.Sampling{Temperature: 1, TopP: 1, Seed: rng.Uint64()}
				}
				all = append(all, a)
				arrive[i] = rng.IntN(12)
				if rng.IntN(4) == 0 {
					cancel[i] = 1 + rng.IntN(20)
				}
			}
			var budget int64
			if seed%3 > 0 { // with room for the largest request and a few others
				var own int64
				for _, a := range all {
					f := footprint(t, eviction.NewRuntime(m), a, rows)
					budget, own = max(budget, f.Need()), max(own, f.Own())
				}
				budget += rng.Int64N(2 * own)
			}
			together := play(t, m, all, rows, rng.IntN(4), budget, arrive, cancel)
			for i, a := range all {
				want, got := alone(t, m, a, rows), together[i]
				if got.err != nil && !errors.Is(got.err, context.Canceled) {
					t.Errorf("request %d, %s: %v", i, a.policy.Name, got.err)
				}
				for turn, tokens := range got.turns {
					if !slices.Equal(tokens, want[turn]) {
						t.Errorf("request %d, %s, turn %d: %v, alone %v", i, a.policy.Name, turn+1, tokens, want[turn])
					}
				}
				if got.err == nil && len(got.turns) != len(a.prompts) {
					t.Errorf("request %d: %d of %d turns", i, len(got.turns), len(a.prompts))
				}
			}
		})
	}
}

// footprint is that of the last turn of a request.
func footprint(t *testing.T, rt *eviction.Runtime, a asked, rows int) eviction.Footprint {
	t.Helper()
	s, err := rt.NewSession(a.policy, eviction.Pairs(a.budget))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, p := range a.prompts {
		n += len(p)
	}
	f, err := s.Footprint(t.Context(), n+(len(a.prompts)-1)*a.opt.MaxNew, eviction.FootprintOptions{MaxNew: a.opt.MaxNew, Rows: rows})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestBudget: on a model that counts memory, where nothing is left out, requests of any policy and length,
// taken in any order, never need more than the budget together, and several of them run at once.
func TestBudget(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 4, HeadDim: 64, MaxPositions: 2048}.Open(t, "cpu")
	kinds := policies(t, "full", "snapkv", "h2o", "d2o", "tova", "laq", "rocketkv-mt", "speckv", "oracle", "streamingllm", "cam")
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			counted, counter := m.Counted()
			weights, rows, rt := counter.Live(), 2+rng.IntN(4), eviction.NewRuntime(counted)
			var all []asked
			var largest int64
			for range 8 {
				a := asked{policy: kinds[rng.IntN(len(kinds))], budget: 4 + rng.IntN(400), prompts: [][]int32{modeltest.Tokens(m, rng.Uint64(), 1+rng.IntN(1200))}, opt: runner.GenerateOptions{MaxNew: 1 + rng.IntN(300)}}
				all, largest = append(all, a), max(largest, footprint(t, rt, a, rows).Need())
			}
			e, err := New(rt, rows)
			if err != nil {
				t.Fatal(err)
			}
			e.More = upTo(1)
			session := func(a asked) *eviction.Session {
				s, err := rt.NewSession(a.policy, eviction.Pairs(a.budget))
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
			e.Budget = largest + rng.Int64N(largest)
			for _, a := range all {
				if _, err := e.Submit(Request{Session: session(a), Prompt: a.prompts[0], Generate: a.opt}); err != nil {
					t.Fatal(err)
				}
			}
			together := 0
			for e.Len() > 0 {
				events, err := e.Step(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				together = max(together, len(e.live))
				for _, ev := range events {
					if err := ev.Answer.Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			if peak := counter.Peak() - weights; peak > e.Budget || peak < largest/2 || together < 2 {
				t.Errorf("%d bytes were needed at most, %d requests at once; the budget is %d, the largest request needs %d", peak, together, e.Budget, largest)
			}
			e.Budget = largest - 1
			refused := 0
			for _, a := range all {
				if _, err := e.Submit(Request{Session: session(a), Prompt: a.prompts[0], Generate: a.opt}); errors.Is(err, model.ErrMemory) {
					refused++
				} else if err != nil {
					t.Fatal(err)
				}
			}
			if refused == 0 {
				t.Error("a request that can never fit is accepted")
			}
		})
	}
}

// upTo is Engine.More of so many units between two steps; 0: of all.
func upTo(units int) func(ran int) bool {
	return func(ran int) bool { return units == 0 || ran < units }
}
