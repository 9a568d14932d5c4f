package evaluation

import (
	"context"
	"fmt"
	"slices"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/model"
	"glimpse/model/runner"
)

// Timing are times of one cell, which no other run repeats to the bit.
type Timing struct {
	Model   string `json:"model"`
	Task    string `json:"task"`
	Policy  string `json:"policy"`
	Adapter string `json:"adapter,omitempty"`
	Budget  string `json:"budget,omitempty"`

	PromptTokens          int      `json:"prompt_tokens"`
	Repeats               int      `json:"repeats"`                       // the results are their medians
	TTFTMillis            float64  `json:"ttft_ms"`                       // time to first token, median
	TTFTOverhead          *float64 `json:"ttft_overhead,omitempty"`       // time added to a plain prefill, as a share of it; nil of the full cache, which is one
	DecodeTokensPerSecond float64  `json:"decode_tokens_per_s,omitempty"` // 0: not measured
	PeakCacheBytes        int64    `json:"peak_cache_bytes"`              // most that keys and values held during the prefill

	// PlainMillis is the median of the prefills without the policy, Spread the difference of
	// the slowest and the fastest time to first token as a share of the median, KeptBytes
	// what was held after the prompt, PeakMemoryBytes the most of a device's memory that was
	// in use, 0 of a host.
	PlainMillis     float64 `json:"plain_ttft_ms"`
	Spread          float64 `json:"ttft_spread"`
	KeptBytes       int64   `json:"kept_bytes"`
	PeakMemoryBytes int64   `json:"peak_memory_bytes,omitempty"`
}

// Times are what a run measures of times beside its answers.
type Times string

const (
	TimesNone Times = "none"
	TimesTTFT Times = "ttft" // time to first token
	TimesAll  Times = "all"  // and the speed of decoding
)

// TimeOptions say how times are taken.
type TimeOptions struct {
	Repeats int           // their median counts
	Within  time.Duration // no further repeat of a cell is begun after it; 0: all are
	Tokens  int           // that are decoded for the speed, the first one besides
	Prefill bool          // measure no speed

	// Begin (may be nil) is told how long all cells will take, as far as a prefill without a policy
	// tells, OnCell of every cell that is done.
	Begin  func(estimate time.Duration)
	OnCell func(c Cell)
}

// UsualTimes are what runs have beside their tasks: of every cell three repeats, or as many as
// begin within 10 seconds. Where there are many tasks, over which a table's times are means, it is
// one of each after the first.
func UsualTimes(times Times, task, tasks int) TimeOptions {
	const few = 4
	o := TimeOptions{Repeats: 3, Within: 10 * time.Second, Tokens: 24, Prefill: times == TimesTTFT}
	if task > 0 && tasks > few {
		o.Repeats = 1
	}
	return o
}

// timer measures cells on one prompt.
type timer struct {
	TimeOptions
	rt       *eviction.Runtime
	plain    *eviction.Configured // the full cache
	prompt   eviction.Prompt      // with the budget of the full cache
	response []int32
	plains   []float64 // seconds of the prefills without a policy, in order
}

// prefillPlain measures a prefill without a policy.
func (w *timer) prefillPlain(ctx context.Context) error {
	s, err := w.rt.Prefill(ctx, w.plain, w.prompt)
	if err == nil {
		w.plains = append(w.plains, s.PrefillTime.Seconds())
	}
	return err
}

// decode answers after a prefill. The speed is tokens a second, without the first one.
func (w *timer) decode(ctx context.Context, s *eviction.Session) (tokens []int32, speed float64, err error) {
	start := time.Now()
	tokens, _, err = s.Generate(ctx, runner.GenerateOptions{MaxNew: w.prompt.MaxNew, IgnoreEnd: true})
	return tokens, float64(len(tokens)-1) / time.Since(start).Seconds(), err
}

// measure takes the times of one cell. A cell that shares has no prefill without a policy of its own.
func (w *timer) measure(ctx context.Context, c Cell, t *Timing, shares bool) error {
	prompt := w.prompt
	if prompt.Response = w.response; c.Budget != (eviction.Budget{}) {
		prompt.Budget = c.Budget.Of(len(prompt.Tokens))
	}
	backend := w.rt.Runner.Model.Backend
	if backend.OwnMemory() {
		backend.ResetPeak()
	}
	var ttft, speeds []float64
	start := time.Now()
	for ; t.Repeats < w.Repeats && (t.Repeats == 0 || w.Within == 0 || time.Since(start) < w.Within); t.Repeats++ {
		if !shares {
			if err := w.prefillPlain(ctx); err != nil {
				return err
			}
		}
		s, err := w.rt.Prefill(ctx, c.Configured, prompt)
		if err != nil {
			return fmt.Errorf("policy %s: %w", c.Title(), err)
		}
		ttft = append(ttft, s.PrefillTime.Seconds())
		t.KeptBytes, t.PeakCacheBytes = s.Bytes(), max(t.PeakCacheBytes, s.PeakBytes)
		if w.Prefill {
			continue
		}
		_, speed, err := w.decode(ctx, s)
		if err != nil {
			return fmt.Errorf("policy %s: %w", c.Title(), err)
		}
		speeds = append(speeds, speed)
	}
	t.PeakMemoryBytes = backend.Memory().Peak
	t.Spread = (slices.Max(ttft) - slices.Min(ttft)) / middle(ttft)
	if t.TTFTMillis = 1000 * middle(ttft); len(speeds) > 0 {
		t.DecodeTokensPerSecond = middle(speeds)
	}
	return nil
}

// Time measures every cell on one prompt, one after the other on an otherwise idle machine:
// prefills with and without the policy in turn, and the speed of decoding.
func Time(ctx context.Context, m *model.Model, task string, ids []int32, policies []engine.Policy, budgets []eviction.Budget, o TimeOptions) ([]Timing, error) {
	plain, err := eviction.New(full, 0, nil, nil)
	if err != nil {
		return nil, err
	}
	prompt := eviction.Prompt{Tokens: ids, Budget: len(ids), MaxNew: min(o.Tokens, m.Config.MaxPositions-len(ids)+1)}
	w := &timer{TimeOptions: o, rt: eviction.NewRuntime(m), plain: plain, prompt: prompt}
	s, err := w.rt.Prefill(ctx, plain, prompt) // it also warms up
	if err != nil {
		return nil, err
	}
	begun := time.Now()
	if w.response, _, err = w.decode(ctx, s); err != nil {
		return nil, err
	}
	cells := CellsOf(policies, budgets)
	if o.Begin != nil {
		repeat := 2 * s.PrefillTime
		if !o.Prefill {
			repeat += time.Since(begun)
		}
		o.Begin(time.Duration(len(cells)) * o.repeatsOf(repeat) * repeat)
	}
	var out []Timing
	var around [][2]int // of each cell the first and the last plain prefill that come right before it
	for i, c := range cells {
		t := Timing{Model: m.Name, Task: task, Policy: c.Title(), Adapter: c.Adapter, Budget: c.BudgetName(), PromptTokens: len(ids)}
		first, shares := len(w.plains), o.Repeats == 1 && i%2 == 1
		if shares { // one prefill stands for two cells of one repeat
			first--
		}
		if err := w.measure(ctx, c, &t, shares); err != nil {
			return nil, err
		}
		around, out = append(around, [2]int{first, len(w.plains) - 1}), append(out, t)
		if o.OnCell != nil {
			o.OnCell(c)
		}
	}
	if err := w.prefillPlain(ctx); err != nil {
		return nil, err
	}
	// A cell's prefills without the policy are its own and the one on either side: one that was
	// disturbed does not count.
	for i := range out {
		t := &out[i]
		near := slices.Clone(w.plains[max(0, around[i][0]-1) : around[i][1]+2])
		t.PlainMillis = 1000 * middle(near)
		if t.Policy != full {
			t.TTFTOverhead = new(t.TTFTMillis/t.PlainMillis - 1)
		}
	}
	return out, nil
}

// repeatsOf is how many repeats of a cell begin where each takes so long.
func (o TimeOptions) repeatsOf(each time.Duration) time.Duration {
	n := time.Duration(o.Repeats)
	if o.Within > 0 && each > 0 {
		n = min(n, (o.Within-1)/each+1)
	}
	return n
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
