package eviction

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Runtime runs one model with evicted caches, on one goroutine.
type Runtime struct {
	Runner *runner.Runner
	// Prefixes (may be nil) is what the prompts of new sessions share with those before.
	Prefixes *kvcache.PrefixCache

	model      *model.Model // the runner's, which another goroutine may ask for
	footprints sync.Map     // of footprintKey: those that were counted
	counting   sync.Mutex   // one at a time
}

// NewRuntime returns a runtime with scratch memory of its own.
func NewRuntime(m *model.Model) *Runtime { return &Runtime{Runner: runner.New(m), model: m} }

// ReleaseScratch lets go of the scratch memory of the passes so far.
func (rt *Runtime) ReleaseScratch() {
	rt.Runner = runner.New(rt.Runner.Model)
}

// ownResponse is the model's greedy response to tokens with the full cache, as long as the prompt allows.
func (rt *Runtime) ownResponse(ctx context.Context, tokens []int32, p *Prompt) ([]int32, error) {
	m := rt.Runner.Model
	cache := kvcache.New(m)
	logits, err := rt.Runner.Forward(ctx, cache, tokens, runner.PrefillOptions{Progress: p.Progress})
	if err != nil {
		return nil, err
	}
	return rt.Runner.Respond(ctx, cache, logits, runner.GenerateOptions{MaxNew: cmp.Or(p.MaxNew, m.Config.MaxPositions)})
}

// speculate lets the draft model answer the prompt, with its full cache, whose
// bytes it also returns. Progress is that of the model's own draft.
func (rt *Runtime) speculate(ctx context.Context, d *Draft, tokens []int32, progress runner.Progress) (draft []int32, bytes int64, err error) {
	m, r, opt := d.Model, rt.Runner, runner.PrefillOptions{}
	if m == nil {
		m, opt.Progress = rt.Runner.Model, progress
	} else if counter := rt.Runner.Model.Counter(); counter != nil && !m.Counts() {
		counted, own := m.Counted()
		weights := own.Live()
		defer func() { counter.Alloc(kernels.BF16, int(own.Peak()-weights)/2) }() // for a moment, beside what there is
		m, r = counted, runner.New(counted)
	} else {
		r = runner.New(m)
	}
	cache := kvcache.New(m)
	logits, err := r.Forward(ctx, cache, tokens, opt)
	if err != nil {
		return nil, 0, fmt.Errorf("draft by %s: %w", m.Name, err)
	}
	room := m.Config.MaxPositions - len(tokens) + 1 // the last token is not run
	draft, _, err = r.Continue(ctx, cache, logits, runner.GenerateOptions{MaxNew: min(d.Tokens, room)})
	if err != nil {
		return nil, 0, fmt.Errorf("draft by %s: %w", m.Name, err)
	}
	// A padded vocabulary has ids that no token is behind.
	if i := slices.IndexFunc(draft, func(id int32) bool { return int(id) >= rt.Runner.Model.Config.Vocab }); i >= 0 {
		draft = draft[:i]
	}
	return draft, cache.Bytes(), nil
}
