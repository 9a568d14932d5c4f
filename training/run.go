package training

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/datasets"
	"glimpse/internal/collective"
	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/runner"
)

// ErrNonFinite is returned when a loss or gradient is NaN or infinite.
var ErrNonFinite = errors.New("not finite")

// Trainer trains the adapters of a configuration on one model.
type Trainer struct {
	Model  *model.Model
	Config Config
	// Invocation are the tokens that end every prompt, for the adapters' metadata.
	Invocation []int
	// Contents identify the files that samples come from. Where they are not the checkpoint's,
	// Resume is datasets.ErrDataChanged, or tells it and goes on if AcceptChangedData is set.
	Contents          datasets.Contents
	AcceptChangedData bool
	// Notice (may be nil) is told what a person should know and the run survives. It may
	// be called concurrently.
	Notice func(text string)
	// Working (may be nil) is told of work between steps, as a validation, of n units: one of each that is
	// done, concurrently, and done of its end.
	Working func(units string, n int) (one, done func())
	// Stopping (may be nil) tells whether the process was told to stop. A run on several
	// ranks ends after a step before which any of them was.
	Stopping func() bool

	source   Source
	learners []*learner
	labels   []label // of all learners, each once
	workers  []*worker
	cache    *sampleCache // nil: samples do not come again
	done     int          // optimiser steps
	skipped  int
	tooLong  int
	history  history
	accepted []string    // changes of the data, see runRecord
	held     []Sample    // of validations, with responses, none of them empty; nil: nothing is validated
	latest   *Validation // of the parameters after its step
	searched bool        // the weights, for NaN
	ranks    collective.Group
	link     kernels.Link // between the devices of ranks; nil: gradients go through the host
	stopping bool         // a rank was told to stop
	met      bool         // all ranks end after the same step
}

// New makes a trainer. It validates the configuration and compiles the graphs.
// Close releases what it holds.
func New(m *model.Model, c Config, source Source) (*Trainer, error) {
	if err := c.Validate(m); err != nil {
		return nil, err
	}
	t := &Trainer{Model: m, Config: c, source: source, ranks: collective.Alone()}
	for _, a := range c.Adapters {
		l, err := newLearner(m, a, c.HeadBudgets, c.Validation.Every > 0)
		if err != nil {
			return nil, err
		}
		if l.of = slices.IndexFunc(t.labels, func(other label) bool { return other.name == l.objective.label.name }); l.of < 0 {
			l.of, t.labels = len(t.labels), append(t.labels, l.objective.label)
		}
		t.labels[l.of].answer = t.labels[l.of].answer || l.objective.label.answer
		t.learners = append(t.learners, l)
	}
	t.history = history{NonFinite: make([]int, len(t.learners)), Best: make([]Best, len(t.learners))}
	for range c.concurrency(m) {
		w := &worker{runner: runner.New(m)}
		for _, l := range t.learners {
			s, err := newStudent(m, l.adapter, l.objective)
			if err != nil {
				return nil, err
			}
			w.students = append(w.students, s)
		}
		t.workers = append(t.workers, w)
	}
	if source.Repeats() && c.CacheMemory+c.CacheDisk > 0 {
		t.cache = newSampleCache(m, c.CacheMemory, c.CacheDisk, func(text string) {
			if t.Notice != nil {
				t.Notice(text)
			}
		})
	}
	return t, nil
}

// Close releases graphs and cached samples.
func (t *Trainer) Close() error {
	var errs []error
	for _, w := range t.workers {
		for _, s := range w.students {
			errs = append(errs, s.graph.Close())
		}
	}
	if t.cache != nil {
		errs = append(errs, t.cache.removeFiles())
	}
	if t.link != nil {
		t.link.Close()
	}
	return errors.Join(errs...)
}

// StepResult is what one optimiser step measured.
type StepResult struct {
	Step     int             `json:"step"` // from 1
	Samples  int             `json:"samples"`
	Skipped  int             `json:"skipped"`            // samples so far whose response was empty
	TooLong  int             `json:"too_long,omitempty"` // samples so far with no room for an answer behind the prompt
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
// moments are then as after the last whole step. An adapter whose loss or gradient is
// not finite skips the step, and after three such steps in a row the run ends with
// ErrNonFinite; it can be saved then, too.
func (t *Trainer) Run(ctx context.Context, onStep func(StepResult) error) error {
	for t.done < t.Config.Steps && !t.history.Stopped {
		r, err := t.stepBatch(ctx, t.done)
		if err != nil {
			return fmt.Errorf("train: step %d: %w", t.done+1, err)
		}
		before := t.history
		before.NonFinite, before.Best = slices.Clone(before.NonFinite), slices.Clone(before.Best)
		t.done++
		diverged := t.history.countSkips(t.learners, r)
		if t.stopping || diverged != nil {
			if err := t.meet(ctx); err != nil {
				return fmt.Errorf("train: step %d: %w", t.done, err)
			}
		}
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

// Adapter returns adapter i of the configuration in its present state.
func (t *Trainer) Adapter(i int) model.RowsAdapter { return t.learners[i].adapter }

// Skipped is the number of samples so far whose response was empty.
func (t *Trainer) Skipped() int { return t.skipped }

// TooLong is the number of samples so far behind whose prompt an answer has no room.
func (t *Trainer) TooLong() int { return t.tooLong }
