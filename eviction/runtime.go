package eviction

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"time"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Runtime runs one model with evicted caches, on one goroutine.
type Runtime struct {
	Runner *runner.Runner
	// MaxNew is the most tokens that responses will have, which the split of a budget
	// between two stages may depend on; 0: unknown. It also bounds what a policy is
	// told of the response where the caller does not know it.
	MaxNew int
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
	before := rt.Runner
	rt.Runner = runner.New(before.Model)
	rt.Runner.OnPrefill = before.OnPrefill
}

// request is one policy at one budget that takes part in a pass.
type request struct {
	policy *Configured
	prompt Prompt // as the plan sees it
	plan   Plan

	windows []int // positions of its windows in the merged capture
	probes  []int

	carry func(p Prompt, o *runner.Observation, s *Scores) // of the turns before, or nil

	watched finite

	kept   []*kernels.Selection // by layer; complete only after the last one where the budgets cross layers
	scores []*Scores
	// Where the budgets cross layers: what they depend on, by layer, nil of those left alone, and what they are.
	statistics [][]float64
	budgets    []int

	peakWindows, peakProbes []int
	all                     []int32 // the indices of a layer that stays whole, for all of them
	// seen [layer] are the windows of the first look, for the second.
	seen [][]*kernels.Tensor
}

// newRequest resolves what a policy wants of a prompt.
func newRequest(policy *Configured, p Prompt) *request {
	r := &request{policy: policy}
	r.prompt, r.plan = policy.plan(p)
	n := p.Config.Layers
	r.kept, r.scores, r.seen, r.statistics = make([]*kernels.Selection, n), make([]*Scores, n), make([][]*kernels.Tensor, n), make([][]float64, n)
	return r
}

// know makes the plan anew when more is known of the prompt.
func (r *request) know(more func(p *Prompt)) {
	more(&r.prompt)
	sparse := r.plan.Sparse // of a composition the second stage's
	r.plan = r.policy.Method.Plan(r.prompt)
	r.plan.Sparse = sparse
}

// mergeCaptures makes one capture that serves all requests; equal windows and probes are
// run once.
func mergeCaptures(requests []*request) runner.Capture {
	var all runner.Capture
	for _, r := range requests {
		if r.idle() {
			continue
		}
		c := &r.plan.Capture
		all.Spared = r.prompt.spared()
		all.AllRows, all.Squares = all.AllRows || c.AllRows, all.Squares || c.Squares
		same := func(a, b int) bool { return a == b }
		all.Windows, r.windows = joinDistinct(all.Windows, c.Windows, same)
		all.Probes, r.probes = joinDistinct(all.Probes, c.Probes, sameProbe)
		all.PeakWindows, r.peakWindows = joinDistinct(all.PeakWindows, c.PeakWindows, same)
		all.PeakProbes, r.peakProbes = joinDistinct(all.PeakProbes, c.PeakProbes, sameProbe)
	}
	return all
}

// joinDistinct adds to all what is not yet in it, and returns where in all the items are.
func joinDistinct[T any](all, items []T, same func(a, b T) bool) (joined []T, at []int) {
	for _, item := range items {
		i := slices.IndexFunc(all, func(other T) bool { return same(item, other) })
		if i < 0 {
			i, all = len(all), append(all, item)
		}
		at = append(at, i)
	}
	return all, at
}

// pick is the results at the given places.
func pick(results []*kernels.Tensor, at []int) []*kernels.Tensor {
	var out []*kernels.Tensor
	for _, i := range at {
		out = append(out, results[i])
	}
	return out
}

func sameProbe(a, b model.QueryRows) bool {
	switch x := a.(type) {
	case model.TokenRows:
		y, ok := b.(model.TokenRows)
		return ok && slices.Equal(x, y)
	case model.ShiftedTokens:
		y, ok := b.(model.ShiftedTokens)
		return ok && x.By == y.By && slices.Equal(x.TokenRows, y.TokenRows)
	}
	return reflect.TypeOf(a).Comparable() && a == b
}

// idle tells that the prompt fits the budget, so that nothing needs a score. A
// policy that goes on while decoding scores even then: it may evict later.
func (r *request) idle() bool { return r.prompt.fits() && r.plan.Decode == nil }

// observeLayer scores and selects one layer; nil where its budget waits for the others, or the layer is left alone.
func (r *request) observeLayer(o *runner.Observation) *kernels.Selection {
	if r.idle() {
		if r.scores = nil; !r.prompt.decides(o.Layer) {
			return nil
		}
		keep := make([][]int32, o.Cache.KVHeads())
		for h := range keep {
			n := o.Cache.Entries(o.Layer, h)
			if len(r.all) < n {
				r.all = upTo(0, n)
			}
			keep[h] = r.all[:n:n]
		}
		r.kept[o.Layer] = kernels.HostSelection(keep)
		return r.kept[o.Layer]
	}
	mine := *o
	if !r.prompt.Config.Recurrent(o.Layer) {
		mine.ProbeLSE, mine.PeakProbeLSE = pick(o.ProbeLSE, r.probes), pick(o.PeakProbeLSE, r.peakProbes)
		r.watched.probes(&mine, r.prompt.Config)
	}
	if !r.prompt.decides(o.Layer) {
		return nil
	}
	mine.Windows, mine.Probes = pick(o.Windows, r.windows), pick(o.Probes, r.probes)
	mine.PeakWindows, mine.PeakProbes = pick(o.PeakWindows, r.peakWindows), pick(o.PeakProbes, r.peakProbes)
	if !r.plan.Capture.AllRows {
		mine.AllRows = nil
	}
	s := NewScores(&mine)
	if r.plan.Score != nil {
		r.plan.Score(s, &mine)
	} else {
		s.FromHost(func([][]float32) {})
	}
	if r.carry != nil {
		r.carry(r.prompt, &mine, s)
	}
	r.watched.scores(o.Layer, s)
	if r.plan.CrossLayer != nil { // its pooling depends on its budget, which waits for the others
		r.scores[o.Layer], r.statistics[o.Layer] = s, r.plan.CrossLayer.Statistics(&mine)
		return nil
	}
	s = r.plan.Pooling.Of(s)
	kept := r.plan.selectLayer(s, o.Layer, r.plan.layerBudget(o.Layer, r.prompt.Budget))
	r.scores[o.Layer], r.kept[o.Layer] = s, kept
	if r.plan.Drafted > 0 {
		for _, w := range mine.Windows { // the observation's own live until the layer is done
			r.seen[o.Layer] = append(r.seen[o.Layer], copied(o.Cache, o.Layer, w))
		}
	}
	return kept
}

// pause lets others run between two units of work that goes layer by layer after a pass.
func (rt *Runtime) pause() error {
	if rt.Runner.Pause == nil {
		return nil
	}
	return rt.Runner.Pause()
}

// finishSelection selects after the last layer what could not be selected before: every layer by the plan
// of its own budget, a unit each.
func (r *request) finishSelection(pause func() error) error {
	if r.plan.CrossLayer == nil || r.idle() {
		return nil
	}
	var decided [][]float64
	for _, l := range r.prompt.layers() {
		decided = append(decided, r.statistics[l])
	}
	r.budgets = r.prompt.spread(r.plan.CrossLayer.Budgets(decided))
	for l, s := range r.scores {
		if s == nil {
			continue
		}
		p := r.prompt
		p.Budget = r.budgets[l]
		own := r.policy.Method.Plan(p)
		r.scores[l] = own.Pooling.Of(s)
		r.kept[l] = own.selectLayer(r.scores[l], l, p.Budget)
		if err := pause(); err != nil {
			return err
		}
	}
	return nil
}

// mostResponse is how many tokens a response after so many may have. The last one is
// not run.
func (rt *Runtime) mostResponse(tokens int) int {
	room := max(1, rt.Runner.Model.Config.MaxPositions-tokens+1)
	if rt.MaxNew == 0 {
		return room
	}
	return min(rt.MaxNew, room)
}

// ownResponse is the model's greedy response with the full cache.
func (rt *Runtime) ownResponse(ctx context.Context, tokens []int32) ([]int32, error) {
	m := rt.Runner.Model
	cache := kvcache.New(m)
	logits, err := rt.Runner.Forward(ctx, cache, tokens, runner.PrefillOptions{})
	if err != nil {
		return nil, err
	}
	return rt.Runner.Respond(ctx, cache, logits, rt.mostResponse(len(tokens)), model.Sampling{})
}

// speculate lets the draft model answer the prompt, with its full cache, whose
// bytes it also returns.
func (rt *Runtime) speculate(ctx context.Context, d *Draft, tokens []int32) (draft []int32, bytes int64, err error) {
	m, r := d.Model, rt.Runner
	if m == nil {
		m = rt.Runner.Model
	} else if counter := rt.Runner.Model.Counter(); counter != nil && !m.Counts() {
		counted, own := m.Counted()
		weights := own.Live()
		defer func() { counter.Alloc(kernels.BF16, int(own.Peak()-weights)/2) }() // for a moment, beside what there is
		m, r = counted, runner.New(counted)
	} else {
		r = runner.New(m)
	}
	cache := kvcache.New(m)
	logits, err := r.Forward(ctx, cache, tokens, runner.PrefillOptions{})
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

// draft decodes on the cache as evicted so far and selects again from the full
// one. It returns the bytes of the evicted cache, which it held besides.
func (rt *Runtime) draft(ctx context.Context, r *request, full *kvcache.Cache, logits *runner.Logits) (_ int64, err error) {
	defer kernels.CatchDevice(&err)
	m := rt.Runner.Model
	evicted, err := full.Fork(indicesOf(r.kept))
	if err != nil {
		return 0, err
	}
	c := &m.Config
	rows := min(r.plan.Drafted, c.MaxPositions-r.prompt.From-len(r.prompt.Tokens))
	if rows < 1 {
		return 0, fmt.Errorf("draft of %d tokens after %d: %w", r.plan.Drafted, full.Next(), model.ErrContext)
	}
	queries, keys := make([][]*kernels.Tensor, c.Layers), make([]*kernels.Tensor, c.Layers)
	for _, l := range r.prompt.layers() {
		b := m.On(l)
		for range c.Readers(l) {
			queries[l] = append(queries[l], b.Alloc(b.Compute(), rows, c.Heads, c.HeadDim))
		}
		keys[l] = b.Alloc(b.Compute(), rows, c.KVHeads, c.HeadDim)
	}
	drafted := 0
	// One more token than rows: the last one is not run, and an end token only where it
	// is the first, since there must be a row.
	_, _, err = rt.Runner.Continue(ctx, evicted, logits, runner.GenerateOptions{
		MaxNew: rows + 1, IgnoreEnd: true,
		OnToken: func(id int32) error {
			if drafted > 0 && slices.Contains(c.EOS, id) {
				return runner.ErrStop
			}
			return nil
		},
		Capture: runner.Capture{Queries: true, Spared: r.prompt.spared()},
		Observe: func(o *runner.Observation) error {
			if !r.prompt.decides(o.Layer) {
				return nil
			}
			b := o.Cache.On(o.Layer)
			for i, q := range o.Queries {
				b.Copy(queries[o.Layer][i].Rows(drafted, drafted+1), q)
			}
			b.Copy(keys[o.Layer].Rows(drafted, drafted+1), o.Keys)
			return nil
		},
		AfterStep: func() error { drafted++; return nil },
	})
	if err != nil {
		return 0, err
	}
	r.know(func(p *Prompt) { p.Drafted = drafted })
	for _, l := range r.prompt.layers() {
		var asked []*kernels.Tensor
		for _, q := range queries[l] {
			asked = append(asked, q.Rows(0, drafted))
		}
		scores := rt.Runner.ObserveQueries(full, l, asked, keys[l].Rows(0, drafted))
		o := &runner.Observation{Layer: l, Cache: full, Windows: r.seen[l], Probes: []*kernels.Tensor{scores}}
		drafted := NewScores(o)
		r.plan.Score(drafted, o)
		r.watched.scores(l, drafted)
		r.scores[l], r.kept[l] = drafted, r.plan.selectLayer(drafted, l, r.plan.layerBudget(l, r.prompt.Budget))
		if err := rt.pause(); err != nil {
			return 0, err
		}
	}
	return evicted.Bytes(), nil
}

// Choice is what one policy keeps at one budget.
type Choice struct {
	Configured *Configured
	Budget     int
	Kept       [][][]int32
	Scores     [][][]float32

	request *request
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

// Study observes a prompt once for all policies at all budgets and generates the
// model's own greedy response with the full cache, of at most maxResponse tokens,
// which policies get that need it. The choices are policy by policy, budgets in the given order.
// The selections are those that Prefill makes.
func (rt *Runtime) Study(ctx context.Context, policies []*Configured, tokens []int32, budgets []int, maxResponse int) (*Study, error) {
	return rt.StudyGenerate(ctx, policies, tokens, budgets, runner.GenerateOptions{MaxNew: maxResponse})
}

// StudyGenerate is Study with the settings of the response; it is no longer than leaves
// room in the model's context.
func (rt *Runtime) StudyGenerate(ctx context.Context, policies []*Configured, tokens []int32, budgets []int, opt runner.GenerateOptions) (*Study, error) {
	opt.MaxNew = min(opt.MaxNew, rt.Runner.Model.Config.MaxPositions-len(tokens)+1) // the last token is not run
	return rt.study(ctx, policies, tokens, budgets, func(s *Study) ([]int32, error) {
		if opt.Prompt == nil {
			opt.Prompt = tokens
		}
		s.Cache.Undoable()
		response, _, err := rt.Runner.Continue(ctx, s.Cache, s.logits, opt)
		if err != nil {
			return nil, err
		}
		return response, s.Cache.Truncate(int32(len(tokens)))
	})
}

// StudyResponse is Study with a response that is known already.
func (rt *Runtime) StudyResponse(ctx context.Context, policies []*Configured, tokens, response []int32, budgets []int) (*Study, error) {
	return rt.study(ctx, policies, tokens, budgets, func(*Study) ([]int32, error) { return response, nil })
}

func (rt *Runtime) study(ctx context.Context, policies []*Configured, tokens []int32, budgets []int, respond func(s *Study) ([]int32, error)) (_ *Study, err error) {
	defer kernels.CatchDevice(&err)
	m := rt.Runner.Model
	s := &Study{
		Prompt: Prompt{Tokens: tokens, Entries: len(tokens), MaxNew: rt.MaxNew, Config: &m.Config, Tokenizer: m.Tokenizer},
		Cache:  kvcache.New(m), runtime: rt,
	}
	var before, after []*request // observed during the prefill, with the response
	type drafted struct {
		Draft
		tokens []int32
	}
	var drafts []drafted
	windows := slices.ContainsFunc(policies, (*Configured).evictsWindows)
	if windows {
		s.Cache.HoldWindows()
	}
	for _, n := range policies {
		if err := n.Fits(m); err != nil {
			return nil, err
		}
		if n.evictsWindows() != windows {
			return nil, fmt.Errorf("study: %s and %s differ in the option %s, want one for all policies", policies[0].Name, n.Name, windowsOption.Name)
		}
		for _, budget := range budgets {
			if err := CheckBudget(budget); err != nil {
				return nil, err
			}
			p := s.Prompt
			p.Budget, p.Windows = budget, windows
			r := newRequest(n, p)
			if want := r.plan.Draft; want != nil && !p.fits() {
				i := slices.IndexFunc(drafts, func(d drafted) bool { return d.Draft == *want })
				if i < 0 {
					draft, _, err := rt.speculate(ctx, want, tokens)
					if err != nil {
						return nil, err
					}
					i, drafts = len(drafts), append(drafts, drafted{*want, draft})
				}
				r.know(func(p *Prompt) { p.Draft = drafts[i].tokens })
			}
			s.Choices = append(s.Choices, &Choice{Configured: n, Budget: budget, request: r})
			if r.plan.NeedsResponse {
				after = append(after, r)
			} else {
				before = append(before, r)
			}
		}
	}
	observe := func(requests []*request) runner.Observer {
		return func(o *runner.Observation) error {
			for _, r := range requests {
				r.observeLayer(o)
			}
			return nil
		}
	}
	start := time.Now()
	s.logits, err = rt.Runner.Forward(ctx, s.Cache, tokens, runner.PrefillOptions{Capture: mergeCaptures(before), Observe: observe(before), Pipelined: true})
	if err != nil {
		return nil, err
	}
	if s.Logits, err = s.logits.Float32s(); err != nil {
		return nil, err
	}
	s.FullBytes, s.PrefillTime = s.Cache.Bytes(), time.Since(start)
	if s.Response, err = respond(s); err != nil {
		return nil, err
	}
	for _, r := range after {
		r.know(func(p *Prompt) { p.Response = s.Response })
	}
	if len(after) > 0 {
		capture := mergeCaptures(after)
		if len(capture.Windows)+len(capture.PeakWindows)+len(capture.PeakProbes) > 0 || capture.AllRows || len(capture.Probes) > 1 {
			return nil, fmt.Errorf("study: policies that know the response may only observe it")
		}
		for _, probe := range capture.Probes {
			if err := rt.Runner.Probe(ctx, s.Cache, probe, observe(after)); err != nil {
				return nil, err
			}
		}
		if len(capture.Probes) == 0 { // every prompt fits its budget
			for l := range m.Config.Layers {
				if m.Config.KVLayer(l) != l {
					continue
				}
				if err := observe(after)(&runner.Observation{Layer: l, Cache: s.Cache}); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, choice := range s.Choices {
		r := choice.request
		if err := r.finishSelection(rt.pause); err != nil {
			return nil, err
		}
		if r.plan.Drafted > 0 && !r.idle() {
			if _, err := rt.draft(ctx, r, s.Cache, s.logits); err != nil {
				return nil, err
			}
		}
		if err := r.finite(m.Backend); err != nil {
			return nil, err
		}
		choice.Kept, choice.Scores = indicesOf(r.kept), hostScores(r.scores)
	}
	return s, nil
}

// Session makes an evicted cache of a choice, as Prefill would have; the times are
// not set.
func (s *Study) Session(choice *Choice) (_ *Session, err error) {
	defer kernels.CatchDevice(&err)
	r := choice.request
	keep := choice.Kept
	if r.plan.Merge != nil || r.plan.KeepsAll {
		keep = nil
	}
	cache, err := s.Cache.Fork(keep)
	if err != nil {
		return nil, err
	}
	prompt := r.prompt
	prompt.Budget = choice.Budget
	out := &Session{
		Prompt: prompt, Cache: cache, Budget: Pairs(choice.Budget), logits: s.logits, FullBytes: s.FullBytes,
		runtime: s.runtime, policy: choice.Configured, history: s.Prompt.Tokens,
	}
	if r.plan.Merge != nil {
		if err := out.evict(r, func() error { return nil }); err != nil {
			return nil, err
		}
	}
	out.beginDecoding(r)
	return out, nil
}
