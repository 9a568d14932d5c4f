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
// response on a model that only counts memory (see [model.Model.Dry]). What methods
// compute on the host is left out, so it takes no longer than the calls. It returns the
// most that the cache held, and all memory that is needed at once, the model's included.
func (rt *Runtime) Footprint(ctx context.Context, named *Named, o FootprintOptions) (cache, need int64, err error) {
	m := rt.Runner.Model
	counter, ok := m.Backend.(*memcount.Counter)
	if !ok {
		return 0, 0, fmt.Errorf("footprint: got a model on %s, want a dry one", m.Backend.Name())
	}
	rt.MaxNew = o.MaxNew
	s, err := rt.NewSession(named, o.Budget)
	if err != nil {
		return 0, 0, err
	}
	tokens := make([]int32, o.Tokens)
	s.Prompt.Tokens, s.Prompt.Entries, s.Prompt.MaxNew = tokens, o.Tokens, o.MaxNew
	room := max(0, m.Config.MaxPositions-o.Tokens)
	if spec, ok := as[Speculator](s.method); ok && o.Tokens > o.Budget {
		s.Prompt.Draft = make([]int32, min(spec.DraftTokens(), room))
		if spec.DraftModel() == nil {
			if cache, err = rt.grownCache(ctx, tokens, len(s.Prompt.Draft)); err != nil {
				return 0, 0, err
			}
		}
	}
	if _, ok := as[Responder](s.method); ok && o.Tokens > o.Budget {
		s.Prompt.Response = make([]int32, rt.mostResponse(o.Tokens))
		if !o.Study {
			if cache, err = rt.grownCache(ctx, tokens, len(s.Prompt.Response)); err != nil {
				return 0, 0, err
			}
		}
	}
	r := &request{name: s.name, method: s.method, prompt: firstStage(s.Prompt, s.second)}
	drafter, _ := as[Drafter](s.method)
	_, waits := s.method.(CrossLayerAllocator)
	_, keepsAll := s.method.(PoolKeeper)
	// Which entries are kept does not matter, only how many.
	kept := func(c *model.Cache, layer int) [][]int32 {
		budget := r.prompt.Budget
		if a, ok := s.method.(LayerAllocator); ok {
			budget = a.LayerBudgets(r.prompt)[layer]
		}
		keep := make([][]int32, c.KVHeads())
		for h := range keep {
			keep[h] = upTo(0, min(budget, c.Entries(layer, h)))
		}
		return keep
	}
	var scores []*kernels.Tensor
	s.logits, err = rt.Runner.Forward(ctx, s.Cache, tokens, model.PrefillOptions{Capture: merge([]*request{r}), Observe: func(ob *model.Observation) error {
		cache = max(cache, s.Cache.Bytes())
		scores = append(scores, r.footprintScores(ob, counter)...)
		if r.idle() || o.Study || drafter != nil || waits || keepsAll {
			return nil
		}
		return s.Cache.Retain(ob.Layer, kept(s.Cache, ob.Layer))
	}})
	if err != nil {
		return 0, 0, err
	}
	evicted := s.Cache
	if !r.idle() && (o.Study || drafter != nil || waits) {
		all := make([][][]int32, s.Cache.Layers())
		for l := range all {
			all[l] = kept(s.Cache, l)
		}
		if o.Study || drafter != nil {
			if keepsAll {
				all = nil
			}
			if evicted, err = s.Cache.Retained(all); err != nil {
				return 0, 0, err
			}
			cache = max(cache, s.Cache.Bytes()+evicted.Bytes())
		}
		if drafter != nil {
			rows := min(drafter.DraftTokens(), room)
			if err := rt.footprintDraft(ctx, s.Cache, evicted, rows); err != nil {
				return 0, 0, err
			}
			cache = max(cache, s.Cache.Bytes()+evicted.Bytes())
			r.prompt.Drafted = rows
			for l := range all {
				all[l] = kept(s.Cache, l)
			}
		}
		if _, ok := s.method.(Merger); ok {
			s.footprintMerge(counter, min(r.prompt.Budget, o.Tokens), o.Tokens)
		}
		if !o.Study {
			evicted = s.Cache
			for l := range all {
				if err := s.Cache.Retain(l, all[l]); err != nil {
					return 0, 0, err
				}
			}
		}
	}
	steps := min(o.MaxNew, room)
	state, err := rt.footprintSteps(ctx, s, evicted, counter, steps, r.prompt.Budget)
	if err != nil {
		return 0, 0, err
	}
	index := s.footprintSparse(evicted, counter, steps)
	growth := int64(0)
	if _, bounded := s.method.(DecodeEvicter); !bounded || r.idle() {
		growth = int64(steps) * m.Config.CacheBytesPerToken(1) * evicted.PairBytes() / int64(2*m.Config.HeadDim)
	}
	need = max(counter.Peak(), counter.Held()+growth)
	runtime.KeepAlive(index)
	runtime.KeepAlive(scores)
	runtime.KeepAlive(state)
	runtime.KeepAlive(evicted)
	runtime.KeepAlive(s)
	return cache, need, nil
}

// footprintScores are the scores that a session keeps of a layer on a device.
func (r *request) footprintScores(o *model.Observation, counter *memcount.Counter) (scores []*kernels.Tensor) {
	if r.idle() || !counter.Traits().Device {
		return nil
	}
	n := 0
	if _, ok := r.method.(formulated); ok {
		n = 1
	}
	if _, ok := r.method.(deviceSpreader); ok {
		n = 2
	}
	if poolingOf(r.method, r.prompt).pools() { // the sums as well as what they are pooled to
		n *= 2
	}
	for range n {
		scores = append(scores, counter.Alloc(kernels.F32, o.Cache.KVHeads(), slices.Max(entriesOf(o))))
	}
	for _, lse := range slices.Concat(o.ProbeLSE, o.PeakProbeLSE) {
		if c := r.prompt.Config; o.Layer == 0 { // which is kept of every layer
			scores = append(scores, counter.Alloc(lse.DType, c.Layers*c.Heads, lse.Width()))
		}
	}
	return scores
}

// footprintMerge takes what it takes to merge what a layer evicts.
func (s *Session) footprintMerge(b *memcount.Counter, kept, entries int) {
	c := s.Prompt.Config
	if _, ok := s.method.(deviceMerger); ok && b.Traits().Device { // norms, and for what is evicted the nearest key and its similarity
		norms, nearest := b.Alloc(kernels.F64, c.KVHeads, entries), b.Alloc(kernels.F32, 3, c.KVHeads, entries-kept)
		runtime.KeepAlive(norms)
		runtime.KeepAlive(nearest)
		return
	}
	conserved, part := b.Alloc(b.Compute(), kept, c.HeadDim), b.Alloc(b.Compute(), min(mergeRows, entries-kept), c.HeadDim+kept)
	runtime.KeepAlive(conserved)
	runtime.KeepAlive(part)
}

// stepFootprint is a DecodeEvicter that says what its decoding steps capture, where that
// is not the scores of the row, and how many numbers it keeps on a device for every entry
// of all heads, where it keeps some.
type stepFootprint interface {
	stepFootprint() (capture model.Capture, kept int)
}

// footprintSteps runs the first decoding steps, the second of which is recorded where the
// device records, and returns what a policy that evicts while decoding keeps there.
func (rt *Runtime) footprintSteps(ctx context.Context, s *Session, evicted *model.Cache, counter *memcount.Counter, steps, budget int) (state []*kernels.Tensor, err error) {
	var capture model.Capture
	kept := 0
	_, evicts := s.method.(DecodeEvicter)
	if m, ok := s.method.(stepFootprint); ok {
		capture, kept = m.stepFootprint()
	} else if evicts {
		capture.Windows = []int{1}
	}
	observe := func(*model.Observation) error { return nil }
	for range min(steps, 1) + min(max(0, steps-2), 1) { // the last token is not run
		if _, err := rt.Runner.Step(ctx, evicted, 0, capture, observe); err != nil {
			return nil, err
		}
	}
	if !evicts || !counter.Traits().Device {
		return nil, nil
	}
	for range kept {
		state = append(state, counter.Alloc(kernels.F32, evicted.Layers()*evicted.KVHeads(), budget+sumsRoom))
	}
	counter.Take(min(evicted.Bytes(), model.CompactBytes+evicted.LayerBytes(0))) // of what moves up
	return state, nil
}

// footprintSparse makes the pages that a sparse policy keeps on a device.
func (s *Session) footprintSparse(evicted *model.Cache, counter *memcount.Counter, steps int) (index []*kernels.Tensor) {
	second := s.second
	if second == nil {
		second, _ = s.method.(SparseDecoder)
	}
	x, ok := second.(layouter)
	if !ok || !counter.Traits().Device {
		return nil
	}
	l := x.layout(s)
	for i := l.dense; i < evicted.Layers(); i++ {
		for h := range evicted.KVHeads() {
			pages := pagesOf(evicted.Entries(i, h)+steps, l.size, 0)
			index = append(index, counter.Alloc(kernels.F32, l.bounds, s.Prompt.Config.HeadDim, pageRoom(pages, l.size)))
		}
	}
	return index
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
	c, b := &m.Config, m.Backend
	var queries, keys []*kernels.Tensor
	for range c.Layers {
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

// DryResources are what a policy takes, for a dry model: adapters of the kind's usual
// size, without numbers.
func DryResources(m *model.Model, policy string, overrides Overrides) (r Resources, adapterBytes int64, err error) {
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
