package training

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"glimpse/internal/collective"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

// worker works on one sample at a time.
type worker struct {
	runner   *runner.Runner
	students []*student // per learner
}

// stepBatch does one optimiser step: the workers add the gradients of the batch's samples,
// every learner updates its parameters.
func (t *Trainer) stepBatch(ctx context.Context, s int) (_ StepResult, err error) {
	defer kernels.CatchDevice(&err)
	start := time.Now()
	batch := batch{}
	if batch.samples, err = t.samples(s); err != nil {
		return StepResult{}, err
	}
	for _, l := range t.learners {
		l.clear()
	}
	if err := t.accumulate(ctx, &batch); err != nil {
		return StepResult{}, err
	}
	if err := t.exchange(ctx, &batch); err != nil {
		return StepResult{}, err
	}
	t.settle(&batch)
	if err := t.fold(ctx, &batch); err != nil {
		return StepResult{}, err
	}
	t.skipped, t.tooLong = t.skipped+batch.skipped, t.tooLong+batch.tooLong
	r := StepResult{Step: s + 1, Samples: batch.used, Skipped: t.skipped, TooLong: t.tooLong}
	for i, l := range t.learners {
		a := AdapterResult{Name: l.Name}
		if batch.used > 0 && batch.bad[i] == nil {
			var ok bool
			if a.GradNorm, a.LearningRate, ok = l.update(&t.Config, l.LearningRate, s, batch.used); ok {
				a.Loss = batch.losses[i] / float64(batch.used)
			} else { // finite gradients whose sum is not
				batch.bad[i] = &NonFinite{l.Name, batch.samples[0].ID, fmt.Sprintf("gradient norm of the batch that starts is %v", a.GradNorm)}
				a = AdapterResult{Name: l.Name}
			}
		}
		if bad := batch.bad[i]; bad != nil {
			a.Skipped = true
			r.NonFinite = append(r.NonFinite, *bad)
		}
		r.Adapters = append(r.Adapters, a)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// samples are the samples of a step, from 0.
func (t *Trainer) samples(s int) ([]Sample, error) {
	out := make([]Sample, t.Config.Batch)
	for i := range out {
		var err error
		if out[i], err = t.source.At(s*t.Config.Batch + i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// batch is what the samples of a step come to.
type batch struct {
	samples  []Sample
	outcomes []outcome             // of this rank's samples, then of all
	kept     [][][]*kernels.Tensor // gradients that wait for the ranks before: [sample][learner][tensor]

	// Per learner, of all samples.
	losses        []float64    // sums, as the papers define them
	bad           []*NonFinite // the first that was not finite
	used, skipped int
	tooLong       int
}

// accumulate runs this rank's samples through the students. The workers take samples as they
// come and add their gradients, or keep them, in their order.
func (t *Trainer) accumulate(ctx context.Context, b *batch) error {
	from, to := collective.Share(len(b.samples), t.ranks.Rank(), t.ranks.Size())
	samples := b.samples[from:to]
	b.outcomes = make([]outcome, len(samples))
	if t.ranks.Rank() > 0 {
		b.kept = make([][][]*kernels.Tensor, len(samples))
	}
	out := make([]bool, len(t.learners)) // learners whose step is left out
	failed := false
	order := &turns{}
	order.cond = sync.NewCond(&order.mu)
	return t.eachTask(len(samples), func(w *worker, i int) error {
		values, err := t.work(ctx, w, samples[i])
		if err != nil && errors.Is(err, model.ErrNonFinite) && !errors.Is(err, model.ErrNonFiniteWeights) {
			// The model itself overflows on this sample: no adapter can use it.
			values, err = slices.Repeat([]float64{math.NaN()}, len(t.learners)), nil
		}
		order.runInTurn(i, func() {
			switch {
			case failed:
				err = nil
			case errors.Is(err, errEmptyResponse):
				b.outcomes[i].Empty, err = true, nil
			case errors.Is(err, errNoRoom):
				b.outcomes[i].TooLong, err = true, nil
			case err != nil:
				err = fmt.Errorf("sample %s: %w", samples[i].ID, err)
			default:
				err = t.collectSample(w, b, i, values, out)
			}
			failed = failed || err != nil
		})
		return err
	})
}

// turns makes workers add their results in the order of the samples.
type turns struct {
	mu   sync.Mutex
	cond *sync.Cond
	next int
}

// runInTurn runs f when it is sample i's turn.
func (t *turns) runInTurn(i int, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != i {
		t.cond.Wait()
	}
	f()
	t.next++
	t.cond.Broadcast()
}

// work prepares a sample, runs it through all students and returns their losses as
// minimised, which may be NaN or infinite.
func (t *Trainer) work(ctx context.Context, w *worker, s Sample) (_ []float64, err error) {
	defer kernels.CatchDevice(&err)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, err := t.prepared(ctx, w.runner, s)
	if err != nil {
		return nil, err
	}
	values := make([]float64, len(w.students))
	for i, student := range w.students {
		if values[i], err = student.runSample(student.sampleOf(t.Model, p, s.Prompt, t.learners[i].of)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// collectSample takes a worker's losses and gradients of this rank's sample i. A learner whose loss or
// gradient is not finite is out of the step.
func (t *Trainer) collectSample(w *worker, b *batch, i int, values []float64, out []bool) (err error) {
	defer kernels.CatchDevice(&err)
	o := &b.outcomes[i]
	o.Losses, o.Bad = values, make([]string, len(values))
	if b.kept != nil {
		b.kept[i] = make([][]*kernels.Tensor, len(values))
	}
	for j, l := range t.learners {
		if out[j] {
			continue
		}
		if v := values[j]; v-v != 0 {
			if err := t.badWeights(); err != nil {
				return err
			}
			o.Bad[j], out[j] = fmt.Sprintf("loss is %v", v), true
			continue
		}
		grads, bad, err := l.gradients(w.students[j].graph)
		switch {
		case err != nil:
			return err
		case bad != "":
			o.Bad[j], out[j] = bad, true
		case b.kept == nil:
			l.addGradients(grads)
		default:
			for _, g := range grads {
				b.kept[i][j] = append(b.kept[i][j], t.keepGradient(g))
			}
		}
	}
	return nil
}

// settle adds up what the samples of all ranks came to, in their order.
func (t *Trainer) settle(b *batch) {
	b.losses, b.bad = make([]float64, len(t.learners)), make([]*NonFinite, len(t.learners))
	for i, o := range b.outcomes {
		if o.Empty {
			b.skipped++
			continue
		}
		if o.TooLong {
			b.tooLong++
			continue
		}
		b.used++
		for j, l := range t.learners {
			switch {
			case b.bad[j] != nil:
			case o.Bad[j] != "":
				b.bad[j] = &NonFinite{l.Name, b.samples[i].ID, o.Bad[j]}
			default:
				b.losses[j] += l.objective.Report(o.Losses[j])
			}
		}
	}
}

// badWeights is the error of a model with NaN or infinite weights, on which no
// sample can be used. They are searched once.
func (t *Trainer) badWeights() error {
	if !t.searched {
		t.searched = true
		if err := t.Model.ExplainNonFinite(); errors.Is(err, model.ErrNonFiniteWeights) {
			return fmt.Errorf("%w: %w", ErrNonFinite, err)
		}
	}
	return nil
}
