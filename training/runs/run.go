package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"glimpse/internal/atomicfile"
	"glimpse/internal/bytesize"
	"glimpse/internal/collective"
	"glimpse/internal/collector"
	"glimpse/internal/hostmemory"
	"glimpse/internal/outputs"
	"glimpse/internal/progress"
	"glimpse/internal/yamlconfig"
	"glimpse/kernels"
	"glimpse/labels"
	"glimpse/model"
	"glimpse/model/hub"
	"glimpse/training"
)

// Run trains, reports and exports. What a person should see goes to log, what the run came
// to to out. Of several ranks, rank 0 alone writes.
func (s *Spec) Run(ctx context.Context, log, out io.Writer) error {
	return s.onRanks(ctx, log, func(ctx context.Context) error { return s.runRanks(ctx, log, out) })
}

// runRanks is Run on the ranks that there are.
func (s *Spec) runRanks(ctx context.Context, log, out io.Writer) error {
	notices := log
	if !s.Writes() {
		log, out = io.Discard, io.Discard
	}
	log = progress.NewOutput(log) // uploads tell of themselves while the bar is drawn
	if err := model.CheckCacheDType(s.CacheDType); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	for _, a := range s.Adapters {
		_, err := labels.Labels.Lookup(cmp.Or(a.Label, labels.Default)) // which says what data are
		if err := cmp.Or(training.CheckName(a.name()), err); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	s.runFiles()
	named := []outputs.Named{{Flag: "--run", Path: s.RunDir}, {Flag: "--checkpoint", Path: s.Checkpoint}, {Flag: "--log", Path: s.Log}}
	for _, dir := range s.Outs {
		named = append(named, outputs.Named{Flag: "--out", Path: dir})
	}
	if err := outputs.Distinct(named...); err != nil {
		return fmt.Errorf("train: %w", err)
	}
	if s.Writes() {
		if err := s.checkTargets(ctx, s.Resume); err != nil {
			return err
		}
	}
	if s.RunDir != "" && s.Writes() {
		if err := training.CheckRunFolder(s.RunDir); err != nil {
			return fmt.Errorf("train: %w", err)
		}
	}
	unlock, err := s.claimLog()
	if err != nil {
		return fmt.Errorf("train: %w", err)
	}
	defer unlock()
	collector.Bound(training.LeastGarbage)
	m, err := hub.Open(ctx, s.Model, s.S3, log, model.Options{Device: kernels.DeviceOfRank(s.Device, s.ranks.Local(), s.ranks.Size()), CacheDType: s.CacheDType, BeforeWeights: s.beforeWeights})
	if err != nil {
		return err
	}
	defer m.Close()
	m.WarnOfRoundedKeys(log)
	if m.CacheDType().Grouped() { // whose pairs differ when a sample is read again
		return fmt.Errorf("train: cache dtype: got %q, want auto, float32, bf16 or blocks: groups are for running alone", s.CacheDType)
	}
	hash, err := m.SHA256(ctx)
	if err != nil {
		return err
	}
	source, held, contents, err := s.sources(ctx, m, log)
	if err != nil {
		return err
	}
	header, err := s.resolveSettings(m, source)
	if err == nil {
		err = errors.Join(s.readHeads(ctx, m, &contents), s.scorers(&contents))
	}
	if err != nil {
		return err
	}
	if err := s.checkMemory(ctx, m, source); err != nil {
		return err
	}
	t, err := training.New(m, s.Train.Config, source)
	if err != nil {
		return err
	}
	defer t.Close()
	s.Train.Config = t.Config // with what the trainer has filled in
	for i := range s.Adapters {
		s.Adapters[i].Loss = t.Config.Adapters[i].Loss
	}
	t.Invocation, t.Contents, t.AcceptChangedData = header, contents, s.AcceptChangedData
	t.Notice = func(text string) { fmt.Fprintln(log, text) }
	if !s.Writes() {
		t.Notice = func(text string) { fmt.Fprintf(notices, "rank %d: %s\n", s.ranks.Rank(), text) }
	}
	t.Working = func(units string, n int) (one, done func()) {
		bar := progress.New(log, units, int64(n), progress.After(2*time.Second))
		return func() { bar.Add(1) }, bar.Done
	}
	t.Stopping = func() bool { return ctx.Err() != nil }
	k, err := s.startRun(ctx, t, hash, log)
	if err != nil {
		return err
	}
	defer func() { k.waitUploads(ctx) }()
	if err := t.Join(context.WithoutCancel(ctx), s.ranks, hash); err != nil {
		return err
	}
	return k.interrupted(t, s.finishRun(ctx, m, t, source, held, k, hash, log, out))
}

// beforeWeights is what is known of a run without the weights.
func (s *Spec) beforeWeights(m *model.Model) (err error) {
	if len(s.Data) == 0 {
		_, err = s.fresh(m, "train")
	}
	return cmp.Or(err, m.CheckWeights())
}

// checkMemory is an error where the run cannot fit the device.
func (s *Spec) checkMemory(ctx context.Context, m *model.Model, source training.Source) error {
	c := s.Train.Config
	if err := c.Validate(m); err != nil {
		return nil // which the trainer will tell
	}
	o := training.PlanOptions{Prompt: s.Tokens, Response: c.MaxResponse, Generated: true}
	switch p := source.(type) {
	case *training.Pairs:
		o = training.PlanOptions{}
		o.Prompt, o.Response = p.Longest()
		o.Response = min(o.Response, c.MaxResponse)
	case *training.Texts:
		o = training.PlanOptions{Prompt: s.Longest, Response: 1}
	}
	o.Ranks = s.ranks.Size()
	return training.CheckMemory(ctx, m, c, o)
}

// finishRun is the part of runRanks that can be taken up again: the steps and what follows.
func (s *Spec) finishRun(ctx context.Context, m *model.Model, t *training.Trainer, source, held training.Source, k *checkpointer, hash string, log, out io.Writer) error {
	if held != nil && s.Train.Validation.Samples > 0 {
		if err := t.HoldOut(ctx, held); err != nil {
			return err
		}
	}
	if err := s.train(ctx, t, k, log); err != nil {
		return err
	}
	metrics, err := s.finalQuality(ctx, t, log)
	if err != nil {
		return err
	}
	s.metrics, s.sizes = metrics, nil
	if !s.Writes() {
		return nil
	}
	for i, a := range s.Train.Config.Adapters {
		stored, err := t.Export(i, hash, metrics[i])
		if err != nil {
			return err
		}
		s.sizes = append(s.sizes, parameters(t.Adapter(i)))
		what := fmt.Sprintf("%s adapter of %s, %d rows, %s trained parameters", a.Kind, m.Name, a.Rows, grouped(parameters(t.Adapter(i))))
		if err := s.deliver(ctx, i, stored, log, out, what); err != nil {
			return err
		}
	}
	switch err := s.timing(ctx, m, t, source, log, out); {
	case errors.Is(err, context.Canceled): // nothing is missing of the training
		fmt.Fprintln(log, "the timing was stopped; training is complete, and its adapters are written")
	case err != nil:
		return err
	}
	if peak := hostmemory.Peak(); peak > 0 {
		cache := m.Config.CacheBytes(longest(source), m.CacheDType())
		fmt.Fprintf(out, "peak memory %s; weights %s, one prompt's cache %s\n", bytesize.FormatMemory(peak), bytesize.FormatMemory(m.WeightBytes()), bytesize.FormatMemory(cache))
	}
	return nil
}

// ownFolder tells that a folder is below the run's.
func (s *Spec) ownFolder(dir string) bool {
	rel, err := filepath.Rel(s.RunDir, dir)
	return s.RunDir != "" && err == nil && filepath.IsLocal(rel)
}

// longest is the longest prompt of the first samples.
func longest(source training.Source) int {
	n := 0
	for i := range 16 {
		if x, err := source.At(i); err == nil {
			n = max(n, len(x.Prompt))
		}
	}
	return n
}

// grouped is a whole number with a comma between thousands.
func grouped(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func parameters(a model.RowsAdapter) int {
	n := 0
	for _, p := range a.Parameters() {
		n += p.Tensor.Len()
	}
	return n
}

// runFiles names the files that a run's folder has, where others are not asked for.
func (s *Spec) runFiles() {
	if s.RunDir != "" && s.Checkpoint == "" {
		s.Checkpoint = filepath.Join(s.RunDir, training.StateName)
	}
	if s.RunDir != "" && s.Log == "" {
		s.Log = filepath.Join(s.RunDir, training.StepsName)
	}
}

// startRun makes the run's folder and goes on from the checkpoint where that is asked
// for.
func (s *Spec) startRun(ctx context.Context, t *training.Trainer, hash string, log io.Writer) (_ *checkpointer, err error) {
	if s.RunDir != "" && s.Replace && !s.Resume && s.Writes() {
		if err := training.RemoveRecords(s.RunDir); err != nil {
			return nil, fmt.Errorf("train: replace run: %w", err)
		}
	}
	k, err := s.openCheckpoint(ctx, t, hash, log)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			k.waitUploads(ctx)
		}
	}()
	if done := t.Done() == s.Train.Steps || t.Stopped(); s.Resume && !done && s.Writes() {
		if err := s.checkTargets(ctx, false); err != nil {
			return nil, err
		}
	}
	if s.RunDir == "" || !s.Writes() {
		return k, nil
	}
	if err := os.MkdirAll(s.RunDir, 0o755); err != nil {
		return nil, fmt.Errorf("train: run folder: %w", err)
	}
	for _, dir := range s.Outs {
		if s.ownFolder(dir) {
			if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
				return nil, fmt.Errorf("train: adapter folder: %w", err)
			}
		}
	}
	text, err := yamlconfig.Encode(s)
	if err != nil {
		return nil, err
	}
	return k, atomicfile.WriteFile(filepath.Join(s.RunDir, training.ConfigName), text)
}

// train runs all steps with progress, log and checkpoints.
func (s *Spec) train(ctx context.Context, t *training.Trainer, k *checkpointer, log io.Writer) (err error) {
	lines, dir := s.Log, s.RunDir
	if !s.Writes() {
		lines, dir = "", ""
	}
	r, err := training.NewRecorder(log, lines, dir, &s.Train.Config, t.Done())
	if err != nil {
		return err
	}
	defer r.Close()
	save := func() error {
		if err := r.Sync(); err != nil {
			return err
		}
		return k.save(t)
	}
	steps, done := k.stepsContext(ctx)
	err = t.Run(steps, func(step training.StepResult) error {
		if err := r.Step(step); err != nil {
			return err
		}
		if k.due(step, s.Train.Steps) {
			if err := save(); err != nil {
				return err
			}
		}
		if t.Interrupted() {
			return context.Canceled
		}
		return nil
	})
	done()
	if t.Met() {
		defer func() { err = collective.Together(err) }()
	}
	if drawn := r.Done(); err == nil {
		err = drawn
	}
	switch {
	case errors.Is(err, training.ErrNonFinite) && t.Done() > 0:
		if k.path == "" {
			k.path = s.Outs[0] + ".state"
		}
		if err := save(); err != nil {
			return err
		}
		return fmt.Errorf("%w; the state after step %d is in %s", err, t.Done(), k.path)
	case errors.Is(err, context.Canceled) && s.Checkpoint == "":
		return fmt.Errorf("stopped before the last step, no adapter was written: %w", err)
	case errors.Is(err, context.Canceled):
		if err := save(); err != nil {
			return err
		}
		return k.stopped(t, err)
	case err != nil:
		return err
	}
	if t.Skipped() > 0 {
		fmt.Fprintf(log, "%d samples had an empty response and were left out\n", t.Skipped())
	}
	if t.TooLong() > 0 {
		fmt.Fprintf(log, "%d samples had prompts behind which the model has no room for an answer, and were left out\n", t.TooLong())
	}
	if t.Done() < s.Train.Steps {
		fmt.Fprintf(log, "stopped after step %d: no adapter got better in %d validations\n", t.Done(), s.Train.Validation.Patience)
	}
	return r.Close()
}

// finalQuality puts the best parameters in place, where the run looked for them, and
// measures the adapters on the held-out samples.
func (s *Spec) finalQuality(ctx context.Context, t *training.Trainer, log io.Writer) ([]map[string]float64, error) {
	metrics := make([]map[string]float64, len(s.Adapters))
	if !t.Validated() {
		return metrics, nil
	}
	if s.Train.Validation.Every > 0 {
		t.RestoreBest()
	}
	v, err := t.Validate(ctx)
	if err != nil {
		return nil, err
	}
	for i := range v.Adapters {
		metrics[i] = v.Metrics(i)
		if best := t.Best(i); best.Step > 0 {
			metrics[i]["best_step"] = float64(best.Step)
		}
	}
	return metrics, v.WriteTable(log)
}

// timing measures a step against the prefill, on the first sample, for as long as people wait. It
// says before what it does.
func (s *Spec) timing(ctx context.Context, m *model.Model, t *training.Trainer, source training.Source, log, out io.Writer) error {
	first, err := source.At(0)
	if err != nil {
		return err
	}
	response := first.Response
	if len(response) == 0 { // of any tokens: only their number matters here
		response = first.Prompt[:min(16, len(first.Prompt))]
	}
	response = response[:min(len(response), s.Train.MaxResponse, m.Config.MaxPositions-len(first.Prompt))]
	repeats := 5
	if m.Network.Parameters() < 20_000_000 { // milliseconds each: a few say little
		repeats = min(max(s.Train.Steps, 5), 41) // they take no longer than the run
	}
	fmt.Fprintf(log, "timing a step of %d prompt and %d response tokens: up to %v, or one step\n", len(first.Prompt), len(response), training.Enough)
	begun := time.Now()
	for i, a := range s.Train.Config.Adapters {
		if left := len(s.Train.Config.Adapters) - i; i > 0 && time.Since(begun) > training.Enough {
			fmt.Fprintf(log, "%d more adapters are not timed\n", left)
			break
		}
		measured, err := t.Measure(ctx, i, first.Prompt, response, repeats)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s: %v\n", a.Name, measured)
		if shown, ok := log.(*progress.Output); ok {
			shown.Detail("%s: %s", a.Name, measured.Detail())
		}
	}
	return nil
}

// claimLog makes sure that the log may be written, by this run alone: one that exists
// must be asked to be replaced, or be that of the run that goes on.
func (s *Spec) claimLog() (unlock func(), err error) {
	if s.Log == "" || !s.Writes() {
		return func() {}, nil
	}
	if s.RunDir != "" && s.Log == filepath.Join(s.RunDir, training.StepsName) {
		if err := os.MkdirAll(s.RunDir, 0o755); err != nil {
			return nil, fmt.Errorf("run folder: %w", err)
		}
	}
	if unlock, err = outputs.Lock(s.Log); err != nil {
		return nil, fmt.Errorf("--log: %w", err)
	}
	if s.Resume {
		err = training.CheckStepLog(s.Log)
	} else {
		files := outputs.Files{Replace: s.Replace}
		files.Input(s.Data...)
		files.Input(s.HeldOut...)
		err = files.Check("--log", s.Log)
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}
