package eviction

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"glimpse/kernels"
	"glimpse/kernels/memcount"
	"glimpse/model"
)

// FootprintOptions say what a run will do.
type FootprintOptions struct {
	Tokens, Budget, MaxNew int
	// Study holds the full cache of the prompt while evicted copies decode, as
	// [Runtime.Study] does.
	Study bool
}

// Footprint makes the allocations of a prompt's prefill, of its eviction and of a
// response on a model that only counts memory (see [model.Model.Counted]), by the
// code that makes them. What lies on the host beside the cache is left out, and so are all
// numbers, so it takes no longer than the calls. It returns the
// most that the cache held, and all memory that is needed at once, the model's included.
func (rt *Runtime) Footprint(ctx context.Context, named *Configured, o FootprintOptions) (cache, need int64, err error) {
	m := rt.Runner.Model
	counter := m.Counter()
	if counter == nil {
		return 0, 0, fmt.Errorf("footprint: got a model on %s, want a counted one", m.Backend.Name())
	}
	rt.MaxNew = o.MaxNew
	s, err := rt.NewSession(named, Pairs(o.Budget))
	if err != nil {
		return 0, 0, err
	}
	tokens := make([]int32, o.Tokens)
	s.Prompt.Tokens, s.Prompt.Entries, s.Prompt.Budget, s.Prompt.MaxNew = tokens, o.Tokens, o.Budget, o.MaxNew
	r := newRequest(named, s.Prompt)
	room := max(0, m.Config.MaxPositions-o.Tokens)
	if draft := r.plan.Draft; draft != nil && o.Tokens > o.Budget {
		written := make([]int32, min(draft.Tokens, room))
		if draft.Model == nil {
			if cache, err = rt.grownCache(ctx, tokens, len(written)); err != nil {
				return 0, 0, err
			}
		}
		r.know(func(p *Prompt) { p.Draft = written })
	}
	if r.plan.NeedsResponse && o.Tokens > o.Budget {
		response := make([]int32, rt.mostResponse(o.Tokens))
		if !o.Study {
			if cache, err = rt.grownCache(ctx, tokens, len(response)); err != nil {
				return 0, 0, err
			}
		}
		r.know(func(p *Prompt) { p.Response = response })
	}
	whole := r.plan.Whole(r.prompt.Entries, r.prompt.Budget)
	s.logits, err = rt.Runner.Forward(ctx, s.Cache, tokens, model.PrefillOptions{Capture: merge([]*request{r}), Pipelined: o.Study || whole, Observe: func(ob *model.Observation) error {
		cache = max(cache, s.Cache.Bytes())
		keep := r.observe(ob)
		if o.Study || r.plan.Waits() {
			return nil
		}
		return s.Cache.RetainSelection(ob.Layer, keep)
	}})
	if err != nil {
		return 0, 0, err
	}
	r.finish()
	full := s.Cache
	if !r.idle() && (o.Study || r.plan.Drafted > 0) {
		keep := indicesOf(r.kept)
		if r.plan.KeepsAll {
			keep = nil
		}
		if s.Cache, err = full.Retained(keep); err != nil {
			return 0, 0, err
		}
		cache = max(cache, full.Bytes()+s.Cache.Bytes())
	}
	if r.plan.Drafted > 0 && !r.idle() {
		rows := min(r.plan.Drafted, room)
		if err := rt.footprintDraft(ctx, full, s.Cache, rows); err != nil {
			return 0, 0, err
		}
		cache = max(cache, full.Bytes()+s.Cache.Bytes())
		s.Prompt.Drafted = rows
		r.know(func(p *Prompt) { p.Drafted = rows })
	}
	if !r.idle() && r.plan.Waits() && !r.plan.KeepsAll {
		evicted := s.Cache
		s.Cache = full
		if r.plan.Merge != nil && o.Study {
			for l, keep := range r.kept {
				s.thresholds = append(s.thresholds, r.plan.Merge(full, l, keep))
			}
		} else if !o.Study {
			if err := s.evict(r); err != nil {
				return 0, 0, err
			}
			evicted = full
		}
		s.Cache = evicted
	}
	s.history = tokens
	s.begin(r)
	steps := min(o.MaxNew, room)
	if err := s.footprintSteps(ctx, counter, steps); err != nil {
		return 0, 0, err
	}
	evicted := s.Cache
	growth := int64(0)
	if r.plan.Decode == nil || r.idle() {
		growth = int64(steps) * m.Config.CacheBytesPerToken(1) * evicted.PairBytes() / int64(2*m.Config.HeadDim)
	}
	need = max(counter.Peak(), counter.Held()+growth)
	runtime.KeepAlive(full)
	runtime.KeepAlive(r)
	runtime.KeepAlive(s)
	return cache, need, nil
}

// footprintSteps runs the first decoding steps, the second of which is recorded where the
// device records, and gives a sparse policy room for all of them.
func (s *Session) footprintSteps(ctx context.Context, counter *memcount.Counter, steps int) error {
	var capture model.Capture
	if s.decode != nil {
		capture = s.decode.Capture
	}
	observe := func(o *model.Observation) error {
		if s.decode == nil {
			return nil
		}
		return s.evictStep(o)
	}
	for range min(steps, 1) + min(max(0, steps-2), 1) { // the last token is not run
		if _, err := s.runtime.Runner.Step(ctx, s.Cache, 0, capture, observe); err != nil {
			return err
		}
	}
	if s.decode != nil {
		counter.Take(min(s.Cache.Bytes(), model.CompactBytes+s.Cache.LayerBytes(0))) // of what moves up
	}
	if st, ok := s.sparse.(*SparsePages); ok {
		st.reserve(s.Cache, steps)
	}
	return nil
}

// grownCache fills a cache of its own with a prompt and so many more tokens.
func (rt *Runtime) grownCache(ctx context.Context, tokens []int32, more int) (int64, error) {
	cache := rt.Runner.Model.NewCache()
	if _, err := rt.Runner.Prefill(ctx, cache, tokens, model.PrefillOptions{}); err != nil {
		return 0, err
	}
	cache.Reserve(more)
	return cache.Bytes(), nil
}

// footprintDraft decodes a draft on an evicted cache and observes its queries.
func (rt *Runtime) footprintDraft(ctx context.Context, full, evicted *model.Cache, rows int) error {
	m := rt.Runner.Model
	c := &m.Config
	var queries, keys []*kernels.Tensor
	for l := range c.Layers {
		b := m.On(l)
		queries = append(queries, b.Alloc(b.Compute(), rows, c.Heads, c.HeadDim))
		keys = append(keys, b.Alloc(b.Compute(), rows, c.KVHeads, c.HeadDim))
	}
	evicted.Reserve(rows)
	if _, err := rt.Runner.Step(ctx, evicted, 0, model.Capture{Queries: true}, func(*model.Observation) error { return nil }); err != nil {
		return err
	}
	for l := range c.Layers {
		rt.Runner.ObserveQueries(full, l, queries[l], keys[l])
	}
	return nil
}

// CountedResources are what a policy takes, for a counted model: adapters of the kind's usual
// size, without numbers.
func CountedResources(m *model.Model, policy string, overrides Overrides) (r Resources, adapterBytes int64, err error) {
	needs, err := NeedsOf(policy, overrides)
	if err != nil || needs.Adapter == "" {
		return r, 0, err
	}
	kind, err := model.AdapterKinds.Lookup(needs.Adapter)
	if err != nil {
		return r, 0, err
	}
	c := model.AdapterConfig{Rows: 32, InitToken: -1}
	if r.Adapter, err = kind.New(m, c); err != nil {
		return r, 0, err
	}
	c.Rank, c.Modules = 8, slices.Clone(model.Modules)
	return r, kind.Count(m, c) * int64(m.Backend.Compute().Size()), nil
}
