package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/collective"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/internal/regularfile"
	"glimpse/internal/signals"
	"glimpse/internal/yamlconfig"
	"glimpse/kernels"
	"glimpse/model"
)

// Outcome is what a run has measured, whether it came to its end or not.
type Outcome struct {
	Rows    []evaluation.Row
	Failed  int // predictions that are errors
	Samples int
	First   string // the first of the errors
	// Failures are the errors of the samples that failed, or under a policy, one of each.
	Failures []error

	Prompts, Caches int // caches that were evicted of so many prefills
	Saved           time.Duration
}

// Run measures everything, or the shards that are free. What was measured comes back with an
// error, too.
func (j *Job) Run(ctx context.Context, log io.Writer) (*Outcome, error) {
	if err := j.growToFolder(); err != nil {
		return nil, fmt.Errorf("eval: --resume: %w", err)
	}
	plans, err := j.checkedPlans()
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	for _, s := range j.Models { // before the first is measured
		if err := j.options(s).CheckAdapters(ctx); err != nil {
			return nil, fmt.Errorf("eval: %w", err)
		}
	}
	if err := j.identify(ctx, log); err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	defer j.closeModel()
	if j.Shards > 0 || j.Shard != "" || objectstore.IsURL(j.Out) {
		return j.runShards(ctx, plans, log)
	}
	return j.runFolder(ctx, plans, log)
}

// runFolder measures what is of one folder: everything, or one shard.
func (j *Job) runFolder(ctx context.Context, plans []plan, log io.Writer) (*Outcome, error) {
	f, err := j.openFolder(log)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	defer f.close()
	if err := j.callRanks(ctx); err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	results := evaluation.NewResults(f.before, f.sink())
	var timings []evaluation.Timing
	var models []string
	tasks := listing.Map(plans, func(p plan) string { return p.name })
	for _, s := range j.Models {
		var more []evaluation.Timing
		var name string
		if name, more, err = j.measureModel(ctx, s, plans, results, f, log); err != nil {
			break
		}
		models, timings = append(models, name), append(timings, more...)
	}
	out, sumErr := sumUp(results.Predictions(), timings, models, tasks)
	out.Prompts, out.Caches, out.Saved = results.Saved()
	out.nameDevices(func(model string) string { return j.devices[model] })
	if err == nil {
		err = sumErr
	}
	switch {
	case err != nil || len(out.Rows) > 0 || j.shards > 0:
	case out.Samples > 0:
		err = fmt.Errorf("eval: none of %d samples could be measured: %s", out.Samples, out.First)
	default:
		err = fmt.Errorf("eval: no sample: tasks %s have none", strings.Join(tasks, ", "))
	}
	if err == nil {
		err = results.Flush()
	}
	if err != nil {
		return out, f.stopped(err)
	}
	return out, f.finishRun(out.Rows, timings, models, tasks)
}

// growToFolder makes the job one of all that the run in its folder has been begun with, where it goes on with one: policies,
// budgets, adapters and drafts that it names beside those are added, and measured for the samples that
// there are, too.
func (j *Job) growToFolder() error {
	if !j.Resume || j.Out == "" || objectstore.IsURL(j.Out) || j.Shards > 0 || j.Shard != "" {
		return nil
	}
	f := &folder{path: j.Out}
	raw, err := regularfile.Read(f.file(ConfigFile), yamlconfig.MaxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if damage, err := f.readLines(); err != nil || damage == nil && !slices.ContainsFunc(f.before, (*evaluation.Prediction).Measured) {
		return err // it is begun anew
	}
	began := new(Job)
	if err := yamlconfig.Decode(f.file(ConfigFile), raw, nil, began); err != nil {
		return err
	}
	before, asked := strings.Join(began.Policies, ","), strings.Join(j.Policies, ",")
	policies, err := engine.Union(before, asked)
	if err != nil {
		return err
	}
	var added []string // in words
	if more := strings.TrimPrefix(policies, before); more != "" {
		added = append(added, "policies "+strings.TrimPrefix(more, ","))
	}
	for _, b := range j.Budgets {
		if !slices.Contains(began.Budgets, b) {
			added = append(added, "budget "+b.String())
		}
	}
	if len(j.Models) == 0 {
		j.Models = []Subject{{}}
	}
	name := func(s Subject) string { return s.Model }
	if was, is := listing.Map(began.Models, name), listing.Map(j.Models, name); !slices.Equal(was, is) {
		return fmt.Errorf("%s: the run was begun with models %q, want them and not %q; evict report joins runs of other models", f.file(ConfigFile), was, is)
	}
	for i, was := range began.Models {
		is := &j.Models[i]
		if is.Pattern != "" && is.Pattern != was.Pattern {
			return fmt.Errorf("%s: the run was begun with pattern %q, want it and not %q", f.file(ConfigFile), was.Pattern, is.Pattern)
		}
		is.Pattern = was.Pattern
		is.Adapters, is.Drafts = listing.Union(was.Adapters, is.Adapters...), listing.Union(was.Drafts, is.Drafts...)
	}
	if j.Policies = (Names{policies}); len(added) == 0 {
		j.Policies = began.Policies
	}
	j.Budgets, j.began, j.added = listing.Union(began.Budgets, j.Budgets...), began, added
	return nil
}

// nameDevices says in every row what its model computed on.
func (o *Outcome) nameDevices(of func(model string) string) {
	for i := range o.Rows {
		o.Rows[i].Device = of(o.Rows[i].Model)
	}
}

// sumUp makes the rows of predictions, which it sorts.
func sumUp(all []*evaluation.Prediction, timings []evaluation.Timing, models, tasks []string) (*Outcome, error) {
	out := new(Outcome)
	evaluation.SortPredictions(all, models, tasks)
	for _, sample := range listing.Group(all, (*evaluation.Prediction).Key) {
		out.Samples++
		before := out.Failed
		for _, p := range sample {
			if p.Error == "" {
				continue
			}
			out.Failed++
			if out.Failed == before+1 {
				out.Failures = append(out.Failures, fmt.Errorf("task %s, sample %s: %s", p.Task, p.Sample, p.Error))
			}
		}
	}
	if len(out.Failures) > 0 {
		out.First = out.Failures[0].Error()
	}
	var err error
	out.Rows, err = evaluation.RowsOf(all, timings)
	return out, err
}

// openModel opens a model with its policies. A job's only model stays open from shard to shard.
func (j *Job) openModel(ctx context.Context, s Subject, plans []plan, log io.Writer) (*engine.Model, func(), error) {
	if j.model != nil {
		return j.model, func() {}, nil
	}
	o := j.options(s)
	o.Device = kernels.DeviceOfRank(j.Device, j.Ranks.Local(), j.Ranks.Size())
	o.Before = func(m *engine.Model) error { return j.checkMemory(ctx, m.Model, o, plans) }
	m, err := engine.Open(ctx, o, log)
	if err != nil {
		return nil, nil, err
	}
	if len(j.Models) == 1 {
		j.model = m
		return m, func() {}, nil
	}
	return m, func() { m.Close() }, nil
}

func (j *Job) closeModel() {
	if j.model != nil {
		j.model.Close()
		j.model = nil
	}
}

// measureModel runs all tasks with one model.
func (j *Job) measureModel(ctx context.Context, s Subject, plans []plan, results *evaluation.Results, f *folder, log io.Writer) (string, []evaluation.Timing, error) {
	m, done, err := j.openModel(ctx, s, plans, log)
	if err != nil {
		return "", nil, err
	}
	defer done()
	policies, leftOut, err := m.Policies(strings.Join(j.Policies, ","))
	if err != nil {
		return "", nil, fmt.Errorf("eval: %w", err)
	}
	for _, why := range leftOut {
		fmt.Fprintf(log, "left out: %s\n", why)
	}
	sampling, err := j.Sampling.Resolve(m.Model)
	if err != nil {
		return "", nil, fmt.Errorf("eval: %w", err)
	}
	sampling.Seed = j.Seed
	if err := errors.Join(j.checkSameJob(ctx, m, policies), f.describeRun(ctx, m, policies, log)); err != nil {
		return "", nil, fmt.Errorf("eval: %w", err)
	}
	if j.devices == nil {
		j.devices = make(map[string]string)
	}
	if j.devices[m.Name] = kernels.DeviceOf(m.Backend); f.about.model(m.Name) != nil {
		j.devices[m.Name] = f.about.model(m.Name).Device
	}
	var work []evaluation.Work
	var left []error // subtasks without data
	notices := &progress.Notices{W: log}
	total := 0
	for i := range plans {
		set := plans[i].setting
		set.Model, set.Notices = m.Model, notices
		samples, err := plans[i].selection.Open(ctx, &set)
		if errors.Is(err, evaluation.ErrNoData) && !plans[i].selection.Named {
			left = append(left, err)
			continue
		}
		if err != nil {
			return "", nil, fmt.Errorf("eval: %w", err)
		}
		if total += samples.Count; samples.Count == 0 {
			total = -1 << 40 // not known
		}
		work = append(work, evaluation.Work{Name: plans[i].name, Samples: samples})
	}
	switch {
	case len(work) == 0:
		return "", nil, fmt.Errorf("eval: %w", left[0])
	case len(left) > 0:
		fmt.Fprintf(log, "%d subtasks are left out, the first: %v\n", len(left), left[0])
	}
	finished := 0
	if results != nil { // rank 0 has them
		if finished, err = f.retain(results, m.Name, work, evaluation.CellsOf(policies, j.Budgets), log); err != nil {
			return "", nil, fmt.Errorf("eval: --resume: %w", err)
		}
	}
	if j.shards > 0 {
		total = (total + j.shards - 1) / j.shards
	}
	inspect := j.Inspect
	if f.path == "" && j.Ranks.Rank() == 0 { // which has told the others
		inspect = 0
	}
	bar := progress.New(log, "prompts", int64(max(0, total)))
	if finished > 0 {
		bar.Skip(int64(finished))
	}
	bar.Add(0) // on a terminal at once: the first one may take long
	err = evaluation.Run(ctx, m.Model, work, evaluation.Options{
		Policies: policies, Budgets: j.Budgets, Sampling: sampling, Agreement: evaluation.Agreements(j.Agreement),
		Batch: j.Batch, Concurrency: j.Concurrent, Strict: j.Strict, Inspect: inspect, OnKept: f.keepSample, OnSample: func() { bar.Add(1) },
		Shard: j.shard, Shards: j.shards, Ranks: j.Ranks,
	}, results)
	bar.Done()
	var timings []evaluation.Timing
	if err == nil && j.Times != string(evaluation.TimesNone) && j.shard == 0 && j.Ranks.Rank() == 0 { // the first shard's are everyone's
		timings, err = j.time(ctx, m, work, policies, log)
	}
	if err == nil { // no rank goes on while times are taken
		_, err = collective.GatherBytes(ctx, j.Ranks, nil)
	}
	return m.Name, timings, err
}

// time measures every task's first prompt, and tells before how long that takes.
func (j *Job) time(ctx context.Context, m *engine.Model, work []evaluation.Work, policies []engine.Policy, log io.Writer) ([]evaluation.Timing, error) {
	cells := len(evaluation.CellsOf(policies, j.Budgets))
	bar := progress.New(log, "timings", int64(len(work)*cells))
	defer bar.Done()
	bar.Add(0)
	var out []evaluation.Timing
	for i, w := range work {
		o := evaluation.UsualTimes(evaluation.Times(j.Times), i, len(work))
		if i == 0 {
			o.Begin = func(estimate time.Duration) {
				fmt.Fprintf(log, "times of %s at every budget, on the first prompt of %s: about %v\n", listing.Count(len(policies), "policy"), listing.Count(len(work), "task"), (time.Duration(len(work)) * estimate).Round(time.Second))
			}
		}
		done := 0
		o.OnCell = func(c evaluation.Cell) {
			bar.SetText(strings.TrimSpace(fmt.Sprint(w.Name, " ", c.Title(), " ", c.BudgetName())))
			bar.Add(1)
			done++
		}
		for item := range w.Samples.Each {
			s, err := item.Make(ctx)
			if err != nil || len(s.Turns) == 0 {
				if ctx.Err() != nil {
					return nil, context.Cause(ctx)
				}
				continue
			}
			ids, _, err := s.Turns[0].Prompt(ctx, nil)
			if err != nil || len(ids) == 0 {
				continue
			}
			more, err := evaluation.Time(ctx, m.Model, w.Name, ids, policies, j.Budgets, o)
			if err != nil {
				return nil, fmt.Errorf("eval: times of task %s: %w", w.Name, err)
			}
			out = append(out, more...)
			break
		}
		bar.Add(int64(cells - done)) // none of a task without a prompt that fits
	}
	return out, nil
}

// checkMemory is an error where the prompts, whose length is known beforehand, cannot fit.
func (j *Job) checkMemory(ctx context.Context, m *model.Model, o *engine.Options, plans []plan) error {
	tokens, most := 0, 0
	for _, p := range plans {
		tokens = max(tokens, p.setting.Tokens, p.setting.MaxPrompt)
		most = max(most, p.setting.MaxNew)
	}
	if tokens == 0 {
		return nil
	}
	return o.CheckMemory(ctx, m, j.footprint(tokens, max(most, 64)))
}

// footprint is what a prompt of so many tokens is measured with at most.
func (j *Job) footprint(tokens, maxNew int) eviction.FootprintOptions {
	budget := 0
	for _, b := range j.Budgets {
		budget = max(budget, b.Of(tokens))
	}
	return eviction.FootprintOptions{Tokens: tokens, Budget: budget, MaxNew: maxNew, Study: true}
}

// stopped says how a run that did not come to its end goes on.
func (f *folder) stopped(err error) error {
	if f.path != "" && f.partial == nil && len(f.before) == 0 {
		if errors.Is(err, context.Canceled) {
			err = fmt.Errorf("stopped before a sample was measured: %w", err)
		}
		return err
	}
	if !errors.Is(err, context.Canceled) {
		if f.path != "" && errors.As(err, new(*collective.Failure)) {
			err = fmt.Errorf("what was measured is in %s, and the same command with %s goes on: %w", f.path, f.again, err)
		}
		return err
	}
	if f.path == "" {
		return fmt.Errorf("what was measured is all that there is, and a run with --out goes on with --resume: %w", err)
	}
	return signals.Resumable(fmt.Errorf("stopped; what was measured is in %s, and the same command with %s goes on: %w", f.path, f.again, err))
}
