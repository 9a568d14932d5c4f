package train

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"glimpse/losses"
	"glimpse/model"
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
	return fmt.Sprintf("step %.2f ms, prefill %.2f ms, floor %.3f × prefill, step ÷ (prefill × floor) = %.2f at %d prompt and %d response tokens",
		ms(t.Step), ms(t.Prefill), t.Floor, t.Ratio(), t.Prompt, t.Response)
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Measure times prefills and steps of one sample in turn, without caches and with
// all threads on it, and reports medians.
func Measure(ctx context.Context, m *model.Model, a model.Adapter, loss losses.Loss, prompt, response []int32, repeats int) (Timing, error) {
	r := m.NewRunner()
	g, err := compile(m, a, loss)
	if err != nil {
		return Timing{}, err
	}
	defer g.Close()
	t := Timing{Prompt: len(prompt), Response: len(response), Floor: Floor(m, a, len(prompt), len(response))}
	var prefills, steps []time.Duration
	for i := range repeats + 1 {
		start := time.Now()
		if _, err := r.Prefill(ctx, m.NewCache(), prompt, model.PrefillOptions{CacheOnly: true}); err != nil {
			return t, err
		}
		prefill := time.Since(start)
		start = time.Now()
		p, err := prepare(ctx, r, Sample{Prompt: prompt, Response: response}, len(response))
		if err != nil {
			return t, err
		}
		*g.sample = p.sample(m, a.Rows())
		if _, err := g.Run(); err != nil {
			return t, err
		}
		if i > 0 { // the first is a warm-up
			prefills, steps = append(prefills, prefill), append(steps, time.Since(start))
		}
	}
	t.Prefill, t.Step = median(prefills), median(steps)
	return t, nil
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// Floor is the least number of floating-point operations of a step over those of
// the prefill alone. Causal attention counts the visible half of its products;
// softmax, norms and the optimiser count nothing.
func Floor(m *model.Model, a model.Adapter, prompt, response int) float64 {
	c := &m.Config
	var prefill, step float64
	attention := float64(c.Heads * c.HeadDim) // multiply-adds per pair of row and entry and per product
	rows := float64(a.Rows())
	for l := range c.Layers {
		last := l == c.Layers-1
		for _, module := range model.Modules {
			lin := m.Network.Layers[l].Linear(module)
			if lin == nil {
				continue
			}
			size := float64(lin.Weight.Len())
			if !last || module == model.KProj || module == model.VProj {
				prefill += float64(prompt) * size
			}
			if !module.ReachesScores(l, c.Layers) {
				continue
			}
			step += float64(response) * size // target
			step += 2 * rows * size          // rows: forward, gradient of the input
			if low := a.LowRank(l, module); low != nil {
				step += 3 * rows * float64(low.A.Len()+low.B.Len()) // forward, gradients of input and factors
			}
		}
		n := float64(prompt)
		products := 2.0 // q·kᵀ and p·v
		if last {
			products = 1
		} else {
			prefill += products * attention * n * n / 2
		}
		step += products * attention * n * float64(response)
		step += products * attention * n * rows * 2 // forward and backward
	}
	return (prefill + step) / math.Max(1, prefill)
}
