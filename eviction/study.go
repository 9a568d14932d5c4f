package eviction

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/kernels"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Choice is what one policy keeps at one budget.
type Choice struct {
	Configured *Configured
	Budget     int
	Kept       [][][]int32
	Scores     [][][]float32

	observer *observer
}

// Study is one prompt with its full cache and the choices of several policies at
// several budgets, all observed in one pass. It is for measurements: it holds the
// full cache, which most sessions never do.
type Study struct {
	Prompt   Prompt
	Cache    *kvcache.Cache // full
	Logits   []float32
	Response []int32 // the model's own, with the full cache
	Choices  []*Choice
	// FullBytes is what the cache takes.
	FullBytes int64
	// PrefillTime is what the one pass over the prompt took, with all that is observed in it.
	PrefillTime time.Duration
	logits      *runner.Logits
	runtime     *Runtime
}

// Study observes a prompt once for all policies at all budgets, of its fields Tokens, MaxNew and Response. Policies that want the
// response get the prompt's, or where it has none the one that the model generates with the full cache and the settings, no
// longer than leaves room in its context. The choices are policy by policy, budgets in the given order.
// The selections are those that Prefill makes.
func (rt *Runtime) Study(ctx context.Context, policies []*Configured, prompt Prompt, budgets []int, opt runner.GenerateOptions) (_ *Study, err error) {
	defer kernels.CatchDevice(&err)
	m := rt.Runner.Model
	s := &Study{Prompt: prompt, Cache: kvcache.New(m), Response: prompt.Response, runtime: rt}
	s.Prompt.Config, s.Prompt.Tokenizer, s.Prompt.Turn, s.Prompt.Entries = &m.Config, m.Tokenizer, m.UserTurn, len(prompt.Tokens)
	if s.Prompt.Windows = slices.ContainsFunc(policies, (*Configured).evictsWindows); s.Prompt.Windows {
		s.Cache.HoldWindows()
	}
	p := &pass{runtime: rt, cache: s.Cache, prompt: s.Prompt}
	for _, n := range policies {
		if err := n.Fits(m); err != nil {
			return nil, err
		}
		if n.evictsWindows() != s.Prompt.Windows {
			return nil, fmt.Errorf("study: %s and %s differ in the option %s, want one for all policies", policies[0].Name, n.Name, windowsOption.Name)
		}
		for _, budget := range budgets {
			if err := CheckBudget(budget); err != nil {
				return nil, err
			}
			own := s.Prompt
			own.Budget = budget
			r := newObserver(n, own)
			p.observers = append(p.observers, r)
			s.Choices = append(s.Choices, &Choice{Configured: n, Budget: budget, observer: r})
		}
	}
	p.respond = func() ([]int32, error) {
		if s.Logits, err = p.logits.Float32s(); err != nil {
			return nil, err
		}
		s.FullBytes, s.PrefillTime = s.Cache.Bytes(), time.Since(p.started)
		if prompt.Response == nil {
			if opt.Prompt == nil {
				opt.Prompt = prompt.Tokens
			}
			s.Response, err = rt.Runner.Respond(ctx, s.Cache, p.logits, opt)
		}
		return s.Response, err
	}
	if err := p.run(ctx); err != nil {
		return nil, err
	}
	if err := p.finite(m.Backend); err != nil {
		return nil, err
	}
	s.logits = p.logits
	for _, c := range s.Choices {
		c.Kept, c.Scores = indicesOf(c.observer.kept), hostScores(c.observer.scores)
	}
	return s, nil
}

// Session makes an evicted cache of a choice, as Prefill would have; the times are
// not set.
func (s *Study) Session(choice *Choice) (_ *Session, err error) {
	defer kernels.CatchDevice(&err)
	r := choice.observer
	keep := choice.Kept
	late := r.plan.Merge != nil || (r.plan.Refit != nil || r.plan.Stay != nil) && !r.idle()
	if late || r.plan.KeepsAll {
		keep = nil
	}
	cache, err := s.Cache.Fork(keep)
	if err != nil {
		return nil, err
	}
	out := &Session{
		Cache: cache, Budget: Pairs(choice.Budget), logits: s.logits, FullBytes: s.FullBytes,
		runtime: s.runtime, policy: choice.Configured, history: s.Prompt.Tokens,
	}
	if late {
		if err := out.evict(context.Background(), r); err != nil {
			return nil, err
		}
	}
	out.beginDecoding(r)
	return out, nil
}
