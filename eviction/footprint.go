package eviction

import (
	"context"
	"fmt"
	"runtime"
	"slices"

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
	tokens, most := make([]int32, o.Tokens), min(o.MaxNew, m.Config.MaxPositions-o.Tokens+1)
	var s *Session
	var study *Study // whose full cache stays
	if o.Study {
		if study, err = rt.Study(ctx, []*Configured{named}, tokens, []int{o.Budget}, most); err == nil {
			s, err = study.Session(study.Choices[0])
		}
	} else {
		s, err = rt.Prefill(ctx, named, tokens, o.Budget, nil)
	}
	if err != nil {
		return 0, 0, err
	}
	cache = max(s.PeakBytes, s.Cache.Bytes())
	if study != nil {
		cache = study.Cache.Bytes() + s.Cache.Bytes()
	}
	sparse := s.sparse
	s.sparse = nil // steps that read everything need no less beside the pages, which are reserved below
	if _, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: most}); err != nil {
		return 0, 0, err
	}
	if s.decode != nil {
		counter.Take(min(s.Cache.Bytes(), model.CompactBytes+s.Cache.LayerBytes(0))) // of what moves up
	}
	if st, ok := sparse.(*SparsePages); ok {
		st.reserve(s.Cache, max(0, most-1))
	}
	runtime.KeepAlive(study)
	runtime.KeepAlive(s)
	return cache, counter.Peak(), nil
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
