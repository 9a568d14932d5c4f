package engine

import (
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

// talk is a conversation with an engine, whose requests give all of it.
type talk struct {
	asked
	owner  string
	turns  [][]int32 // answers so far
	whole  []int32   // of the last request
	answer *Answer   // that goes on
	stood  []int     // of every turn
	cut    bool
}

// conversation is what a request for the next turn gives.
func (c *talk) conversation() (all []int32) {
	for i, answer := range c.turns {
		all = slices.Concat(all, c.prompts[i], answer)
	}
	return append(all, c.prompts[len(c.turns)]...)
}

// submit asks for the next turn in a session that begins.
func (c *talk) submit(t *testing.T, e *Engine) {
	t.Helper()
	s, err := e.runtime.NewSession(c.policy, eviction.Pairs(c.budget))
	if err != nil {
		t.Fatal(err)
	}
	c.whole = c.conversation()
	if c.answer, err = e.Submit(Request{Session: s, Prompt: c.whole, Owner: c.owner, Generate: c.opt}); err != nil {
		t.Fatal(err)
	}
}

// done takes down an answer, and lets the engine keep its session.
func (c *talk) done(e *Engine) {
	c.turns, c.stood = append(c.turns, slices.Clone(c.answer.Tokens())), append(c.stood, c.answer.Standing())
	e.Keep(c.answer)
	c.answer = nil
}

// step takes a step, and holds what runs and is kept to the budget.
func step(t *testing.T, e *Engine) {
	t.Helper()
	if _, err := e.Step(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := e.Kept().Bytes; held(e)+kept > e.Budget {
		t.Fatalf("%d bytes are held and %d kept, budget %d", held(e), kept, e.Budget)
	}
}

// inTurns is what a session answers from turn to turn, and of so many first turns given, what it answers then.
func inTurns(t *testing.T, m *model.Model, a asked, rows int, given [][]int32, from int) (answer []int32) {
	t.Helper()
	rt := eviction.NewRuntime(m)
	s, err := rt.NewSession(a.policy, eviction.Pairs(a.budget))
	if err != nil {
		t.Fatal(err)
	}
	var first []int32 // that one prompt gives
	for i, prompt := range a.prompts[:len(given)+1] {
		first = append(first, prompt...)
		if i < from {
			first = append(first, given[i]...)
			continue
		}
		if err := s.Turn(t.Context(), eviction.Prompt{Tokens: first, MaxNew: a.opt.MaxNew}); err != nil {
			t.Fatal(err)
		}
		opt := a.opt
		if i < len(given) { // as it was cut short, too
			opt.MaxNew = len(given[i])
		}
		b, err := runner.New(m).NewBatch(rows)
		if err != nil {
			t.Fatal(err)
		}
		answered, err := s.Join(b, opt)
		if err == nil {
			err = errors.Join(b.Run(t.Context()), answered.Err())
		}
		if err != nil {
			t.Fatal(err)
		}
		answer, first = slices.Clone(answered.Tokens()), nil
		if i < len(given) && !slices.Equal(answer, given[i]) {
			t.Fatalf("turn %d: %v in turns, %v were given", i+1, answer, given[i])
		}
	}
	return answer
}

// TestSessionsGoOn: a conversation of which a session is kept goes on as that session does from turn to turn, to the bit,
// whatever else there is and wherever answers were cut short; one of which none is kept (under policies that drop something, or
// since others needed its room, or since its prompt was cancelled) answers as a new one. What is kept lies in the budget.
func TestSessionsGoOn(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 2, MaxPositions: 512, Seed: 2}.Open(t, "cpu")
	kinds := policies(t, "rocketkv-mt", "snapkv", "full", "h2o", "rocketkv", "rocketkv-mt")
	went, anew := 0, 0
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 9))
			rows := 1 + rng.IntN(4)
			e, err := New(eviction.NewRuntime(m), rows)
			if err != nil {
				t.Fatal(err)
			}
			e.More = upTo(rng.IntN(3))
			var all []*talk
			var own, need int64
			for i := range 5 {
				c := &talk{owner: fmt.Sprint(i % 2), asked: asked{policy: kinds[rng.IntN(len(kinds))], budget: 4 + rng.IntN(30), opt: runner.GenerateOptions{MaxNew: 2 + rng.IntN(8), IgnoreEnd: true}}}
				if rng.IntN(2) == 0 {
					c.opt.Sampling = model.Sampling{Temperature: 1, TopP: 1, Seed: rng.Uint64()}
				}
				for range 4 {
					c.prompts = append(c.prompts, modeltest.Tokens(m, rng.Uint64(), 1+rng.IntN(50)))
				}
				all = append(all, c)
				f := footprint(t, eviction.NewRuntime(m), c.asked, rows)
				own, need = max(own, f.Own()), max(need, f.Need())
			}
			e.Budget = need + rng.Int64N(4*own)
			for range 4000 {
				going := false
				for _, c := range all {
					switch {
					case c.answer == nil && len(c.turns) == len(c.prompts):
						continue
					case c.answer == nil && rng.IntN(3) == 0:
						c.submit(t, e)
					case c.answer == nil:
					case c.answer.Done():
						if err := c.answer.Err(); err != nil {
							t.Fatal(err)
						}
						want := inTurns(t, m, c.asked, rows, c.turns, c.from())
						if !slices.Equal(c.answer.Tokens(), want) {
							t.Errorf("%s, turn %d, %d of %d tokens stood: %v, want %v", c.policy.Name, len(c.turns)+1, c.answer.Standing(), len(c.whole), c.answer.Tokens(), want)
						}
						if c.answer.Standing() > 0 {
							went++
						} else if len(c.turns) > 0 {
							anew++
						}
						c.done(e)
					case rng.IntN(60) == 0: // wherever it is; nothing is said, or less
						if err := e.Cancel(c.answer); err != nil {
							t.Fatal(err)
						}
						if len(c.answer.Tokens()) == 0 {
							e.Keep(c.answer) // of which there is nothing to keep
							c.answer = nil
							break
						}
						c.cut = true
						c.done(e)
					}
					going = true
				}
				if !going {
					return
				}
				step(t, e)
			}
			t.Fatal("the conversations do not come to an end")
		})
	}
	if went < 10 || anew < 10 {
		t.Errorf("%d turns went on and %d began anew, want some of both", went, anew)
	}
}

// from is the turn that the session of the last answer has begun with.
func (c *talk) from() int {
	if c.answer.Standing() == 0 {
		return len(c.turns)
	}
	i := len(c.turns) - 1
	for i > 0 && c.stood[i] > 0 {
		i--
	}
	return i
}

// TestKeptMemory: on a model that counts memory, sessions that are kept, taken and let go of take no more than the budget
// together with what runs; those that have waited longest go first.
func TestKeptMemory(t *testing.T) {
	m := modeltest.Llama{Layers: 3, Heads: 4, KVHeads: 4, HeadDim: 64, MaxPositions: 2048}.Open(t, "cpu")
	rng := rand.New(rand.NewPCG(1, 8))
	counted, counter := m.Counted()
	const rows = 2
	weights, rt := counter.Live(), eviction.NewRuntime(counted)
	e, err := New(rt, rows)
	if err != nil {
		t.Fatal(err)
	}
	e.More = upTo(1)
	p := policies(t, "rocketkv-mt")[0]
	var all []*talk
	for range 6 {
		c := &talk{asked: asked{policy: p, budget: 64, opt: runner.GenerateOptions{MaxNew: 40}}}
		for range 3 {
			c.prompts = append(c.prompts, modeltest.Tokens(m, rng.Uint64(), 100+rng.IntN(400)))
		}
		all = append(all, c)
		f := footprint(t, rt, c.asked, rows)
		e.Budget = max(e.Budget, f.Need()+f.Own())
	}
	went, turns := 0, 0
	for turn := range 3 {
		for i := range all {
			c := all[i]
			if turn > 0 && i < 3 { // the latest first, of which sessions are there
				c = all[2-i]
			}
			c.submit(t, e)
			for e.Len() > 0 {
				step(t, e)
			}
			if err := c.answer.Err(); err != nil {
				t.Fatal(err)
			}
			if c.answer.Standing() > 0 {
				went++
			}
			turns++
			c.done(e)
		}
	}
	if peak := counter.Peak() - weights; peak > e.Budget || peak < e.Budget/2 {
		t.Errorf("%d bytes were needed at most, the budget is %d", peak, e.Budget)
	}
	n, letGo := e.Kept().Sessions, e.Kept().LetGo
	if went == 0 || letGo == 0 || int64(turns) != int64(n+went)+letGo {
		t.Errorf("of %d sessions %d were taken, %d let go of and %d are there", turns, went, letGo, n)
	}
}
