package eviction

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// observer is one policy at one budget that takes part in a pass.
type observer struct {
	policy *Configured
	budget int    // of the policy; of a composition the plan's is its first stage's
	prompt Prompt // as the plan sees it
	plan   Plan

	windows []int // positions of its windows in the merged capture
	probes  []int
	gates   []int

	carry func(p Prompt, o *runner.Observation, s *Scores) // of the turns before, or nil

	watched finite

	kept   []*kernels.Selection // by layer; complete only after the last one where the budgets cross layers
	scores []*Scores
	// Where the budgets cross layers: what they depend on, by layer, nil of those left alone, and what they are.
	statistics [][]float64
	budgets    []int
	// allowed are the budgets of heads [layer][kvHead] of a plan with a floor, which keeps fewer.
	allowed [][]int

	peakWindows, peakProbes []int
	all                     []int32 // the indices of a layer that stays whole, for all of them
	// seen [layer] are the windows of the first look, for the second.
	seen [][]*kernels.Tensor
	// references [layer] are the queries of a plan that refits, [rows, heads, headDim], until fitted [layer] are there, by KV head.
	references [][]float32
	fitted     [][]headFit

	held int64 // bytes of the evicted cache that the draft was decoded on
}

// newObserver resolves what a policy wants of a prompt.
func newObserver(policy *Configured, p Prompt) *observer {
	r := &observer{policy: policy, budget: p.Budget}
	r.prompt, r.plan = policy.plan(p)
	n := p.Config.Layers
	r.references, r.fitted = make([][]float32, n), make([][]headFit, n)
	r.kept, r.scores, r.seen, r.statistics = make([]*kernels.Selection, n), make([]*Scores, n), make([][]*kernels.Tensor, n), make([][]float64, n)
	r.allowed = make([][]int, n)
	return r
}

// know makes the plan anew when more is known of the prompt.
func (r *observer) know(more func(p *Prompt)) {
	more(&r.prompt)
	sparse := r.plan.Sparse // of a composition the second stage's
	r.plan = r.policy.Method.Plan(r.prompt)
	r.plan.Sparse = sparse
}

// mergeCaptures makes one capture that serves all observers; equal windows and probes are
// run once.
func mergeCaptures(observers []*observer) runner.Capture {
	var all runner.Capture
	for _, r := range observers {
		if r.idle() {
			continue
		}
		c := &r.plan.Capture
		all.Spared = r.prompt.spared()
		all.AllRows, all.Squares, all.Queries = all.AllRows || c.AllRows, all.Squares || c.Squares, all.Queries || c.Queries
		same := func(a, b int) bool { return a == b }
		all.Windows, r.windows = joinDistinct(all.Windows, c.Windows, same)
		all.Probes, r.probes = joinDistinct(all.Probes, c.Probes, sameProbe)
		all.PeakWindows, r.peakWindows = joinDistinct(all.PeakWindows, c.PeakWindows, same)
		all.PeakProbes, r.peakProbes = joinDistinct(all.PeakProbes, c.PeakProbes, sameProbe)
		all.References, _ = joinDistinct(all.References, c.References, sameProbe) // the same ones of all plans that have some
		all.Gates, r.gates = joinDistinct(all.Gates, c.Gates, func(a, b model.Gate) bool { return a == b })
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
	case model.RepeatedTokens:
		y, ok := b.(model.RepeatedTokens)
		return ok && x.Sinks == y.Sinks && x.From == y.From && x.To == y.To && x.Weighed == y.Weighed && slices.Equal(x.TokenRows, y.TokenRows)
	}
	return reflect.TypeOf(a).Comparable() && a == b
}

// fits tells that the policy's whole budget has room for the prompt.
func (r *observer) fits() bool {
	p := r.prompt
	p.Budget = r.budget
	return p.fits()
}

// idle tells that the prompt fits the budget, so that nothing needs a score. A
// policy that goes on while decoding scores even then: it may evict later. So does one with a floor.
func (r *observer) idle() bool { return r.prompt.fits() && r.plan.Decode == nil && r.plan.Floor == 0 }

// observeLayer scores and selects one layer; nil where its budget waits for the others, or the layer is left alone.
func (r *observer) observeLayer(o *runner.Observation) *kernels.Selection {
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
	mine.Gates = pick(o.Gates, r.gates)
	if !r.plan.Capture.AllRows {
		mine.AllRows = nil
	}
	r.takeReferences(o)
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
	s.stay = r.prompt.Keep.in(o.Cache, o.Layer, r.prompt.beside)
	if r.plan.CrossLayer != nil { // its pooling depends on its budget, which waits for the others
		r.scores[o.Layer], r.statistics[o.Layer] = s, r.plan.CrossLayer.Statistics(&mine)
		return nil
	}
	s = r.plan.Pooling.Of(s)
	if r.scores[o.Layer] = s; !r.plan.Global {
		budget := r.plan.layerBudget(o.Layer, r.prompt.Budget)
		if r.kept[o.Layer] = r.plan.selectLayer(s, o.Layer, budget); r.plan.Floor > 0 {
			r.allowed[o.Layer] = s.withStaying(r.plan.headBudgets(s.hidden(), o.Layer, budget))
		}
	}
	if r.plan.Drafted > 0 {
		for _, w := range mine.Windows { // the observation's own live until the layer is done
			r.seen[o.Layer] = append(r.seen[o.Layer], copied(o.Cache, o.Layer, w))
		}
	}
	return r.kept[o.Layer]
}

// selectGlobally selects in all layers by one ranking, a unit each.
func (r *observer) selectGlobally(ctx context.Context) error {
	rest := make([]*Scores, len(r.scores))
	for l, s := range r.scores {
		if s != nil {
			rest[l] = s.hidden()
		}
	}
	budgets := r.plan.globalBudgets(rest, r.plan.headBudget(r.prompt.Budget))
	for l, s := range r.scores {
		if s == nil {
			continue
		}
		r.allowed[l] = s.withStaying(budgets[l])
		r.kept[l] = s.Select(s.withStaying(r.plan.aboveFloor(budgets[l], rest[l])), r.plan.Sink, r.plan.Recent)
		if err := runner.Pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// finishSelection selects after the last layer what could not be selected before: every layer by the plan
// of its own budget, a unit each.
func (r *observer) finishSelection(ctx context.Context) error {
	if r.plan.Global && !r.idle() {
		return r.selectGlobally(ctx)
	}
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
		if err := runner.Pause(ctx); err != nil {
			return err
		}
	}
	return nil
}

// draft decodes on the cache as evicted so far and selects again from the full
// one.
func (r *observer) draft(ctx context.Context, on *runner.Runner, full *kvcache.Cache, logits *runner.Logits) error {
	m := on.Model
	evicted, err := full.Fork(indicesOf(r.kept))
	if err != nil {
		return err
	}
	c := &m.Config
	rows := min(r.plan.Drafted, c.MaxPositions-r.prompt.From-len(r.prompt.Tokens))
	if rows < 1 {
		return fmt.Errorf("draft of %d tokens after %d: %w", r.plan.Drafted, full.Next(), model.ErrContext)
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
	_, _, err = on.Continue(ctx, evicted, logits, runner.GenerateOptions{
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
		return err
	}
	r.know(func(p *Prompt) { p.Drafted = drafted })
	for _, l := range r.prompt.layers() {
		var asked []*kernels.Tensor
		for _, q := range queries[l] {
			asked = append(asked, q.Rows(0, drafted))
		}
		scores := on.ObserveQueries(full, l, asked, keys[l].Rows(0, drafted))
		o := &runner.Observation{Layer: l, Cache: full, Windows: r.seen[l], Probes: []*kernels.Tensor{scores}}
		drafted := NewScores(o)
		r.plan.Score(drafted, o)
		r.watched.scores(l, drafted)
		drafted.stay = r.prompt.Keep.in(full, l, r.prompt.beside)
		if r.scores[l] = drafted; r.plan.Global {
			continue
		}
		r.kept[l] = r.plan.selectLayer(drafted, l, r.plan.layerBudget(l, r.prompt.Budget))
		if err := runner.Pause(ctx); err != nil {
			return err
		}
	}
	if r.held = evicted.Bytes(); r.plan.Global {
		return r.selectGlobally(ctx)
	}
	return nil
}
