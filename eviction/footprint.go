package eviction

import (
	"context"
	"fmt"
	"runtime"

	"glimpse/kernels/memcount"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// FootprintOptions say what a run will do.
type FootprintOptions struct {
	Tokens, Budget, MaxNew int
	// Rows is how many the batch has that the answer is decoded in; 0 is 1.
	Rows int
	// LogProbs tells what the model gives to the prompt's tokens.
	LogProbs bool
	// Study holds the full cache of the prompt while evicted copies decode, as
	// [Runtime.Study] does.
	Study bool
}

// Footprint is the memory of one prompt and its answer, in bytes, beside the weights.
type Footprint struct {
	Cache  int64 // most of keys and values
	Prompt int64 // most while the prompt runs, beside Passes
	Passes int64 // scratch memory of the passes, which the runtime keeps for other prompts
	Answer int64 // most of the session from the prompt's end to the answer's
	Steps  int64 // of the steps, whatever is decoded beside it, which the batch keeps
	Peak   int64 // most at once where nothing else has run
}

// Own is the most that is let go of when the answer ends.
func (f Footprint) Own() int64 { return max(f.Prompt, f.Answer) }

// Need is the most that a batch takes in which nothing else is decoded, whatever has run before.
func (f Footprint) Need() int64 { return f.Own() + f.Passes + f.Steps }

// Footprint makes the allocations of a prompt's prefill, of its eviction and of a
// response on a model that only counts memory and has counted nothing yet (see
// [model.Model.Counted]), by the code that makes them. What lies on the host beside the cache
// is left out, and so are all numbers, so it takes no longer than the calls. The policy's
// adapter is not counted.
func (rt *Runtime) Footprint(ctx context.Context, named *Configured, o FootprintOptions) (f Footprint, err error) {
	return rt.footprint(ctx, named, o, &peaks{}, memcount.FinestPart)
}

// peaks are known to be reached until the prompt's end, and until the answer's.
type peaks struct{ prompt, all int64 }

// countAnew is Footprint on models that are counted anew; each begins at the peaks that the one before has come to
// know, and looks closer: collections of garbage, which find a peak among dead tensors, take nearly all of the time,
// and hold up whoever else is on the processor.
func countAnew(ctx context.Context, m *model.Model, named *Configured, o FootprintOptions) (f Footprint, err error) {
	parts := []int64{8, 40, memcount.FinestPart}
	if named.Settings.Resources.Draft != nil { // whose own peak is known already
		parts = parts[2:]
	}
	var known peaks
	for _, part := range parts {
		counted, _ := m.Counted()
		if f, err = NewRuntime(counted).footprint(ctx, named, o, &known, part); err != nil {
			break
		}
	}
	return f, err
}

// footprint is Footprint, above known peaks, which it makes better, and to a part.
func (rt *Runtime) footprint(ctx context.Context, named *Configured, o FootprintOptions, known *peaks, part int64) (f Footprint, err error) {
	m := rt.Runner.Model
	counter := m.Counter()
	if counter == nil {
		return f, fmt.Errorf("footprint: got a model on %s, want a counted one", m.Backend.Name())
	}
	counter.SeekFrom(known.prompt, part)
	weights := counter.Live()
	prompt, most := Prompt{Tokens: make([]int32, o.Tokens), Budget: o.Budget, MaxNew: o.MaxNew}, min(o.MaxNew, m.Config.MaxPositions-o.Tokens+1)
	var s *Session
	var study *Study // whose full cache stays
	if o.Study {
		if study, err = rt.Study(ctx, []*Configured{named}, prompt, []int{o.Budget}, runner.GenerateOptions{MaxNew: most}); err == nil {
			s, err = study.Session(study.Choices[0])
		}
	} else if s, err = rt.NewSession(named, Pairs(o.Budget)); err == nil {
		if o.LogProbs {
			s.LogProbs = &runner.PromptLogProbs{}
		}
		err = s.Turn(ctx, prompt)
	}
	if err != nil {
		return f, err
	}
	f.Cache = max(s.PeakBytes, s.Cache.Bytes())
	if study != nil {
		f.Cache = study.Cache.Bytes() + s.Cache.Bytes()
	}
	f.Passes = rt.Runner.ScratchBytes()
	peak := counter.Peak()
	known.prompt = counter.Sure()
	counter.SeekFrom(known.all, part)
	f.Prompt = peak - weights - f.Passes
	sparse := s.sparse
	if m.Backend.Traits().Device { // steps that read everything need no less beside the pages, which are reserved below
		s.sparse = nil
	}
	batch, err := runner.New(m).NewBatch(max(1, o.Rows))
	if err != nil {
		return f, err
	}
	if _, err := s.Join(batch, runner.GenerateOptions{MaxNew: most}); err != nil {
		return f, err
	}
	if err := batch.Run(ctx); err != nil {
		return f, err
	}
	if s.decode != nil {
		counter.TakeBytes(min(s.Cache.Bytes(), kvcache.CompactBytes+s.Cache.LayerBytes(m.Config.FirstAttention()))) // of the pairs that move up
	}
	if st, ok := sparse.(*SparsePages); ok {
		st.reserve(s.Cache, max(0, most-1))
	}
	live := counter.Live()
	runtime.KeepAlive(study)
	runtime.KeepAlive(s)
	runtime.KeepAlive(sparse)
	study, s, sparse = nil, nil, nil
	stays := counter.Live()
	known.all = counter.Sure()
	f.Answer, f.Peak = live-stays, counter.Peak()-weights
	f.Steps = stays - weights - f.Passes + max(counter.Temporary(), counter.Held()-stays)
	if counter.Sure() > peak { // in a step
		f.Steps = max(f.Steps, f.Peak-f.Passes-f.Answer)
	}
	runtime.KeepAlive(batch)
	runtime.KeepAlive(rt)
	return f, nil
}

// CountedResources are what a policy takes, for a counted model: an adapter of the kind's usual size, 32 rows
// and LoRA of rank 8 on all modules where the kind has one (LookaheadKV, arXiv:2603.10899, §4.1), without
// numbers.
func CountedResources(m *model.Model, policy string, overrides Overrides) (r Resources, err error) {
	needs, err := NeedsOf(policy, overrides)
	if err != nil || needs.Adapter == "" {
		return r, err
	}
	kind, err := model.AdapterKinds.Lookup(needs.Adapter)
	if err != nil {
		return r, fmt.Errorf("policy %s: %w", policy, err)
	}
	c := model.AdapterConfig{Rows: 32, Rank: 8, Alpha: 32, Modules: model.Modules, InitToken: -1}
	if r.Adapter, err = kind.New(m, c); err != nil { // rows alone
		r.Adapter, err = kind.New(m, model.AdapterConfig{Rows: c.Rows, InitToken: -1})
	}
	return r, err
}
