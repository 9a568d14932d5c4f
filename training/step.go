package training

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/kernels"
	"glimpse/model"
)

// worker works on one sample at a time.
type worker struct {
	runner   *model.Runner
	students []*student // per learner
}

// step does one optimiser step: the workers add the gradients of the batch's samples,
// every learner updates its parameters.
func (t *Trainer) step(ctx context.Context, s int) (_ StepResult, err error) {
	defer kernels.CatchDevice(&err)
	start := time.Now()
	batch := batch{losses: make([]float64, len(t.learners)), bad: make([]*NonFinite, len(t.learners))}
	if batch.samples, err = t.samples(s); err != nil {
		return StepResult{}, err
	}
	for _, l := range t.learners {
		l.clear()
	}
	if err := t.accumulate(ctx, &batch); err != nil {
		return StepResult{}, err
	}
	t.skipped += batch.skipped
	r := StepResult{Step: s + 1, Samples: batch.used, Skipped: t.skipped}
	for i, l := range t.learners {
		a := AdapterResult{Name: l.Name}
		if batch.used > 0 && batch.bad[i] == nil {
			var ok bool
			if a.GradNorm, a.LearningRate, ok = l.update(&t.Config, s, batch.used); ok {
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

// samples are those of a step, from 0.
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

// batch is what the samples of a step come to, per learner.
type batch struct {
	samples       []Sample
	losses        []float64    // sums, as the papers define them
	bad           []*NonFinite // the first that was not finite
	used, skipped int
}

// accumulate runs the batch's samples through the students and adds up losses and
// gradients. The workers take samples as they come and add them in their order.
func (t *Trainer) accumulate(ctx context.Context, b *batch) error {
	var failed error
	order := &turns{}
	order.cond = sync.NewCond(&order.mu)
	var claim atomic.Int64
	var wg sync.WaitGroup
	for _, w := range t.workers {
		wg.Go(func() {
			for {
				i := int(claim.Add(1)) - 1
				if i >= len(b.samples) {
					return
				}
				values, err := t.work(ctx, w, b.samples[i])
				if err != nil && errors.Is(err, model.ErrNonFinite) && !errors.Is(err, model.ErrNonFiniteWeights) {
					// The model itself overflows on this sample: no adapter can use it.
					values, err = nan(len(t.learners)), nil
				}
				order.wait(i, func() {
					switch {
					case failed != nil:
					case errors.Is(err, errEmptyResponse):
						b.skipped++
					case err != nil:
						failed = fmt.Errorf("sample %s: %w", b.samples[i].ID, err)
					default:
						b.used++
						failed = t.collect(w, b, b.samples[i].ID, values)
					}
				})
			}
		})
	}
	wg.Wait()
	return failed
}

// turns makes workers add their results in the order of the samples.
type turns struct {
	mu   sync.Mutex
	cond *sync.Cond
	next int
}

// wait runs f when it is sample i's turn.
func (t *turns) wait(i int, f func()) {
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
		if values[i], err = student.run(p.after(t.Model, t.learners[i].Rows)); err != nil {
			return nil, err
		}
	}
	return values, nil
}

func nan(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = math.NaN()
	}
	return out
}

// collect adds a worker's losses and gradients to the batch. An adapter whose loss
// or gradient is not finite gets an entry in bad, at the first such sample.
func (t *Trainer) collect(w *worker, b *batch, sample string, values []float64) (err error) {
	defer kernels.CatchDevice(&err)
	for i, l := range t.learners {
		if b.bad[i] != nil {
			continue
		}
		if v := values[i]; v-v != 0 {
			if err := t.badWeights(); err != nil {
				return err
			}
			b.bad[i] = &NonFinite{l.Name, sample, fmt.Sprintf("loss is %v", v)}
			continue
		}
		b.losses[i] += l.loss.Report(values[i])
		bad, err := l.add(w.students[i])
		if err != nil {
			return err
		}
		if bad != "" {
			b.bad[i] = &NonFinite{l.Name, sample, bad}
		}
	}
	return nil
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
