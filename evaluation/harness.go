package evaluation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/internal/stats"
	"glimpse/model"
)

// Contender is a policy that takes part, with the name of the adapter it uses.
type Contender struct {
	*eviction.Configured
	Adapter string // or draft model; "" for policies without one
}

// Options are the settings of one evaluation.
type Options struct {
	Contenders []Contender
	Budgets    []int
	Tasks      []string
	Tokens     int
	Samples    int // per task
	Seed       uint64
	Split      datasets.Split
	// Timings also measures times to first token and decoding speed, one policy after
	// the other on an otherwise idle machine.
	Timings bool
	// OnSample is told of every finished prompt; it may be called from several
	// goroutines.
	OnSample func()
}

// full and oracle are the policies that all others are measured against.
const (
	full   = "full"
	oracle = "oracle"
)

// outcome is what one plan did on one prompt.
type outcome struct {
	right bool
	hit   float64
	kept  int64
	read  eviction.Traffic

	recall, tau float64
	ranked      bool // recall and tau are measured
}

// Run answers the prompts of every task under every contender at every budget.
// Each prompt is observed in one pass for all of them; caches are then evicted,
// and decoded, one by one. The contender "full" has one row per task, at budget 0,
// because it knows no budget. Equal options give equal rows, timings excepted.
func Run(ctx context.Context, m *model.Model, o Options) ([]Row, error) {
	if err := o.validate(m); err != nil {
		return nil, fmt.Errorf("evaluate: %w", err)
	}
	var rows []Row
	for _, task := range o.Tasks {
		stream, err := datasets.NewStream([]string{task}, o.Split, o.Tokens, o.Seed)
		if err != nil {
			return nil, fmt.Errorf("evaluate: %w", err)
		}
		taskRows, err := o.runTask(ctx, m, task, stream)
		if err != nil {
			return nil, fmt.Errorf("evaluate: task %s: %w", task, err)
		}
		rows = append(rows, taskRows...)
	}
	return rows, nil
}

func (o *Options) validate(m *model.Model) error {
	switch {
	case len(o.Contenders) == 0:
		return fmt.Errorf("no policy")
	case len(o.Tasks) == 0:
		return fmt.Errorf("no task")
	case len(o.Budgets) == 0:
		return fmt.Errorf("no budget")
	case o.Samples < 1:
		return fmt.Errorf("samples: got %d, want at least 1", o.Samples)
	case m.Config.Vocab != len(datasets.Vocabulary()):
		return fmt.Errorf("model %s does not know the words of the synthetic tasks", m.Name)
	}
	for _, b := range o.Budgets {
		if err := eviction.CheckBudget(b); err != nil {
			return err
		}
		if b > o.Tokens {
			return fmt.Errorf("budget: got %d, want at most the prompt's %d tokens", b, o.Tokens)
		}
	}
	return nil
}

// cells are the plans in the order of a study: contenders, then budgets.
func (o *Options) cells(contender int) []int {
	if o.Contenders[contender].Name == full {
		return o.Budgets[:1]
	}
	return o.Budgets
}

func (o *Options) runTask(ctx context.Context, m *model.Model, task string, stream *datasets.Stream) ([]Row, error) {
	outcomes := make([][]outcome, o.Samples) // [sample][cell]
	fullBytes := make([]int64, o.Samples)
	workers := min(parallel.Threads(), o.Samples)
	errs := make([]error, workers)
	var claim atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			rt := eviction.NewRuntime(m)
			for {
				i := int(claim.Add(1)) - 1
				if i >= o.Samples || errs[w] != nil {
					return
				}
				outcomes[i], fullBytes[i], errs[w] = o.runSample(ctx, rt, stream, i)
				if o.OnSample != nil {
					o.OnSample()
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	var rows []Row
	cell := 0
	for c, contender := range o.Contenders {
		for _, budget := range o.cells(c) {
			rows = append(rows, o.row(contender, budget, task, cell, outcomes, fullBytes))
			cell++
		}
	}
	if o.Timings {
		if err := o.time(ctx, m, stream, rows); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// row sums up one cell.
func (o *Options) row(c Contender, budget int, task string, cell int, outcomes [][]outcome, fullBytes []int64) Row {
	r := Row{Policy: c.Name, Adapter: c.Adapter, Budget: budget, Task: task, Tokens: o.Tokens, Samples: o.Samples}
	if c.Name == full {
		r.Budget = 0
	}
	var right, hit, recall, tau float64
	var read eviction.Traffic
	ranked := true
	for i := range outcomes {
		x := outcomes[i][cell]
		if x.right {
			right++
		}
		hit += x.hit
		recall, tau, ranked = recall+x.recall, tau+x.tau, ranked && x.ranked
		r.KeptBytes += x.kept
		read = read.Plus(x.read)
		r.FullBytes += fullBytes[i]
	}
	n := float64(o.Samples)
	r.Accuracy, r.HitRate = right/n, new(hit/n)
	if ranked {
		r.Recall, r.KendallTau = new(min(recall/n, 1)), new(min(max(tau/n, -1), 1)) // sums round
	}
	r.StdErr = stats.BinomialStdErr(r.Accuracy, o.Samples)
	if read.Steps > 0 {
		r.TrafficBytes = new(read.PerStep())
	}
	r.KeptBytes /= int64(o.Samples)
	r.FullBytes /= int64(o.Samples)
	return r
}

// runSample answers one prompt under all contenders and budgets.
func (o *Options) runSample(ctx context.Context, rt *eviction.Runtime, stream *datasets.Stream, i int) ([]outcome, int64, error) {
	e, err := stream.At(i)
	if err != nil {
		return nil, 0, err
	}
	maxNew := len(e.Answer) + 1 // one more shows whether the answer ends where it should
	critic, err := eviction.New(oracle, 0, nil, nil)
	if err != nil {
		return nil, 0, err
	}
	policies := make([]*eviction.Configured, 0, len(o.Contenders)+1)
	for _, c := range o.Contenders {
		policies = append(policies, c.Configured)
	}
	rt.MaxNew = maxNew
	study, err := rt.Study(ctx, append(policies, critic), e.Prompt, o.Budgets, maxNew)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", e.ID, err)
	}
	critical := study.Plans[len(o.Contenders)*len(o.Budgets):]
	var out []outcome
	for c := range o.Contenders {
		for b := range o.cells(c) {
			plan := study.Plans[c*len(o.Budgets)+b]
			session, err := study.Session(plan)
			if err != nil {
				return nil, 0, fmt.Errorf("%s: %w", e.ID, err)
			}
			x := outcome{hit: eviction.HitRate(plan.Kept, critical[b].Kept), kept: session.Bytes()}
			if err := o.converse(ctx, rt, session, e, &x); err != nil {
				return nil, 0, fmt.Errorf("%s: policy %s: %w", e.ID, plan.Configured.Name, err)
			}
			x.recall, x.tau, x.ranked = eviction.Agreement(plan.Scores, critical[b].Scores, plan.Budget)
			out = append(out, x)
		}
	}
	return out, study.FullBytes, nil
}

// converse lets a session answer, turn by turn; right is who is right in every one.
func (o *Options) converse(ctx context.Context, rt *eviction.Runtime, s *eviction.Session, e datasets.Example, x *outcome) error {
	x.right = true
	answer := e.Answer
	for turn := 0; ; turn++ {
		tokens, ended, err := s.Generate(ctx, model.GenerateOptions{MaxNew: len(answer) + 1})
		if err != nil {
			return err
		}
		x.right = x.right && ended && slices.Equal(tokens, answer)
		x.read = x.read.Plus(s.Traffic)
		if turn == len(e.Turns) {
			return nil
		}
		answer = e.Turns[turn].Answer
		rt.MaxNew = len(answer) + 1
		if err := s.Turn(ctx, e.Turns[turn].Prompt, nil); err != nil {
			return err
		}
	}
}

// time measures every row's policy on the task's first prompt: prefills with and
// without the policy in turn, medians of three, and the speed of decoding.
func (o *Options) time(ctx context.Context, m *model.Model, stream *datasets.Stream, rows []Row) error {
	const repeats, decoded = 3, 24
	e, err := stream.At(0)
	if err != nil {
		return err
	}
	rt := eviction.NewRuntime(m)
	plain, err := eviction.New(full, 0, nil, nil)
	if err != nil {
		return err
	}
	maxNew := min(decoded, m.Config.MaxPositions-len(e.Prompt)+1)
	rt.MaxNew = maxNew
	next := 0
	for c, contender := range o.Contenders {
		for _, budget := range o.cells(c) {
			var base, ttft, speed []float64
			for range repeats {
				s, err := rt.Prefill(ctx, plain, e.Prompt, len(e.Prompt), nil)
				if err != nil {
					return err
				}
				base = append(base, s.PrefillTime.Seconds())
				s, err = rt.Prefill(ctx, contender.Configured, e.Prompt, budget, e.Answer)
				if err != nil {
					return err
				}
				ttft = append(ttft, s.PrefillTime.Seconds())
				start := time.Now()
				tokens, _, err := s.Generate(ctx, model.GenerateOptions{MaxNew: maxNew, IgnoreEnd: true})
				if err != nil {
					return err
				}
				speed = append(speed, float64(len(tokens)-1)/time.Since(start).Seconds())
			}
			r := &rows[next]
			r.TTFTMillis = new(1000 * middle(ttft))
			r.TTFTOverhead = new(middle(ttft)/middle(base) - 1)
			r.DecodeTokensPerSecond = new(middle(speed))
			next++
		}
	}
	return nil
}

func middle(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}
