package evaluation

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/parallel"
	"glimpse/jobs"
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
	// Work is where the processes of the run share out its samples; nil: this process is alone, and the
	// predictions are in memory. Free leaves to others the samples that they have.
	Work *jobs.Work
	Free bool
	// Strict ends the run at the first sample that fails.
	Strict bool
	// Inspect is of how many samples of every subtask what is kept goes with the result.
	Inspect int
	// OnSample is told of every sample that this process or another has finished; it may be called from several goroutines.
	OnSample func()
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
// predictions, also where several processes share the work: each then has the results of all. Whole is false where
// samples are left to others, or another process has finished the run.
func Run(ctx context.Context, m *model.Model, work []Work, o Options, results *Results) (whole bool, err error) {
	if err := cmp.Or(
		jobs.Refuse(len(o.Policies) == 0, "no policy"),
		jobs.Refuse(len(work) == 0, "no task"),
		eviction.CheckBudgets(o.Budgets),
	); err != nil {
		return false, fmt.Errorf("evaluate: %w", err)
	}
	whole = true
	s := &samples{o: &o, results: results, model: m.Name, cells: CellsOf(o.Policies, o.Budgets)}
	for _, alone := range []bool{false, true} {
		workers := 1
		if !alone {
			workers = o.concurrency(m)
		}
		s.shareOut(slices.DeleteFunc(slices.Clone(work), func(w Work) bool { return w.Samples.Alone != alone }))
		err := o.pool(ctx, m, workers, s)
		if s.Close(); err == nil {
			err = s.storeWaiting(o.Shards > 0)
		}
		if err != nil || s.Over() {
			return false, err
		}
		whole = whole && s.Left() == 0
	}
	if o.Shards > 0 { // what others have done of the rest
		o.Shards = 0
		s.shareOut(work)
		defer s.Close()
		s.Look = true
		if _, _, _, err := s.Next(ctx, true); err != nil {
			return false, err
		}
		whole = s.Left() == 0
	}
	return whole, nil
}

// job is a sample that is to be measured.
type job struct {
	work  *Work
	at    int // of the subtask in the work
	index int
	item  Item
	cells []int // places of those that are measured; nil: all
	claim *jobs.Claim
}

// measured is what all cells did on one sample: its predictions, and for the first ones what is kept.
type measured struct {
	Lines   []*Prediction
	Kept    *Kept // nil: not asked for
	Prefill time.Duration
}

// pool measures samples on so many goroutines.
func (o *Options) pool(ctx context.Context, m *model.Model, workers int, from *samples) error {
	group, ctx := errgroup.WithContext(ctx)
	for range workers {
		group.Go(func() error {
			b, err := o.newBench(m)
			if err != nil {
				return err
			}
			for ctx.Err() == nil {
				j, claim, ok, err := from.Next(ctx, true)
				if err != nil || !ok {
					return err
				}
				j.claim = claim
				found, err := o.measureSample(ctx, b, m.Name, j)
				if err == nil {
					err = from.store(ctx, j, found)
				}
				if err != nil {
					return err
				}
			}
			return context.Cause(ctx)
		})
	}
	return group.Wait()
}

// newBench is a bench of all cells.
func (o *Options) newBench(m *model.Model) (*Bench, error) {
	b := &Bench{
		Runtime: eviction.NewRuntime(m), Policies: o.Policies, Budgets: o.Budgets, Cells: CellsOf(o.Policies, o.Budgets),
		Sampling: o.Sampling, Agreement: o.Agreement, Batch: max(1, o.Batch),
	}
	var err error
	b.engine, err = engine.New(b.Runtime, b.Batch)
	return b, err
}

// measureSample measures a sample. Its error is one of the context.
func (o *Options) measureSample(ctx context.Context, b *Bench, modelName string, j job) (*measured, error) {
	if j.cells != nil {
		b = b.only(j.cells)
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

// samples are those that results lack, which this process shares out with others. Nothing is stored before a sample was
// measured: then those that failed before it, too.
type samples struct {
	jobs.Share[job]
	o       *Options
	results *Results
	model   string
	cells   []Cell

	mu      sync.Mutex
	begun   bool // some sample is measured
	waiting []result
}

// result is that of a sample, as it is stored.
type result struct {
	claim *jobs.Claim
	text  []byte
}

// shareOut shares out the samples of work.
func (s *samples) shareOut(work []Work) {
	o := s.o
	s.Share = jobs.Share[job]{Work: o.Work, Name: s.name, Accept: s.accept, Free: o.Free, BeforeWait: func() error { return s.storeWaiting(true) }, Units: func(yield func(job) bool) {
		for j := range all(work) {
			if o.Shards > 0 && j.index%o.Shards != o.Shard {
				continue
			}
			var any bool
			if j.cells, any = s.results.todo(s.model, j.work.Name, j.index); any && !yield(j) {
				return
			}
		}
	}}
}

// name is that of a sample's result.
func (s *samples) name(j job) string {
	sum := sha256.Sum256([]byte(s.model + "\x00" + j.work.Name))
	return fmt.Sprintf("%x-%08d", sum[:8], j.index)
}

// accept takes the result of a sample that another process has measured, unless it lacks cells.
func (s *samples) accept(j job, text []byte) (bool, error) {
	r, err := ReadResult(text)
	if err != nil {
		return false, nil // a crash has damaged it
	}
	missing, ok := lacking(r.Lines, j.item.ID, s.cells)
	if !ok && r.Lines[0].Sample != j.item.ID {
		return false, fmt.Errorf("evaluate: task %s: sample %d is %s, but %s of another process: they have other data", j.work.Name, j.index, j.item.ID, r.Lines[0].Sample)
	}
	if !ok || len(missing) > 0 {
		return false, nil
	}
	s.results.addSample(r.Lines, 0, 0)
	if s.o.OnSample != nil {
		s.o.OnSample()
	}
	return true, nil
}

// store takes the result of a sample.
func (s *samples) store(ctx context.Context, j job, found *measured) error {
	if s.o.Strict {
		for _, p := range found.Lines {
			if p.Error != "" {
				return fmt.Errorf("evaluate: task %s: sample %s: %s", j.work.Name, j.item.ID, p.Error)
			}
		}
	}
	lines := s.results.merge(found.Lines)
	if j.claim != nil {
		text, err := encodeResult(lines, found.Kept)
		if err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
		s.mu.Lock()
		s.waiting = append(s.waiting, result{j.claim, text})
		s.begun = s.begun || s.results.Measured() || slices.ContainsFunc(lines, (*Prediction).Measured)
		err = s.storeBegun(ctx)
		s.mu.Unlock()
		if err != nil {
			return err
		}
	}
	s.results.addSample(lines, len(found.Lines), found.Prefill)
	if s.o.OnSample != nil {
		s.o.OnSample()
	}
	return nil
}

// storeBegun stores what waits, if a sample was measured. The caller holds mu.
func (s *samples) storeBegun(ctx context.Context) error {
	for s.begun && len(s.waiting) > 0 {
		r := s.waiting[0]
		s.waiting = s.waiting[1:]
		if err := r.claim.Finish(ctx, r.text); err != nil {
			return fmt.Errorf("evaluate: %w", err)
		}
	}
	return nil
}

// storeWaiting stores the results that wait for a measured sample where others wait for them, or there will be none.
func (s *samples) storeWaiting(others bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = s.begun || others || s.results.Measured()
	return s.storeBegun(context.Background())
}
