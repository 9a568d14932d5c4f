package training

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/eviction"
	"glimpse/internal/stats"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// HoldOut sets the samples that validations are made on: the first
// Validation.Samples of the source, which may not be those that are trained on. Where a label is of the response,
// samples without one get the model's own, greedy one; samples whose response
// is empty are left out, and those that have no room for an answer where one runs.
func (t *Trainer) HoldOut(ctx context.Context, source Source) error {
	t.held = nil
	held := make([]Sample, t.Config.Validation.Samples)
	for i := range held {
		var err error
		if held[i], err = source.At(i); err != nil {
			return fmt.Errorf("validation: %w", err)
		}
	}
	if slices.ContainsFunc(t.labels, func(l label) bool { return l.answer }) {
		if held = slices.DeleteFunc(held, func(s Sample) bool { return !roomForAnswer(t.Model, s.Prompt) }); len(held) == 0 {
			return fmt.Errorf("validation: %d held-out samples: %w", t.Config.Validation.Samples, errNoRoom)
		}
	}
	if !needResponse(t.labels) {
		t.held = held
		return nil
	}
	responses, err := shareResults(ctx, t, "held-out responses", len(held), func(w *worker, i int) ([]int32, error) {
		s := held[i]
		if s.Response == nil {
			cache := kvcache.New(t.Model)
			logits, err := w.runner.Forward(ctx, cache, s.Prompt, runner.PrefillOptions{})
			if err != nil {
				return nil, fmt.Errorf("validation sample %s: %w", s.ID, err)
			}
			if s.Response, err = w.runner.Respond(ctx, cache, logits, runner.GenerateOptions{MaxNew: t.Config.MaxResponse}); err != nil {
				return nil, fmt.Errorf("validation sample %s: %w", s.ID, err)
			}
		}
		return s.Response[:min(len(s.Response), t.Config.MaxResponse)], nil
	})
	if err != nil {
		return err
	}
	for i := range held {
		held[i].Response = responses[i]
	}
	held = slices.DeleteFunc(held, func(s Sample) bool { return len(s.Response) == 0 })
	if len(held) == 0 {
		return fmt.Errorf("validation: none of %d held-out samples has a response", t.Config.Validation.Samples)
	}
	t.held = held
	return nil
}

// Validated tells whether there are held-out samples.
func (t *Trainer) Validated() bool { return t.held != nil }

// eachTask runs f for tasks 0 … n-1, one worker a task.
func (t *Trainer) eachTask(n int, f func(w *worker, i int) error) error {
	errs := make([]error, n)
	var claim atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for _, w := range t.workers {
		wg.Go(func() {
			for !stop.Load() {
				i := int(claim.Add(1)) - 1
				if i >= n {
					return
				}
				if errs[i] = f(w, i); errs[i] != nil {
					stop.Store(true)
				}
			}
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// validates tells whether a validation follows a step.
func (t *Trainer) validates(done int) bool {
	every := t.Config.Validation.Every
	return t.held != nil && every > 0 && (done%every == 0 || done == t.Config.Steps)
}

// validateStep validates, keeps the parameters of the adapters that got better, and
// tells when it is time to stop.
func (t *Trainer) validateStep(ctx context.Context, r *StepResult) error {
	v, err := t.Validate(ctx)
	if err != nil {
		return err
	}
	t.latest = v
	for _, i := range t.history.judge(t.done, v, t.Config.Validation.Patience) {
		l := t.learners[i]
		for j, p := range l.params {
			t.Model.On(p.Layer).Copy(l.best[j], p.Tensor)
		}
	}
	r.Validation, r.Stopped = v, t.history.Stopped
	return nil
}

// Best is an adapter's best validation so far; Step 0 is none.
func (t *Trainer) Best(i int) Best { return t.history.Best[i] }

// RestoreBest puts the parameters of every adapter's best validation in the place of
// the present ones. Training cannot go on after it.
func (t *Trainer) RestoreBest() {
	for i, l := range t.learners {
		if t.history.Best[i].Step == 0 {
			continue
		}
		for j, p := range l.params {
			t.Model.On(p.Layer).Copy(p.Tensor, l.best[j])
		}
	}
}

// agreement is what one scorer has on one sample.
type agreement struct {
	Hit, Recall []float64 // per budget
	Tau         float64
}

// Validate measures all adapters and SnapKV on the held-out samples: one prefill a
// sample for all of them.
func (t *Trainer) Validate(ctx context.Context) (*Validation, error) {
	if t.latest != nil && t.latest.Step == t.done && !slices.ContainsFunc(t.history.Best, func(b Best) bool { return b.Step != t.done }) {
		return t.latest, nil // whose parameters these are
	}
	start := time.Now()
	n, budgets := len(t.held), t.Config.Validation.Budgets
	policies, err := t.scorers()
	if err != nil {
		return nil, err
	}
	results, err := shareResults(ctx, t, "validation samples", n, func(w *worker, i int) (validated, error) {
		s := t.held[i]
		losses, found, err := t.judge(ctx, w, policies, s, budgets)
		if err != nil {
			err = fmt.Errorf("validation sample %s: %w", s.ID, err)
		}
		return validated{losses, found}, err
	})
	if err != nil {
		return nil, err
	}
	v := &Validation{Step: t.done, Samples: n, Budgets: budgets}
	for p, c := range t.comparisons() {
		q := Quality{Name: policies[c.policy].Name, Label: t.labels[c.label].shown(), HitRate: make([]Number, len(budgets)), Recall: make([]Number, len(budgets))}
		mean := func(value func(a agreement) float64) Number {
			sum, defined := 0.0, 0
			for i := range results {
				if x := value(results[i].Found[p]); x == x {
					sum += x
					defined++
				}
			}
			return Number(sum / float64(defined))
		}
		for b := range budgets {
			q.HitRate[b] = mean(func(a agreement) float64 { return a.Hit[b] })
			q.Recall[b] = mean(func(a agreement) float64 { return a.Recall[b] })
		}
		q.Tau = mean(func(a agreement) float64 { return a.Tau })
		if c.policy == 0 {
			v.takeSnapKV(q)
			continue
		}
		q.Name = t.learners[c.policy-1].Name
		for i := range results {
			q.Loss += results[i].Losses[c.policy-1] / float64(n)
		}
		if q.Loss-q.Loss != 0 { // of an adapter that is diverging: worse than any other
			q.Loss = math.MaxFloat64
		}
		v.Adapters = append(v.Adapters, q)
	}
	v.Seconds = time.Since(start).Seconds()
	return v, nil
}

// comparison is a policy that is judged by a label: their places among the scorers and the trainer's labels.
type comparison struct{ policy, label int }

// comparisons are SnapKV by every label, and the adapters by their own.
func (t *Trainer) comparisons() (out []comparison) {
	for i := range t.labels {
		out = append(out, comparison{0, i})
	}
	for i, l := range t.learners {
		out = append(out, comparison{1 + i, l.of})
	}
	return out
}

// scorers are SnapKV, the adapters' policies and those that have the labels, as the eviction
// runtime runs them.
func (t *Trainer) scorers() ([]*eviction.Configured, error) {
	snapkv, err := eviction.New("snapkv", 0, nil, nil)
	if err != nil {
		return nil, err
	}
	out := []*eviction.Configured{snapkv}
	for _, l := range t.learners {
		if l.objective.scored { // the label's, which is the bound
			out = append(out, l.objective.policy)
			continue
		}
		policy := model.PolicyOf(l.adapter.Kind())
		kernel := eviction.Overrides{policy: {"kernel": float64(l.Pooling)}}
		p, err := eviction.New(policy, 0, kernel, l.adapter)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	for _, l := range t.labels {
		out = append(out, l.policy)
	}
	return out, nil
}

// judge measures everything on one sample.
func (t *Trainer) judge(ctx context.Context, w *worker, policies []*eviction.Configured, s Sample, of eviction.Budgets) ([]float64, []agreement, error) {
	budgets := make([]int, len(of))
	for i, b := range of {
		budgets[i] = b.Of(len(s.Prompt))
	}
	if s.Response == nil {
		s.Response = []int32{} // and none is generated
	}
	rt := &eviction.Runtime{Runner: w.runner}
	study, err := rt.Study(ctx, policies, eviction.Prompt{Tokens: s.Prompt, Response: s.Response}, budgets, runner.GenerateOptions{})
	if err != nil {
		return nil, nil, err
	}
	p, err := observed(ctx, w.runner, study.Cache, s, t.labels)
	if err != nil {
		return nil, nil, err
	}
	losses := make([]float64, len(w.students))
	for i, student := range w.students {
		l := t.learners[i]
		v, err := student.runSample(student.sampleOf(t.Model, p, s.Prompt, l.of))
		if err != nil {
			return nil, nil, err
		}
		losses[i] = l.objective.Report(v)
	}
	compared := t.comparisons()
	out := make([]agreement, len(compared))
	for i, c := range compared {
		a := &out[i]
		a.Tau = math.NaN()
		critical := study.Choices[(1+len(t.learners)+c.label)*len(budgets):]
		for b := range budgets {
			choice, want := study.Choices[c.policy*len(budgets)+b], critical[b]
			if choice.Scores == nil || want.Scores == nil { // the prompt fits the budget
				a.Hit, a.Recall = append(a.Hit, math.NaN()), append(a.Recall, math.NaN())
				continue
			}
			a.Hit = append(a.Hit, eviction.HitRate(choice.Kept, want.Kept))
			a.Recall = append(a.Recall, meanOfHeads(choice.Scores, want.Scores, func(x, y []float32) float64 {
				return eviction.RecallAtK(x, y, budgets[b])
			}))
			if a.Tau != a.Tau {
				a.Tau = meanOfHeads(choice.Scores, want.Scores, stats.KendallTau)
			}
		}
	}
	return losses, out, nil
}

// meanOfHeads is the mean of a measure over layers and KV heads, without those for
// which it is not defined.
func meanOfHeads(got, want [][][]float32, measure func(a, b []float32) float64) float64 {
	sum, heads := 0.0, 0
	for l := range want {
		for h := range want[l] {
			if v := measure(got[l][h], want[l][h]); v == v {
				sum += v
				heads++
			}
		}
	}
	return sum / float64(heads)
}
