package engine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"

	"glimpse/eviction"
)

// ContextOrigin is what a context is made with: a policy of the model at a budget.
func (m *Model) ContextOrigin(ctx context.Context, p Policy, budget eviction.Budget) (o eviction.ContextOrigin, err error) {
	of := struct {
		Name    string
		Seed    uint64
		Values  map[string]float64
		Adapter string
		Draft   string
		Pattern *eviction.Pattern
		Budgets *eviction.HeadBudgets
	}{p.Configured.Name, m.asked.Seed, p.Settings.Values(), p.sum, "", p.Settings.Resources.Pattern, p.Settings.Resources.HeadBudgets}
	if draft := p.Settings.Resources.Draft; draft != nil {
		if of.Draft, err = draft.SHA256(ctx); err != nil {
			return o, err
		}
	}
	raw, err := json.Marshal(of)
	if err != nil {
		return o, err
	}
	sum := sha256.Sum256(raw)
	return eviction.ContextOrigin{Policy: NameWithAdapter(p.Title(), p.Adapter), PolicySum: hex.EncodeToString(sum[:]), Budget: budget.String()}, nil
}

// runPrompt takes the prompt of a request through its session: the context first, where it begins with one.
func (e *Engine) runPrompt(ctx context.Context, a *Answer) error {
	r := &a.Request
	rest := r.Prompt[a.known:]
	if r.Context > 0 {
		if err := e.enterContext(ctx, a); err != nil {
			return err
		}
		if rest = r.Prompt[r.Context:]; len(rest) == 0 {
			a.compressed = true
			return nil
		}
	}
	return r.Session.Turn(ctx, eviction.Prompt{Tokens: rest, MaxNew: r.Generate.MaxNew, Progress: r.Progress})
}

// enterContext makes the session of a request one that goes on from its context: from one that is kept, or else one that is evicted
// now and kept for others.
func (e *Engine) enterContext(ctx context.Context, a *Answer) error {
	r := &a.Request
	s, tokens := r.Session, r.Prompt[:r.Context]
	if c := e.keptContext(s, tokens); c != nil {
		a.standing = len(tokens)
		return s.Resume(c, len(r.Prompt)-r.Context)
	}
	if err := s.Compress(ctx, eviction.Prompt{Tokens: tokens, Progress: r.Progress}, len(r.Prompt)-r.Context); err != nil {
		return err
	}
	e.keepContext(s.CacheSalt, s.Context)
	return nil
}

// keptContext is the context that a session's policy has made of the tokens at its budget; nil where it is not kept.
func (e *Engine) keptContext(s *eviction.Session, tokens []int32) *eviction.Context {
	k := &e.kept
	i := slices.IndexFunc(k.all, func(x keptEntry) bool {
		return x.context != nil && x.owner == s.CacheSalt && s.Makes(x.context) && slices.Equal(x.context.Tokens, tokens)
	})
	if i < 0 {
		return nil
	}
	x := k.all[i]
	k.all = slices.Delete(k.all, i, i+1)
	k.keep(x, len(x.context.Tokens), x.bytes)
	return x.context
}

// HasContext tells that the context is kept which a session's policy makes of the tokens at its budget.
func (e *Engine) HasContext(s *eviction.Session, tokens []int32) bool {
	return e.keptContext(s, tokens) != nil
}

// TakeContext keeps a context that was read from a file, as if the session had made it, where there is room and none like it.
func (e *Engine) TakeContext(s *eviction.Session, c *eviction.Context) {
	if s.Adopt(c); !e.HasContext(s, c.Tokens) {
		e.keepContext(s.CacheSalt, c)
	}
}

// keepContext keeps a context where there is room beside what runs.
func (e *Engine) keepContext(salt string, c *eviction.Context) {
	room, bytes := e.Budget-e.needs(), c.Bytes()
	if e.Budget == 0 || bytes > room {
		return
	}
	e.LetGo(room - bytes)
	e.kept.keep(keptEntry{context: c, owner: salt, bytes: bytes}, len(c.Tokens), bytes)
}

// needs is the memory that what runs may come to.
func (e *Engine) needs() (n int64) {
	if e.filling != nil {
		n = e.filling.need.Need() - e.filling.need.Steps
	}
	for _, other := range e.live {
		n += other.need.Answer
	}
	return n + e.steps
}
