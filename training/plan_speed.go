package training

import (
	"context"
	"errors"
	"math"
	"runtime/debug"
	"time"

	"glimpse/datasets"
	"glimpse/model"
)

// speed is what a plan's time stands on.
type speed struct {
	seconds func(w work) float64 // of one sample
	process int64                // bytes that the process holds, without weights, parameters and scratch
}

// defaultProcess is about what program, runtime and graphs take, for systems that
// do not tell.
const defaultProcess = 48 << 20

// resident is what the process holds besides the bytes given.
func (o PlanOptions) resident(besides int64) int64 {
	if o.Resident == nil {
		return defaultProcess
	}
	debug.FreeOSMemory()
	if n := o.Resident(); n > 0 {
		return n - besides
	}
	return defaultProcess
}

const (
	// stepWork bounds the multiply-adds of a worker in one of the steps that are run, by
	// shorter prompts.
	stepWork = 2e9
	// stepTime is when no further step is begun.
	stepTime = 700 * time.Millisecond
)

// errEnough ends a measurement.
var errEnough = errors.New("measured")

// measureSteps runs steps with random weights: in small models what lies between the
// products takes its share.
func measureSteps(ctx context.Context, m *model.Model, c Config, o PlanOptions, rows []rowsOf, workers int) (speed, error) {
	tokens := o.Prompt
	for tokens > 64 && workOf(m, tokens, o, rows).total() > stepWork {
		tokens /= 2
	}
	dummy := m.WithDummyWeights(m.Config.Layers, m.Config.Vocab)
	c.Steps, c.Batch, c.Workers, c.Warmup = 3, workers, workers, 0
	c.MaxResponse, c.CacheMemory, c.CacheDisk = o.Response, 0, 0
	c.Validation = ValidationConfig{}
	c.Adapters = drawn(c.Adapters)
	p := datasets.Pair{ID: "dummy", PromptIDs: make([]int32, tokens), ResponseIDs: make([]int32, o.Response)}
	for i := range p.PromptIDs {
		p.PromptIDs[i] = int32(i*7) % int32(m.Config.Vocab)
	}
	pairs := &Pairs{Pairs: []datasets.Pair{p}, Name: "dummy"}
	var source Source = pairs
	if o.Generated {
		source = generated{pairs}
	}
	t, err := New(dummy, c, source)
	if err != nil {
		return speed{}, err
	}
	defer t.Close()
	best, begin := time.Duration(math.MaxInt64), time.Now()
	start := begin
	err = t.Run(ctx, func(StepResult) error {
		best = min(best, time.Since(start))
		if time.Since(begin) > stepTime {
			return errEnough
		}
		start = time.Now()
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return speed{}, err
	}
	rate := workOf(m, tokens, o, rows).total() * float64(c.Batch) / best.Seconds()
	return speed{
		seconds: func(w work) float64 { return w.total() / rate },
		process: o.resident(dummy.WeightBytes() + t.stateBytes()),
	}, nil
}

// generated hides the responses of pairs, so that the model generates them.
type generated struct{ *Pairs }

func (g generated) Repeats() bool { return false }

func (g generated) At(i int) (Sample, error) {
	s, err := g.Pairs.At(i)
	s.Response = nil
	return s, err
}

// stateBytes is the memory of parameters, optimiser and scratch.
func (t *Trainer) stateBytes() int64 {
	var n int64
	for _, w := range t.workers {
		n += w.runner.ScratchBytes() + w.graphBytes()
	}
	for _, l := range t.learners {
		for _, p := range l.params {
			n += 4 * int64(p.Tensor.Bytes())
		}
	}
	return n
}

// measureRates times pieces of the operations that large models spend their time in:
// products, attention, and what is done for every number of a row.
func measureRates(ctx context.Context, m *model.Model, c Config, o PlanOptions) (speed, error) {
	p := newPieces(ctx, m)
	prompt, response := min(o.Prompt, pieceRows), min(o.Response, pieceRows)
	learned := 1
	for _, a := range c.Adapters {
		learned = max(learned, a.Rows)
	}
	var rates struct{ prefill, target, rows part }
	rates.prefill = part{p.productRate(prompt), p.attentionRate(prompt, o.Prompt)}
	rates.target = part{p.productRate(response), p.observed(response, o.Prompt)}
	if o.Generated { // half of the target's work, row by row
		rates.target.products = harmonic(rates.target.products, p.productRate(1))
		rates.target.attention = harmonic(rates.target.attention, p.attentionRate(1, o.Prompt))
	}
	rates.rows = part{harmonic(p.productRate(learned), p.gradient(learned)), p.attentionAndGradient(learned, o.Prompt)}
	perRow := p.perRow(prompt)
	p.freeAll()
	if err := ctx.Err(); err != nil {
		return speed{}, err
	}
	weights := float64(m.Network.ActiveParameters())
	return speed{
		seconds: func(w work) float64 {
			s := 0.0
			for _, x := range []struct{ done, rate part }{{w.prefill, rates.prefill}, {w.target, rates.target}, {w.rows, rates.rows}} {
				s += x.done.products/x.rate.products + x.done.attention/x.rate.attention
				s += x.done.products / weights * perRow
			}
			return s
		},
		process: o.resident(0) + ropeBytes(m, o.Prompt+o.Response),
	}, nil
}

// harmonic is the rate of work where half is done at each rate.
func harmonic(a, b float64) float64 { return 2 / (1/a + 1/b) }

// ropeBytes are the tables of rotations for so many positions, which grow in powers of two.
func ropeBytes(m *model.Model, positions int) int64 {
	n := 1024
	for n < positions {
		n *= 2
	}
	tables := make(map[*model.RoPE]int)
	for l := range m.Config.Layers {
		of := m.Config.RoPEOf(l)
		if tables[of] = len(of.RoPEFreqs); of.PositionScale != nil { // queries have one of their own, made of another
			tables[of] *= 3
		}
	}
	width := 0
	for _, w := range tables {
		width += w
	}
	return 2 * int64(n*width*m.Backend.Compute().Size())
}
