package training

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"glimpse/internal/benchclock"
	"glimpse/losses"
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
// longer than people wait.
func Measure(ctx context.Context, m *model.Model, a model.Adapter, loss losses.Loss, prompt, response []int32, repeats int) (Timing, error) {
	s, err := newStudent(m, a, loss)
	if err != nil {
		return Timing{}, err
	}
	defer s.graph.Close()
	return measureAdapter(ctx, runner.New(m), s, a, prompt, response, repeats)
}

// Measure is the package's function for adapter i, in the memory that the trainer
// has already.
func (t *Trainer) Measure(ctx context.Context, i int, prompt, response []int32, repeats int) (Timing, error) {
	w := t.workers[0]
	return measureAdapter(ctx, w.runner, w.students[i], t.learners[i].adapter, prompt, response, repeats)
}

func measureAdapter(ctx context.Context, r *runner.Runner, s *student, a model.Adapter, prompt, response []int32, repeats int) (Timing, error) {
	m := r.Model
	t := Timing{Prompt: len(prompt), Response: len(response), Floor: Floor(m, a, len(prompt), len(response))}
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
		p, err := prepareSample(ctx, r, Sample{Prompt: prompt, Response: response}, len(response))
		if err != nil {
			return t, err
		}
		if _, err := s.runSample(p.withRows(m, a.Rows())); err != nil {
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

// Floor is the least number of floating-point operations of a step over the operations of
// the prefill alone. Causal attention counts the visible half of its products;
// softmax, norms and the optimiser count nothing.
func Floor(m *model.Model, a model.Adapter, prompt, response int) float64 {
	prefill, target, rows := Operations(m, a, prompt, response)
	return (prefill + target + rows) / math.Max(1, prefill)
}

// Operations are the floating-point operations that Floor counts: of the prefill, of
// the target, and of the adapter's forward and backward pass. A multiply-add is two.
func Operations(m *model.Model, a model.Adapter, prompt, response int) (prefill, target, rows float64) {
	low := 0.0
	for l := range m.Config.Layers {
		for _, module := range model.FactorModules {
			if u := a.LowRank(l, module); u != nil {
				count, active, _, _ := m.Network.Layers[l].Factors(module)
				low += float64(u.A.Len()+u.B.Len()) * float64(active) / float64(count)
			}
		}
	}
	w := operations(m, prompt, response, []rowsOf{{float64(a.Rows()), low}})
	return 2 * w.prefill.total(), 2 * w.target.total(), 2 * w.rows.total()
}

// rowsOf is what the cost of an adapter depends on: its rows, and the numbers of its
// LoRA factors that a row goes through.
type rowsOf struct{ rows, low float64 }

// work is the multiply-adds of a sample: of the prefill, of its target, and of the
// adapters' forward and backward passes.
type work struct{ prefill, target, rows part }

// part is the multiply-adds of a pass: with weights, and of queries, keys and values.
type part struct{ products, attention float64 }

func (p part) total() float64 { return p.products + p.attention }
func (w work) total() float64 { return w.prefill.total() + w.target.total() + w.rows.total() }

// operations are the operations of a sample. m may have shapes alone.
func operations(m *model.Model, prompt, response int, adapters []rowsOf) (w work) {
	c := &m.Config
	n := float64(prompt)
	// add counts weights of so many numbers, in the passes that go through them, and times of a learned row: forward, gradient of
	// the input, and forward again where the gradient computes it again.
	add := func(size float64, prefill, target bool, times float64) {
		if prefill {
			w.prefill.products += n * size
		}
		if !target {
			return
		}
		w.target.products += float64(response) * size
		for _, a := range adapters {
			w.rows.products += times * a.rows * size
		}
	}
	for l := range c.Layers {
		attention := float64(c.Heads * c.KV(l).Dim) // per pair of row and entry and per product
		last, reaches := l == c.Layers-1, l < c.ScoredLayers()-1
		for _, module := range model.Modules {
			if lin := m.Network.Layers[l].Linear(module); lin != nil {
				add(float64(lin.Weight.Len()), !last || module == model.KProj || module == model.VProj, module.ReachesScores(l, c.ScoredLayers()), 2)
			}
		}
		if e := m.Network.Layers[l].Experts; e != nil && !last {
			_, active := e.Weights()
			add(float64(active), true, true, 3)
		}
		beside, rest := m.Network.Layers[l].OutputGate.Weight, 0.0
		if r := m.Network.Layers[l].Recurrent; r != nil {
			products, _ := r.Operations()
			rest = float64(r.WeightCount()) + products
		} else if beside != nil && !last {
			rest = float64(beside.Len())
		}
		add(rest, true, reaches, 3)
		if in := m.Network.Layers[l].Input; in != nil {
			add(float64(m.Network.Layers[l].Linear(model.InputGate).Weight.Len()+m.Network.Layers[l].Linear(model.InputProj).Weight.Len()+in.Projection.Len()), !last, reaches, 2)
		}
		if c.Recurrent(l) {
			continue
		}
		products := 2.0 // q·kᵀ and p·v
		if last {
			products = 1
		} else {
			w.prefill.attention += products * attention * n * n / 2
		}
		w.target.attention += products * attention * n * float64(response)
		for _, a := range adapters {
			w.rows.attention += products * attention * n * a.rows * 2 // forward and backward
		}
	}
	for _, a := range adapters {
		w.rows.products += 3 * a.rows * a.low // forward, gradients of input and factors
	}
	return w
}

// workOf is operations, with a response that is generated first where o says so: its
// tokens one by one, as for a target of all modules.
func workOf(m *model.Model, prompt int, o PlanOptions, rows []rowsOf) work {
	w := operations(m, prompt, o.Response, rows)
	if o.Generated {
		w.target.products *= 2
		w.target.attention *= 2
	}
	return w
}
