package evaluation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/collective"
	"glimpse/internal/parallel"
	"glimpse/model"

	"golang.org/x/sync/errgroup"
)

// Work is one subtask that is measured.
type Work struct {
	Name    string // that results are reported by
	Samples *Samples
}

// Options are the settings of a run over one model.
type Options struct {
	Policies  []engine.Policy
	Budgets   []eviction.Budget
	Sampling  model.Sampling
	Agreement Agreements

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

	// Ranks measure together; nil: this process alone.
	Ranks collective.Group
}

// smallWeights is the size of weights up to which samples are worked on side by side: the
// products of such a model are too small for several threads. A device takes one after the other.
const smallWeights = 64 << 20

func (o *Options) concurrency(m *model.Model) int {
	switch {
	case o.Concurrency > 0:
		return o.Concurrency
	case m.WeightBytes() > smallWeights || m.Backend.OwnMemory():
		return 1
	}
	return parallel.Threads()
}

// Run answers the samples of every subtask under every policy at every budget, and adds
// what comes of it to results, which may have some already. Every prompt is observed in
// one pass for all of them. A sample that fails is taken down as such and the others go on;
// an error of Run is one of the machine, or of the context. Equal options give equal
// predictions. Several ranks all call it with the same work, and rank 0 has the results;
// the others' are nil.
func Run(ctx context.Context, m *model.Model, work []Work, o Options, results *Results) error {
	switch {
	case len(o.Policies) == 0:
		return errors.New("evaluate: no policy")
	case len(work) == 0:
		return errors.New("evaluate: no task")
	}
	if err := eviction.CheckBudgets(o.Budgets); err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	if o.Ranks == nil {
		o.Ranks = collective.Alone()
	}
	beside := func(alone bool) []Work {
		return slices.DeleteFunc(slices.Clone(work), func(w Work) bool { return w.Samples.Alone != alone })
	}
	if err := o.shareSamples(ctx, m, beside(false), results); err != nil {
		return err
	}
	if o.Ranks.Rank() > 0 {
		return nil // what is measured by itself is rank 0's
	}
	from := o.own(m, beside(true), results)
	defer from.stop()
	return o.pool(ctx, m, 1, from)
}

// jobs is where workers have their samples from, and where goes what they measure.
type jobs interface {
	// next is the next sample to be measured; ok is false at the end. It may wait.
	next(ctx context.Context) (j job, ok bool, err error)
	take(j job, found *measured) error
}

// job is a sample that is to be measured.
type job struct {
	work  *Work
	at    int // of the subtask in the work
	index int
	item  Item
	cells []int // places of those that are measured; nil: all
}

// measured is what all cells did on one sample: its predictions, and for the first ones what is kept.
type measured struct {
	Lines   []*Prediction
	Kept    *Kept // nil: not asked for
	Prefill time.Duration
}

// pool measures samples on so many goroutines.
func (o *Options) pool(ctx context.Context, m *model.Model, workers int, from jobs) error {
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			b := &Bench{
				Runtime: eviction.NewRuntime(m), Policies: o.Policies, Budgets: o.Budgets, Cells: CellsOf(o.Policies, o.Budgets),
				Sampling: o.Sampling, Agreement: o.Agreement, Batch: o.Batch,
			}
			for ctx.Err() == nil {
				j, ok, err := from.next(ctx)
				if err != nil || !ok {
					return err
				}
				found, err := o.measureSample(ctx, b, m.Name, j)
				if err != nil {
					return err
				}
				if err := from.take(j, found); err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

// measureSample measures a sample. Its error is one of the context.
func (o *Options) measureSample(ctx context.Context, b *Bench, modelName string, j job) (*measured, error) {
	if j.cells != nil {
		whole, some := b, b.only(j.cells)
		defer func() { whole.engine = some.engine }()
		b = some
	}
	s, err := j.item.Make(ctx)
	var out *outcome
	if err == nil {
		out, err = b.answerSample(ctx, s)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	found := &measured{Lines: predictions(modelName, j.work.Name, j.work.Samples.Metric, j.index, j.item.ID, b.Cells, s, out, err)}
	if out != nil {
		found.Prefill = out.prefill
	}
	if j.index < o.Inspect && out != nil && out.study != nil {
		if k := keptOf(b.Runtime.Runner.Model, out.study, len(b.Budgets), b.Cells); k != nil {
			k.Task, k.Index, k.Sample = j.work.Name, j.index, j.item.ID
			found.Kept = k
		}
	}
	return found, nil
}

// all goes over the samples of work, in their order.
func all(work []Work) iter.Seq[job] {
	return func(yield func(job) bool) {
		for at := range work {
			index := -1
			for item := range work[at].Samples.Each {
				index++
				if !yield(job{work: &work[at], at: at, index: index, item: item}) {
					return
				}
			}
		}
	}
}

// own are the samples that results lack, which go there.
type own struct {
	o       *Options
	results *Results
	model   string

	mu   sync.Mutex
	pull func() (job, bool)
	stop func()
}

func (o *Options) own(m *model.Model, work []Work, results *Results) *own {
	f := &own{o: o, results: results, model: m.Name}
	f.pull, f.stop = iter.Pull(all(work))
	return f
}

func (f *own) next(ctx context.Context) (job, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ctx.Err() == nil {
		j, ok := f.pull()
		if !ok {
			return job{}, false, nil
		}
		if f.o.Shards > 0 && j.index%f.o.Shards != f.o.Shard {
			continue
		}
		var any bool
		if j.cells, any = f.results.todo(f.model, j.work.Name, j.index); any {
			return j, true, nil
		}
	}
	return job{}, false, nil
}

func (f *own) take(j job, found *measured) error {
	if f.o.Strict {
		for _, p := range found.Lines {
			if p.Error != "" {
				return fmt.Errorf("evaluate: task %s: sample %s: %s", j.work.Name, j.item.ID, p.Error)
			}
		}
	}
	if found.Kept != nil {
		if err := f.o.OnKept(found.Kept); err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
	}
	if err := f.results.addSample(found.Lines, found.Prefill); err != nil {
		return fmt.Errorf("evaluate: %w", err)
	}
	if f.o.OnSample != nil {
		f.o.OnSample()
	}
	return nil
}
