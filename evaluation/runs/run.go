package runs

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"glimpse/checkpoints/objectstore"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/collective"
	"glimpse/internal/listing"
	"glimpse/internal/outputs"
	"glimpse/internal/progress"
	"glimpse/internal/signals"
	"glimpse/internal/yamlconfig"
	"glimpse/jobs"
	"glimpse/kernels"
	"glimpse/model"
)

// Outcome is what a run has measured, whether it came to its end or not.
type Outcome struct {
	Rows    []evaluation.Row
	Failed  int // predictions that are errors
	Samples int
	// Failures are the errors of the samples that failed, or under a policy, one of each.
	Failures []error

	Prompts, Caches int // caches that were evicted of so many prefills
	Saved           time.Duration
}

// Run measures everything, or the shards that are free. What was measured comes back with an
// error, too.
func (j *Job) Run(ctx context.Context, log io.Writer) (*Outcome, error) {
	if err := j.growToFolder(ctx); err != nil {
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
	f, err := j.openFolder(ctx, log)
	if err != nil {
		return nil, fmt.Errorf("eval: %w", err)
	}
	defer f.close()
	return j.runFolder(ctx, plans, f, log)
}

// runFolder measures what the folder lacks, with the other processes of the run.
func (j *Job) runFolder(ctx context.Context, plans []plan, f *folder, log io.Writer) (*Outcome, error) {
	results := evaluation.NewResults(f.old.Predictions, f.path != "")
	var timings []evaluation.Timing
	var models []string
	tasks := listing.Map(plans, func(p plan) string { return p.name })
	whole, err := true, error(nil)
	for _, s := range j.Models {
		var done measured
		if done, err = j.measureModel(ctx, s, plans, results, f, log); err != nil {
			break
		}
		models, timings, whole = append(models, done.model), append(timings, done.timings...), whole && done.whole
	}
	if err == nil && !whole {
		fmt.Fprintln(log, "other processes have the rest of the samples, or have finished the run; who measures the last one makes the results")
		return nil, nil
	}
	out, sumErr := sumUp(results.Predictions(), timings, models, tasks)
	if err == nil {
		err = sumErr
	}
	switch {
	case err != nil || len(out.Rows) > 0:
	case out.Samples > 0:
		err = fmt.Errorf("eval: none of %d samples could be measured: %w", out.Samples, out.Failures[0])
	default:
		err = fmt.Errorf("eval: no sample: tasks %s have none", strings.Join(tasks, ", "))
	}
	if err == nil && f.path != "" {
		if out, err = f.finish(ctx, models, tasks); err == nil && out == nil {
			fmt.Fprintln(log, "another process has made the results of the run")
			return nil, nil
		}
	}
	if out != nil {
		out.Prompts, out.Caches, out.Saved = results.Saved()
		f.about.nameDevices(out.Rows)
	}
	if err != nil {
		return out, f.stopped(err)
	}
	return out, nil
}

// growToFolder makes the job one of all that the run in its folder has been begun with, where it goes on with one: policies,
// budgets, adapters and drafts that it names beside those are added, and measured for the samples that
// there are, too.
func (j *Job) growToFolder(ctx context.Context) error {
	if !j.Resume || j.Out == "" || objectstore.IsURL(j.Out) || j.Shards > 0 || j.Shard != "" {
		return nil
	}
	f, old := &folder{path: j.Out}, new(Stored)
	if err := f.open(ctx, j.S3); err != nil {
		return err
	}
	raw, err := f.readConfig(ctx)
	if err != nil || raw == nil {
		return err
	}
	if err := old.read(ctx, f, 0, 0); err != nil || old.Damage == "" && !slices.ContainsFunc(old.Predictions, (*evaluation.Prediction).Measured) {
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
	j.Models = slices.Clone(j.Models) // which a copy of the job may have, too
	for i, was := range began.Models {
		is := &j.Models[i]
		if is.Pattern != "" && is.Pattern != was.Pattern {
			return fmt.Errorf("%s: the run was begun with pattern %q, want it and not %q", f.file(ConfigFile), was.Pattern, is.Pattern)
		}
		if is.Heads != "" && is.Heads != was.Heads {
			return fmt.Errorf("%s: the run was begun with heads %q, want it and not %q", f.file(ConfigFile), was.Heads, is.Heads)
		}
		is.Pattern, is.Heads = was.Pattern, was.Heads
		is.Adapters, is.Drafts = listing.Union(was.Adapters, is.Adapters...), listing.Union(was.Drafts, is.Drafts...)
	}
	if j.Policies = (Names{policies}); len(added) == 0 {
		j.Policies = began.Policies
	}
	j.Budgets, j.began, j.added = listing.Union(began.Budgets, j.Budgets...), began, added
	return nil
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
	var err error
	out.Rows, err = evaluation.RowsOf(all, timings)
	return out, err
}

// measured is what measureModel has come to.
type measured struct {
	model   string
	timings []evaluation.Timing
	whole   bool // nothing is left to other processes
}

// measureModel runs all tasks with one model.
func (j *Job) measureModel(ctx context.Context, s Subject, plans []plan, results *evaluation.Results, f *folder, log io.Writer) (out measured, err error) {
	open := j.options(s)
	local, processes := collective.Beside(os.Getenv)
	open.Device = kernels.DeviceOfRank(j.Device, local, processes)
	open.Before = func(m *engine.Model) error { return j.checkMemory(ctx, m.Model, open, plans) }
	m, err := engine.Open(ctx, open, log)
	if err != nil {
		return out, err
	}
	defer m.Close()
	out.model = m.Name
	policies, leftOut, err := m.Policies(strings.Join(j.Policies, ","))
	if err == nil {
		err = checkNames(policies)
	}
	if err != nil {
		return out, fmt.Errorf("eval: %w", err)
	}
	for _, why := range leftOut {
		fmt.Fprintf(log, "left out: %s\n", why)
	}
	sampling, err := j.Sampling.Resolve(m.Model)
	if err != nil {
		return out, fmt.Errorf("eval: %w", err)
	}
	sampling.Seed = j.Seed
	if err := f.describeRun(ctx, m, policies, log); err != nil {
		return out, fmt.Errorf("eval: %w", err)
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
			return out, fmt.Errorf("eval: %w", err)
		}
		if total += samples.Count; samples.Count == 0 {
			total = -1 << 40 // not known
		}
		work = append(work, evaluation.Work{Name: plans[i].name, Samples: samples})
	}
	switch {
	case len(work) == 0:
		return out, fmt.Errorf("eval: %w", left[0])
	case len(left) > 0:
		fmt.Fprintf(log, "%d subtasks are left out, the first: %v\n", len(left), left[0])
	}
	only, shards, err := outputs.ShardOf(j.Shard, j.Shards)
	if err != nil {
		return out, fmt.Errorf("eval: %w", err)
	}
	o := evaluation.Options{
		Policies: policies, Budgets: j.Budgets, Sampling: sampling, Agreement: evaluation.Agreements(j.Agreement),
		Batch: j.Batch, Concurrency: j.Concurrent, Strict: j.Strict, Work: f.work, Free: shards > 0,
	}
	if f.path != "" {
		o.Inspect = j.Inspect
	}
	if only >= 0 {
		o.Shard, o.Shards, total = only, shards, (total+shards-1)/shards
	}
	finished, again := results.Retain(m.Name, work, evaluation.CellsOf(policies, j.Budgets))
	if len(again) > 0 {
		fmt.Fprintf(log, "%s: %d samples, the first %s: their lines are not those of the policies and budgets in their order: measured again\n", f.path, len(again), again[0])
	}
	bar := progress.New(log, "prompts", int64(max(0, total)))
	if finished > 0 {
		bar.Skip(int64(finished))
	}
	bar.Add(0) // on a terminal at once: the first one may take long
	o.OnSample = func() { bar.Add(1) }
	out.whole, err = evaluation.Run(ctx, m.Model, work, o, results)
	bar.Done()
	if err == nil && j.Times != string(evaluation.TimesNone) && only <= 0 { // the first shard's are everyone's
		err = j.shareTimes(ctx, m, work, policies, f, o.Free, &out, log)
	}
	return out, err
}

// checkNames refuses a policy that no report could name.
func checkNames(policies []engine.Policy) error {
	for _, p := range policies {
		if !evaluation.IsName(p.Title()) {
			return fmt.Errorf("policy %s: want %s", p.Title(), evaluation.WantName)
		}
	}
	return nil
}

// timesPrefix begins the names of results that are the times of a model.
const timesPrefix = "times-"

// shareTimes has one of the processes take the times of a model.
func (j *Job) shareTimes(ctx context.Context, m *engine.Model, work []evaluation.Work, policies []engine.Policy, f *folder, free bool, out *measured, log io.Writer) error {
	s := jobs.Share[string]{
		Work: f.work, Units: slices.Values([]string{m.Name}), Free: free,
		Name: func(model string) string {
			return fmt.Sprintf("%s%x", timesPrefix, sha256.Sum256([]byte(model)))[:len(timesPrefix)+16]
		},
		Accept: func(_ string, result []byte) (bool, error) { return json.Unmarshal(result, &out.timings) == nil, nil },
	}
	defer s.Close()
	_, claim, more, err := s.Next(ctx, true)
	if out.whole = out.whole && s.Left() == 0 && !s.Over(); err != nil || !more {
		return err
	}
	if out.timings, err = j.time(ctx, m, work, policies, log); err != nil || claim == nil {
		return err
	}
	text, err := json.Marshal(out.timings)
	if err != nil {
		return err
	}
	return claim.Finish(ctx, text)
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
	switch {
	case !errors.Is(err, context.Canceled):
		return err
	case f.path == "":
		return fmt.Errorf("what was measured is all that there is, and a run with --out goes on with --resume: %w", err)
	case !f.begun && len(f.old.Predictions) == 0:
		return fmt.Errorf("stopped before a sample was measured: %w", err)
	}
	again := "--resume"
	if f.whose.Files.Any() {
		again += " --replace" // replaces the files of earlier measurements
	}
	return signals.Resumable(fmt.Errorf("stopped; what was measured is in %s, and the same command with %s goes on: %w", f.path, again, err))
}
