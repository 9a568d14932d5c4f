package training

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/internal/parallel"
	"glimpse/kernels"
	"glimpse/losses"
	"glimpse/model"
)

// ErrNonFinite is returned when a loss or gradient is NaN or infinite.
var ErrNonFinite = errors.New("not finite")

// Trainer trains the adapters of a configuration on one model.
type Trainer struct {
	Model  *model.Model
	Config Config
	// Invocation are the tokens that end every prompt, for the adapters' metadata.
	Invocation []int
	// Notice (may be nil) is told what a person should know and the run survives. It may
	// be called concurrently.
	Notice func(text string)

	source   Source
	learners []*learner
	workers  []*worker
	store    *store
	done     int // optimiser steps
	skipped  int
	history  history
	held     *heldOut // nil: nothing is validated
	searched bool     // the weights, for NaN
}

// learner is one adapter in training.
type learner struct {
	AdapterConfig
	adapter model.Adapter
	loss    losses.Loss
	params  []model.Parameter
	sum     []*kernels.Tensor // gradients of the current batch
	m, v    []*kernels.Tensor // AdamW moments
	best    []*kernels.Tensor // parameters at the best validation; nil where none is asked for
}

// worker works on one sample at a time.
type worker struct {
	runner   *model.Runner
	students []*student // per learner
}

// New makes a trainer. It validates the configuration and compiles the graphs.
// Close releases what it holds.
func New(m *model.Model, c Config, source Source) (*Trainer, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	t := &Trainer{Model: m, Config: c, source: source}
	for _, a := range c.Adapters {
		kind, err := model.AdapterKinds.Lookup(a.Kind)
		if err != nil {
			return nil, err
		}
		l := &learner{AdapterConfig: a}
		if l.adapter, err = kind.New(m, a.AdapterConfig); err != nil {
			return nil, err
		}
		if l.loss, err = losses.Losses.Lookup(a.Loss); err != nil {
			return nil, err
		}
		l.params = l.adapter.Parameters()
		for _, p := range l.params {
			for _, dst := range []*[]*kernels.Tensor{&l.sum, &l.m, &l.v} {
				z := m.Backend.Alloc(p.Tensor.DType, p.Tensor.Shape...)
				m.Backend.Fill(z, 0)
				*dst = append(*dst, z)
			}
		}
		if c.Validation.Every > 0 {
			for _, p := range l.params {
				b := m.Backend.Alloc(p.Tensor.DType, p.Tensor.Shape...)
				m.Backend.Copy(b, p.Tensor)
				l.best = append(l.best, b)
			}
		}
		t.learners = append(t.learners, l)
	}
	t.history = newHistory(len(t.learners))
	for range c.concurrency(m) {
		w := &worker{runner: m.NewRunner()}
		for _, l := range t.learners {
			s, err := newStudent(m, l.adapter, l.loss)
			if err != nil {
				return nil, err
			}
			w.students = append(w.students, s)
		}
		t.workers = append(t.workers, w)
	}
	if source.Repeats() && c.CacheMemory+c.CacheDisk > 0 {
		t.store = newStore(m.Backend, c.CacheMemory, c.CacheDisk, func(text string) {
			if t.Notice != nil {
				t.Notice(text)
			}
		})
	}
	return t, nil
}

// smallModel is the size, in base-model parameters, up to which whole samples
// keep the cores busy better than the operations of one sample can.
const smallModel = 20_000_000

// concurrency is the number of samples worked on at the same time.
func (c *Config) concurrency(m *model.Model) int {
	n := 1
	switch {
	case c.Workers > 0:
		n = c.Workers
	case m.Network.Parameters() <= smallModel:
		n = parallel.Threads()
	}
	return max(1, min(n, c.Batch))
}

// Close releases graphs and cached samples.
func (t *Trainer) Close() error {
	var errs []error
	for _, w := range t.workers {
		for _, s := range w.students {
			errs = append(errs, s.graph.Close())
		}
	}
	if t.store != nil {
		errs = append(errs, t.store.close())
	}
	return errors.Join(errs...)
}

// StepResult is what one optimiser step measured.
type StepResult struct {
	Step     int             `json:"step"` // from 1
	Samples  int             `json:"samples"`
	Skipped  int             `json:"skipped"` // samples so far whose response was empty
	Adapters []AdapterResult `json:"adapters"`
	Seconds  float64         `json:"seconds"`

	// NonFinite are the adapters whose update was left out, and why.
	NonFinite []NonFinite `json:"non_finite,omitempty"`
	// Validation is set after the steps that end with one.
	Validation *Validation `json:"validation,omitempty"`
	// Stopped: no adapter has got better for Validation.Patience validations.
	Stopped bool `json:"stopped,omitempty"`
}

// NonFinite is a sample at which an adapter's loss or gradient was NaN or infinite.
type NonFinite struct {
	Adapter string `json:"adapter"`
	Sample  string `json:"sample"`
	What    string `json:"what"` // "loss is NaN"
}

func (n NonFinite) String() string {
	return fmt.Sprintf("adapter %s: %s at sample %s", n.Adapter, n.What, n.Sample)
}

// AdapterResult is one adapter's part of a step.
type AdapterResult struct {
	Name         string  `json:"name"`
	Loss         float64 `json:"loss"` // as the paper defines it, mean over samples
	GradNorm     float64 `json:"grad_norm"`
	LearningRate float64 `json:"learning_rate"`
	// Skipped: the step changed nothing, because a loss or gradient was not finite; the
	// other fields are then 0.
	Skipped bool `json:"skipped,omitempty"`
}

// maxNonFinite is the number of steps in a row that an adapter may skip before the
// run is given up: it has diverged.
const maxNonFinite = 3

// Run trains from where the trainer stands to the end, or to where validation shows
// that nothing gets better any more. onStep is told of every step; an error of it
// stops the run. So does the end of ctx, in the middle of a step: parameters and
// moments are then those of the last whole step. An adapter whose loss or gradient is
// not finite skips the step, and after three such steps in a row the run ends with
// ErrNonFinite; it can be saved then, too.
func (t *Trainer) Run(ctx context.Context, onStep func(StepResult) error) error {
	for t.done < t.Config.Steps && !t.history.Stopped {
		r, err := t.step(ctx, t.done)
		if err != nil {
			return fmt.Errorf("train: step %d: %w", t.done+1, err)
		}
		before := t.history.clone()
		t.done++
		diverged := t.history.count(t.learners, r)
		if diverged == nil && t.validates(t.done) {
			if err := t.validateStep(ctx, &r); err != nil {
				// As before the step's validation, which is done again on resuming.
				t.history = before
				return fmt.Errorf("train: validation after step %d: %w", t.done, err)
			}
		}
		if onStep != nil {
			if err := onStep(r); err != nil {
				return err
			}
		}
		if diverged != nil {
			return fmt.Errorf("train: step %d: %w", t.done, diverged)
		}
	}
	return nil
}

// turns makes workers add their results in the order of the samples.
type turns struct {
	mu   sync.Mutex
	cond *sync.Cond
	next int
}

func (t *turns) take(i int, f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for t.next != i {
		t.cond.Wait()
	}
	f()
	t.next++
	t.cond.Broadcast()
}

// step does one optimiser step.
func (t *Trainer) step(ctx context.Context, s int) (_ StepResult, err error) {
	defer kernels.CatchDevice(&err)
	start := time.Now()
	samples := make([]Sample, t.Config.Batch)
	for i := range samples {
		var err error
		if samples[i], err = t.source.At(s*t.Config.Batch + i); err != nil {
			return StepResult{}, err
		}
	}
	b := t.Model.Backend
	for _, l := range t.learners {
		b.MultiFill(l.sum, 0)
	}
	losses := make([]float64, len(t.learners))
	bad := make([]*NonFinite, len(t.learners))
	used, skipped := 0, 0
	var failed error
	order := &turns{}
	order.cond = sync.NewCond(&order.mu)
	var claim atomic.Int64
	var wg sync.WaitGroup
	for _, w := range t.workers {
		wg.Go(func() {
			for {
				i := int(claim.Add(1)) - 1
				if i >= len(samples) {
					return
				}
				values, err := t.work(ctx, w, samples[i])
				if err != nil && errors.Is(err, model.ErrNonFinite) && !errors.Is(err, model.ErrNonFiniteWeights) {
					// The model itself overflows on this sample: no adapter can use it.
					values, err = nan(len(t.learners)), nil
				}
				order.take(i, func() {
					switch {
					case failed != nil:
					case errors.Is(err, errEmptyResponse):
						skipped++
					case err != nil:
						failed = fmt.Errorf("sample %s: %w", samples[i].ID, err)
					default:
						used++
						failed = t.collect(w, samples[i].ID, losses, values, bad)
					}
				})
			}
		})
	}
	wg.Wait()
	if failed != nil {
		return StepResult{}, failed
	}
	t.skipped += skipped
	r := StepResult{Step: s + 1, Samples: used, Skipped: t.skipped}
	for i, l := range t.learners {
		a := AdapterResult{Name: l.Name}
		if used > 0 && bad[i] == nil {
			var ok bool
			if a.GradNorm, a.LearningRate, ok = t.update(l, s, used); ok {
				a.Loss = losses[i] / float64(used)
			} else { // finite gradients whose sum is not
				bad[i] = &NonFinite{l.Name, samples[0].ID, fmt.Sprintf("gradient norm of the batch that starts is %v", a.GradNorm)}
				a = AdapterResult{Name: l.Name}
			}
		}
		if bad[i] != nil {
			a.Skipped = true
			r.NonFinite = append(r.NonFinite, *bad[i])
		}
		r.Adapters = append(r.Adapters, a)
	}
	r.Seconds = time.Since(start).Seconds()
	return r, nil
}

// work runs a sample through all adapters' graphs and returns their losses as
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
		if values[i], err = student.run(p.sample(t.Model, t.learners[i].Rows)); err != nil {
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

// prepared takes a sample from the store or prepares it.
func (t *Trainer) prepared(ctx context.Context, r *model.Runner, s Sample) (*prepared, error) {
	if t.store == nil {
		return prepare(ctx, r, s, t.Config.MaxResponse)
	}
	if p := t.store.get(s.Key); p != nil {
		return p, nil
	}
	p, err := prepare(ctx, r, s, t.Config.MaxResponse)
	if err != nil {
		return nil, err
	}
	t.store.put(s.Key, p)
	return p, nil
}

// collect adds a worker's losses and gradients to the batch. An adapter whose loss
// or gradient is not finite gets an entry in bad, at the first such sample.
func (t *Trainer) collect(w *worker, sample string, losses, values []float64, bad []*NonFinite) (err error) {
	defer kernels.CatchDevice(&err)
	for i, l := range t.learners {
		if bad[i] != nil {
			continue
		}
		if v := values[i]; v-v != 0 {
			if err := t.badWeights(); err != nil {
				return err
			}
			bad[i] = &NonFinite{l.Name, sample, fmt.Sprintf("loss is %v", v)}
			continue
		}
		losses[i] += l.loss.Report(values[i])
		grads := make([]*kernels.Tensor, len(l.sum))
		for j := range grads {
			if grads[j], err = w.students[i].graph.Gradient(j); err != nil {
				return err
			}
		}
		squares := t.Model.Backend.MultiSumSquares(grads)
		t.Model.Backend.MultiAxpy(l.sum, 1, grads)
		if squares-squares != 0 {
			bad[i] = &NonFinite{l.Name, sample, fmt.Sprintf("gradient norm is %v", math.Sqrt(squares))}
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

// update does an adapter's AdamW step on the mean gradient of so many samples,
// clipped to the global norm. A norm that is not finite changes nothing.
func (t *Trainer) update(l *learner, s, samples int) (norm, rate float64, ok bool) {
	c, b := &t.Config, t.Model.Backend
	norm = b.MultiSumSquares(l.sum)
	scale := 1 / float64(samples)
	norm = math.Sqrt(norm) * scale
	if norm-norm != 0 {
		return norm, 0, false
	}
	if c.Clip > 0 && norm > c.Clip {
		scale *= c.Clip / norm
	}
	rate = l.LearningRate * c.rate(s)
	a := kernels.AdamWStep{
		Beta1: c.Beta1, Beta2: c.Beta2, Epsilon: c.Epsilon, WeightDecay: c.WeightDecay,
		Correct1: 1 - math.Pow(c.Beta1, float64(s+1)), Correct2: 1 - math.Pow(c.Beta2, float64(s+1)),
		LearningRate: rate, GradScale: scale,
	}
	params := make([]*kernels.Tensor, len(l.params))
	for i, p := range l.params {
		params[i] = p.Tensor
	}
	b.MultiAdamW(params, l.sum, l.m, l.v, a)
	return norm, rate, true
}

// Adapter returns adapter i of the configuration in its present state.
func (t *Trainer) Adapter(i int) model.Adapter { return t.learners[i].adapter }

// Skipped is the number of samples so far whose response was empty.
func (t *Trainer) Skipped() int { return t.skipped }
