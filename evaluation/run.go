package evaluation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/model"
)

// Work is one subtask that is measured.
type Work struct {
	Name    string // that results are reported by
	Samples *Samples
}

// Options are the settings of a run over one model.
type Options struct {
	Contenders []Contender
	Budgets    []eviction.Budget
	Sampling   model.Sampling
	Agreement  Agreements

	// Batch is how many sessions are decoded together, Concurrency how many samples are
	// worked on at once, each with threads of its own; 0 chooses by the model's size.
	Batch, Concurrency int

	// Shard, Shards: of every subtask only the samples whose index modulo Shards is Shard;
	// Shards 0 is all.
	Shard, Shards int
	// Strict ends the run at the first sample that fails.
	Strict bool
	// Inspect is of how many samples of every subtask OnKept is told what is kept, before
	// their predictions are taken down. It may be called from several goroutines.
	Inspect int
	OnKept  func(*Kept) error
	// OnSample is told of every finished sample; it may be called from several goroutines.
	OnSample func()
}

// smallWeights is the size of weights up to which samples are worked on side by side: the
// products of such a model are too small for several threads.
const smallWeights = 64 << 20

func (o *Options) concurrency(m *model.Model) int {
	switch {
	case o.Concurrency > 0:
		return o.Concurrency
	case m.WeightBytes() > smallWeights || !m.Backend.Selector().OwnMemory():
		return 1
	}
	return parallel.Threads()
}

// Run answers the samples of every subtask under every contender at every budget, and adds
// what comes of it to results, which may have some already. Every prompt is observed in
// one pass for all of them. A sample that fails is taken down as such and the others go on;
// an error of Run is one of the machine, or of the context. Equal options give equal
// predictions.
func Run(ctx context.Context, m *model.Model, work []Work, o Options, results *Results) error {
	switch {
	case len(o.Contenders) == 0:
		return errors.New("evaluate: no policy")
	case len(work) == 0:
		return errors.New("evaluate: no task")
	}
	if err := eviction.CheckBudgets(o.Budgets); err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	beside := func(alone bool) []Work {
		return slices.DeleteFunc(slices.Clone(work), func(w Work) bool { return w.Samples.Alone != alone })
	}
	o.pool(ctx, cancel, m, beside(false), o.concurrency(m), results)
	o.pool(ctx, cancel, m, beside(true), 1, results)
	return context.Cause(ctx)
}

// pool measures the samples of work on so many goroutines.
func (o *Options) pool(ctx context.Context, cancel context.CancelCauseFunc, m *model.Model, work []Work, workers int, results *Results) {
	type job struct {
		work  *Work
		index int
		item  Item
	}
	jobs := make(chan job)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			b := &Bench{
				Runtime: eviction.NewRuntime(m), Contenders: o.Contenders, Budgets: o.Budgets, Cells: CellsOf(o.Contenders, o.Budgets),
				Sampling: o.Sampling, Agreement: o.Agreement, Batch: o.Batch,
			}
			for j := range jobs {
				if ctx.Err() != nil {
					continue // the others are not begun
				}
				if err := o.sample(ctx, b, m.Name, j.work, j.index, j.item, results); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := range work {
		w := &work[i]
		index := -1
		for item := range w.Samples.Each {
			index++
			if ctx.Err() != nil {
				break
			}
			if o.Shards > 0 && index%o.Shards != o.Shard || results.Done(m.Name, w.Name, index) {
				continue
			}
			jobs <- job{w, index, item}
		}
	}
	close(jobs)
	wg.Wait()
}

// sample runs one.
func (o *Options) sample(ctx context.Context, b *Bench, modelName string, w *Work, index int, item Item, results *Results) error {
	s, err := item.Make(ctx)
	var out *outcome
	if err == nil {
		out, err = b.answer(ctx, s)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	lines := predictions(modelName, w.Name, w.Samples.Metric, index, item.ID, b.Cells, s, out, err)
	if o.Strict {
		for _, p := range lines {
			if p.Error != "" {
				return fmt.Errorf("evaluate: task %s: sample %s: %s", w.Name, item.ID, p.Error)
			}
		}
	}
	if index < o.Inspect && out != nil && out.study != nil {
		if k := keptOf(b.Runtime.Runner.Model, out.study, len(b.Budgets), b.Cells); k != nil {
			k.Task, k.Index, k.Sample = w.Name, index, item.ID
			if err := o.OnKept(k); err != nil {
				return fmt.Errorf("evaluate: %w", err)
			}
		}
	}
	if err := results.add(lines, out); err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	if o.OnSample != nil {
		o.OnSample()
	}
	return nil
}

// Timing are times of one cell, which no other run repeats to the bit.
type Timing struct {
	Model   string `json:"model"`
	Task    string `json:"task"`
	Policy  string `json:"policy"`
	Adapter string `json:"adapter,omitempty"`
	Budget  string `json:"budget,omitempty"`

	PromptTokens          int     `json:"prompt_tokens"`
	TTFTMillis            float64 `json:"ttft_ms"`       // time to first token, median
	TTFTOverhead          float64 `json:"ttft_overhead"` // time added to a plain prefill, as a share of it
	DecodeTokensPerSecond float64 `json:"decode_tokens_per_s"`
	PeakCacheBytes        int64   `json:"peak_cache_bytes"` // most that keys and values held during the prefill

	// PlainMillis is the median of the prefills without the policy, Spread the difference of
	// the slowest and the fastest time to first token as a share of the median, KeptBytes
	// what was held after the prompt, PeakMemoryBytes the most of a device's memory that was
	// in use, 0 of a host.
	PlainMillis     float64 `json:"plain_ttft_ms"`
	Spread          float64 `json:"ttft_spread"`
	KeptBytes       int64   `json:"kept_bytes"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes,omitempty"`
}

// TimeOptions say how times are taken.
type TimeOptions struct {
	Repeats int // of which the median counts
	Tokens  int // that are decoded for the speed, the first one besides
}

// UsualTimes are what runs have beside their tasks.
var UsualTimes = TimeOptions{Repeats: 3, Tokens: 24}

// Time measures every cell on one prompt, one after the other on an otherwise idle machine:
// prefills with and without the policy in turn, and the speed of decoding.
func Time(ctx context.Context, m *model.Model, task string, ids []int32, contenders []Contender, budgets []eviction.Budget, o TimeOptions) ([]Timing, error) {
	rt := eviction.NewRuntime(m)
	plain, err := eviction.New(full, 0, nil, nil)
	if err != nil {
		return nil, err
	}
	rt.MaxNew = min(o.Tokens, m.Config.MaxPositions-len(ids)+1)
	s, err := rt.Prefill(ctx, plain, ids, len(ids), nil) // it also warms up
	if err != nil {
		return nil, err
	}
	response, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: rt.MaxNew, IgnoreEnd: true})
	if err != nil {
		return nil, err
	}
	var out []Timing
	for _, c := range CellsOf(contenders, budgets) {
		t := Timing{Model: m.Name, Task: task, Policy: c.Title(), Adapter: c.Adapter, Budget: c.budgetName(), PromptTokens: len(ids)}
		budget := len(ids)
		if c.Budget != (eviction.Budget{}) {
			budget = c.Budget.Of(len(ids))
		}
		var base, ttft, speed []float64
		if m.Backend.OwnMemory() {
			m.Backend.ResetPeak()
		}
		for range o.Repeats {
			s, err := rt.Prefill(ctx, plain, ids, len(ids), nil)
			if err != nil {
				return nil, err
			}
			base = append(base, s.PrefillTime.Seconds())
			if s, err = rt.Prefill(ctx, c.Configured, ids, budget, response); err != nil {
				return nil, fmt.Errorf("policy %s: %w", c.Title(), err)
			}
			ttft = append(ttft, s.PrefillTime.Seconds())
			t.KeptBytes = s.Bytes()
			start := time.Now()
			tokens, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: rt.MaxNew, IgnoreEnd: true})
			if err != nil {
				return nil, fmt.Errorf("policy %s: %w", c.Title(), err)
			}
			speed = append(speed, float64(len(tokens)-1)/time.Since(start).Seconds())
			t.PeakCacheBytes = max(t.PeakCacheBytes, s.PeakBytes)
		}
		t.PeakMemoryBytes = m.Backend.Memory().Peak
		t.PlainMillis, t.Spread = 1000*middle(base), (slices.Max(ttft)-slices.Min(ttft))/middle(ttft)
		t.TTFTMillis, t.TTFTOverhead, t.DecodeTokensPerSecond = 1000*middle(ttft), middle(ttft)/middle(base)-1, middle(speed)
		out = append(out, t)
	}
	return out, nil
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
