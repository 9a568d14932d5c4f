package training

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/internal/benchclock"
	"glimpse/model"
	"glimpse/model/kvcache"
	"glimpse/model/runner"
)

// Timing is what one training step of one sample costs.
type Timing struct {
	Prompt   int           // tokens
	Response int           // tokens
	Prefill  time.Duration // keys and values of the prompt, forward only
	Step     time.Duration // prefill, target, and the adapter's forward and backward pass
	Floor    float64       // the step's floating-point operations over the prefill's
}

// Ratio is step ÷ (prefill × floor): 1 is a step that costs no more than its
// operations at the prefill's speed.
func (t Timing) Ratio() float64 {
	return float64(t.Step) / (float64(t.Prefill) * t.Floor)
}

// String is one line for people.
func (t Timing) String() string {
	return fmt.Sprintf("step %.2f ms, prefill %.2f ms at %d prompt and %d response tokens", ms(t.Step), ms(t.Prefill), t.Prompt, t.Response)
}

// Detail is one line for those who judge the speed of a step.
func (t Timing) Detail() string {
	return fmt.Sprintf("floor %.3f × prefill, step ÷ (prefill × floor) = %.2f (1: a step takes what its operations take at the prefill's speed)", t.Floor, t.Ratio())
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Enough is the time after which Measure begins no further repetition.
const Enough = 10 * time.Second

// Measure times prefills and steps of one sample in turn, without caches and with
// all threads on it, and reports medians. It stops early where repeats would take
// longer than people wait. Of the configuration it reads the objective.
func Measure(ctx context.Context, m *model.Model, a model.RowsAdapter, c AdapterConfig, prompt, response []int32, repeats int) (Timing, error) {
	o, err := newObjective(m, a, &c, nil)
	if err != nil {
		return Timing{}, err
	}
	s, err := newStudent(m, a, o)
	if err != nil {
		return Timing{}, err
	}
	defer s.graph.Close()
	return measureAdapter(ctx, runner.New(m), s, a, o, prompt, response, repeats)
}

// Measure is the package's function for adapter i, in the memory that the trainer
// has already.
func (t *Trainer) Measure(ctx context.Context, i int, prompt, response []int32, repeats int) (Timing, error) {
	w := t.workers[0]
	l := t.learners[i]
	return measureAdapter(ctx, w.runner, w.students[i], l.adapter, l.objective, prompt, response, repeats)
}

func measureAdapter(ctx context.Context, r *runner.Runner, s *student, a model.RowsAdapter, o objective, prompt, response []int32, repeats int) (Timing, error) {
	m := r.Model
	t := Timing{Prompt: len(prompt), Response: len(response)}
	var err error
	if t.Floor, err = floorOf(ctx, m, a, o, prompt, response); err != nil {
		return t, err
	}
	var prefills, steps []time.Duration
	begin := time.Now()
	for i := range repeats + 1 {
		start := benchclock.Now()
		if _, err := r.Prefill(ctx, kvcache.New(m), prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
			return t, err
		}
		waitDevices(m)
		prefill := benchclock.Now() - start
		start = benchclock.Now()
		if err := s.runStep(ctx, r, a, o.label, prompt, response); err != nil {
			return t, err
		}
		waitDevices(m)
		slow := time.Since(begin) > Enough
		if i > 0 || slow { // the first is a warm-up, unless it took long enough to be none
			prefills, steps = append(prefills, prefill), append(steps, benchclock.Now()-start)
		}
		if slow {
			break
		}
	}
	t.Prefill, t.Step = median(prefills), median(steps)
	return t, nil
}

// waitDevices waits until all devices are done.
func waitDevices(m *model.Model) {
	for _, b := range m.Devices() {
		b.Wait()
	}
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// floorOf is the floating-point operations of a step over those of the prefill alone, counted on a model that computes
// nothing. Causal attention counts the visible half of its products;
// softmax, norms and the optimiser count nothing.
func floorOf(ctx context.Context, m *model.Model, a model.RowsAdapter, o objective, prompt, response []int32) (float64, error) {
	counted, counter := m.Counted()
	counter.SeekPeaks(false)
	s, err := newStudent(counted, a, o)
	if err != nil {
		return 0, err
	}
	defer s.graph.Close()
	r, prefill := runner.New(counted), counter.CountWork()
	if _, err := r.Prefill(ctx, kvcache.New(counted), prompt, runner.PrefillOptions{CacheOnly: true}); err != nil {
		return 0, err
	}
	step := counter.CountWork()
	err = s.runStep(ctx, r, a, o.label, prompt, response)
	return step.FLOPs() / max(1, prefill.FLOPs()), err
}

// runStep is a step of one sample without the optimiser's.
func (s *student) runStep(ctx context.Context, r *runner.Runner, a model.RowsAdapter, l label, prompt, response []int32) error {
	p, err := prepareSample(ctx, r, Sample{Prompt: prompt, Response: response}, len(response), []label{l})
	if err == nil {
		_, err = s.runSample(s.sampleOf(r.Model, p, prompt, 0))
	}
	return err
}
