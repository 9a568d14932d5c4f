package eviction

import (
	"context"
	"fmt"
	"math/bits"
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
	// Context is how many of the first tokens are evicted before the others are known, which all stay ([Session.Compress]).
	Context int
	// LogProbs tells what the model gives to the prompt's tokens.
	LogProbs bool
	// Study holds the full cache of the prompt while evicted copies decode, as
	// [Runtime.Study] does.
	Study bool
	// Enough is memory, in bytes beside the weights, within which a bound is as good as the need: it is counted
	// with few collections of garbage, and the footprint is then the bound alone.
	Enough int64
}

// Footprint is the memory of one prompt and its answer, in bytes, beside the weights.
type Footprint struct {
	Cache     int64 // most of keys and values
	Prompt    int64 // most while the prompt runs, beside Passes
	Passes    int64 // scratch memory of the passes, which the runtime keeps for other prompts
	Answer    int64 // most of the session from the prompt's end to the answer's
	Steps     int64 // of the steps, whatever is decoded beside it, which the batch keeps
	Peak      int64 // most at once where nothing else has run
	Temporary int64 // most of one operation on a device
}

// Own is the most that is let go of when the answer ends.
func (f Footprint) Own() int64 { return max(f.Prompt, f.Answer) }

// Need is the most that a batch takes in which nothing else is decoded, whatever has run before.
func (f Footprint) Need() int64 { return f.Own() + f.Passes + f.Steps }

// profile is a run on a model that only counts memory, with the peaks of its phases that runs before have come to know.
type profile struct {
	*Runtime
	counter *memcount.Counter
	weights int64
	known   []int64 // by phase, weights included
	part    int64   // to which peaks are looked for
	phase   int
}

// endPhase is the peak so far, weights included.
func (p *profile) endPhase() int64 {
	p.known[p.phase] = p.counter.Sure()
	if p.phase++; p.phase < len(p.known) {
		p.counter.SeekFrom(p.known[p.phase], p.part)
	}
	return p.counter.Peak()
}

// allParts are the parts of a peak to which it is looked for: collections of garbage, which find a peak among dead
// tensors, take nearly all of the time, and fewer are needed from a peak that is known.
var allParts = []int64{8, 40, memcount.FinestPart}

// profileRun makes the allocations of a run of so many phases on models of m's shapes, by the code that makes them, until
// run says that it ends, or once for each part. Each begins at the peaks that the one before has come to know; the first
// one, where enough is not 0, looks for those above it alone.
func profileRun(m *model.Model, phases int, enough int64, parts []int64, run func(p *profile) (ends bool, err error)) error {
	known := make([]int64, phases)
	once := func(part, least int64) (ends bool, err error) {
		counted, counter := m.Counted()
		p := &profile{Runtime: NewRuntime(counted), counter: counter, weights: counter.Live(), known: known, part: part}
		for phase := range known {
			if least > 0 {
				known[phase] = p.weights + least
			}
		}
		counter.SeekFrom(known[0], part)
		return run(p)
	}
	if enough > 0 {
		if ends, err := once(parts[0], enough); err != nil || ends {
			return err
		}
		clear(known) // no peak need be as high
	}
	for _, part := range parts {
		if ends, err := once(part, 0); err != nil || ends {
			return err
		}
	}
	return nil
}

// PeakOf is the most memory, in bytes beside the weights, that run takes of a runtime for m, counted as
// footprints are: it is run on models of m's shapes that only count memory.
func PeakOf(m *model.Model, run func(rt *Runtime) error) (bytes int64, err error) {
	err = profileRun(m, 1, 0, allParts, func(p *profile) (bool, error) {
		err := run(p.Runtime)
		bytes = p.endPhase() - p.weights
		return false, err
	})
	return bytes, err
}

// NewFootprint makes the allocations of a prompt's prefill, of its eviction and of a
// response on a model of m's shapes that only counts memory, by the code that makes them. What lies on the host
// beside the cache is left out, and so are all numbers, so it takes no longer than the calls. The policy's
// adapter is not counted.
func NewFootprint(ctx context.Context, m *model.Model, named *Configured, o FootprintOptions) (f Footprint, err error) {
	parts := allParts
	if named.Settings.Resources.Draft != nil { // which is counted apart, and takes long
		parts = parts[2:]
	}
	err = profileRun(m, 2, o.Enough, parts, func(p *profile) (fits bool, err error) {
		f, err = p.footprint(ctx, named, o)
		if fits = p.counter.Sure() == p.weights+o.Enough && f.Need() <= o.Enough; fits {
			f = Footprint{Cache: f.Cache, Prompt: f.Peak, Answer: f.Peak, Peak: f.Peak}
		}
		return fits, err
	})
	return f, err
}

// footprint is the footprint that one run finds, in two phases: the prompt, and the answer.
func (p *profile) footprint(ctx context.Context, named *Configured, o FootprintOptions) (f Footprint, err error) {
	m, counter, rt := p.Runner.Model, p.counter, p.Runtime
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
	peak := p.endPhase()
	f.Prompt = peak - p.weights - f.Passes
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
	// Far within enough the peak is a bound that does: it is at least each part of Need. Collecting garbage, to count those, takes as
	// long as a short prompt.
	if bound := counter.Peak() - p.weights; o.Enough > 0 && counter.Sure() == p.weights+o.Enough && 4*bound <= o.Enough {
		f.Peak = p.endPhase() - p.weights
		return f, nil
	}
	live := counter.Live()
	runtime.KeepAlive(study)
	runtime.KeepAlive(s)
	runtime.KeepAlive(sparse)
	study, s, sparse = nil, nil, nil
	stays := counter.Live()
	f.Answer, f.Peak, f.Temporary = live-stays, p.endPhase()-p.weights, counter.Temporary()
	f.Steps = stays - p.weights - f.Passes + max(f.Temporary, counter.Held()-stays)
	if counter.Sure() > peak { // in a step
		f.Steps = max(f.Steps, f.Peak-f.Passes-f.Answer)
	}
	runtime.KeepAlive(batch)
	runtime.KeepAlive(rt)
	return f, nil
}

// Footprint is the memory of a turn and its answer, of which o says Rows and MaxNew, counted as if all of the
// conversation were one prompt, of up to an eighth more tokens, so that few are counted. Before the first turn any
// goroutine may ask.
func (s *Session) Footprint(ctx context.Context, tokens int, o FootprintOptions) (Footprint, error) {
	n := len(s.history) + len(s.pending) + tokens
	step := 1 << max(0, bits.Len(uint(n))-4)
	n = max(n, min((n+step-1)/step*step, s.Model().Config.MaxPositions))
	o.Tokens, o.Budget, o.LogProbs = n, s.pairs(n), s.LogProbs != nil
	if c := s.Context; c != nil {
		o.Context, o.Budget = len(c.Tokens), c.cache.Pairs()/c.cache.Heads()+n-len(c.Tokens)
	} else if o.Context > 0 {
		o.Budget = s.pairs(o.Context) + n - o.Context
	}
	o.Context = 0 // counted by its budget, as if the whole were evicted to that
	k, known := footprintKey{s.policy, o}, &s.runtime.footprints
	if f, ok := known.Load(k); ok {
		return f.(Footprint), nil
	}
	s.runtime.counting.Lock()
	defer s.runtime.counting.Unlock()
	if f, ok := known.Load(k); ok {
		return f.(Footprint), nil
	}
	f, err := NewFootprint(ctx, s.Model(), k.policy, k.of)
	if err == nil {
		known.Store(k, f)
	}
	return f, err
}

// footprintKey is what a footprint depends on.
type footprintKey struct {
	policy *Configured
	of     FootprintOptions
}

// CountedResources are what a policy takes, for a counted model: an adapter of the kind's usual size, without numbers.
func CountedResources(m *model.Model, policy string, overrides Overrides) (r Resources, err error) {
	needs, err := NeedsOf(policy, overrides)
	if err != nil || needs.Adapter == "" {
		return r, err
	}
	for kind, adapter := range map[string]*model.Adapter{needs.Adapter: &r.Adapter, needs.ScorerAdapter: &r.Scorer} {
		if kind == "" {
			continue
		}
		usual, err := model.AdapterKinds.Lookup(kind)
		if err != nil {
			return r, fmt.Errorf("policy %s: %w", policy, err)
		}
		if *adapter, err = usual.Usual(m); err != nil {
			return r, err
		}
	}
	return r, nil
}
