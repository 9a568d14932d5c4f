package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"glimpse/internal/atomicfile"
	"glimpse/internal/cli"
	"glimpse/internal/figures"
	"glimpse/internal/progress"
	"glimpse/internal/tbevents"
	"glimpse/training"
)

// records is what a run tells while it goes: a bar or a line per step, a JSONL file,
// TensorBoard events and curves.
type records struct {
	bar    *progress.Bar
	log    io.Writer
	dir    string // of events and curves; "" for none
	lines  *os.File
	events *tbevents.Writer
	steps  []training.StepResult
}

// claimLog makes sure that the log may be written, by this run alone: one that exists
// must be asked to be replaced, or be that of the run that goes on.
func (s *spec) claimLog() (unlock func(), err error) {
	if s.Log == "" {
		return func() {}, nil
	}
	if s.RunDir != "" && s.Log == filepath.Join(s.RunDir, stepsName) {
		if err := os.MkdirAll(s.RunDir, 0o755); err != nil {
			return nil, fmt.Errorf("run folder: %w", err)
		}
	}
	if unlock, err = cli.LockOutput(s.Log); err != nil {
		return nil, fmt.Errorf("--log: %w", err)
	}
	if s.resume {
		err = checkStepLog(s.Log)
	} else {
		files := cli.Outputs{Replace: s.Replace}
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

// checkStepLog is an error where a file is not the log of a run from its first step on.
func checkStepLog(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return err
	}
	var first training.StepResult
	err = json.NewDecoder(io.LimitReader(f, maxLogLine)).Decode(&first)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // of a run that was killed in its first step
		return nil
	case err != nil || first.Step != 1 || len(first.Adapters) == 0:
		return fmt.Errorf("--log: %s does not begin as the log of a run, with its step 1: want that of the run that goes on, or a new file", path)
	}
	return nil
}

// maxLogLine bounds what is read of a file that may be no log.
const maxLogLine = 1 << 20

// openRecords starts them, or goes on with those of the steps done.
func (s *spec) openRecords(t *training.Trainer, log io.Writer) (*records, error) {
	r := &records{log: log, dir: s.RunDir, bar: progress.New(log, "steps", int64(s.Train.Steps), progress.LogEvery(0))}
	r.bar.Skip(int64(t.Done()))
	if s.Log != "" {
		// A line at a time and not atomically: what a killed run leaves is the record of
		// the steps that it did.
		var err error
		if r.steps, err = keepSteps(s.Log, t.Done()); err != nil {
			return nil, err
		}
		if r.lines, err = os.OpenFile(s.Log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644); err != nil {
			return nil, err
		}
	}
	if r.dir != "" {
		start := 0
		if t.Done() > 0 {
			start = t.Done() + 1
		}
		var err error
		if r.events, err = tbevents.Create(r.dir, int64(start)); err != nil {
			r.close()
			return nil, err
		}
	}
	return r, nil
}

// keepSteps cuts a log down to the steps done, which a run that goes on does not do
// again, and returns them.
func keepSteps(path string, done int) ([]training.StepResult, error) {
	var kept bytes.Buffer
	var steps []training.StepResult
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if done > 0 {
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, len(data)+1)
		for lines.Scan() {
			var step training.StepResult
			if json.Unmarshal(lines.Bytes(), &step) != nil || step.Step != len(steps)+1 || step.Step > done {
				break // a line cut short, or what the checkpoint does not know of
			}
			steps = append(steps, step)
			kept.Write(append(lines.Bytes(), '\n'))
		}
	}
	if bytes.Equal(kept.Bytes(), data) {
		return steps, nil
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return steps, nil // a pipe or terminal
	}
	return steps, atomicfile.WriteFile(path, kept.Bytes())
}

// step records one step.
func (r *records) step(step training.StepResult) error {
	var text []string
	for _, a := range step.Adapters {
		switch {
		case a.Skipped:
			text = append(text, a.Name+" skipped")
		default:
			text = append(text, fmt.Sprintf("%s loss %.4g |g| %.3g lr %.3g", a.Name, a.Loss, a.GradNorm, a.LearningRate))
		}
	}
	r.bar.Describe(strings.Join(text, "  "))
	r.bar.Add(1)
	for _, n := range step.NonFinite {
		fmt.Fprintf(r.log, "step %d: %v: step skipped\n", step.Step, n)
	}
	if step.Validation != nil {
		fmt.Fprintf(r.log, "validation after step %d (%.1f s)\n", step.Step, step.Validation.Seconds)
		writeQuality(r.log, step.Validation)
	}
	if r.lines != nil {
		if err := json.NewEncoder(r.lines).Encode(step); err != nil {
			return err
		}
	}
	if r.dir == "" {
		return nil
	}
	r.steps = append(r.steps, step)
	if err := r.events.Write(int64(step.Step), scalars(step)); err != nil {
		return err
	}
	if step.Validation != nil {
		return r.draw()
	}
	return nil
}

// writeQuality prints a validation as a table.
func writeQuality(w io.Writer, v *training.Validation) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, "%d held-out samples\tloss\t", v.Samples)
	for _, b := range v.Budgets {
		fmt.Fprintf(t, "hits@%d\trecall@%d\t", b, b)
	}
	fmt.Fprint(t, "τ\t\n")
	row := func(q training.Quality, loss string) {
		fmt.Fprintf(t, "%s\t%s\t", q.Name, loss)
		for i := range v.Budgets {
			fmt.Fprintf(t, "%s\t%s\t", percent(q.HitRate[i]), percent(q.Recall[i]))
		}
		best := ""
		if q.Best {
			best = "  best so far"
		}
		fmt.Fprintf(t, "%.3f\t%s\n", float64(q.Tau), best)
	}
	for _, q := range v.Adapters {
		row(q, fmt.Sprintf("%.4g", q.Loss))
	}
	row(v.SnapKV, "")
	t.Flush()
}

func percent(n training.Number) string {
	if n != n {
		return "–"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(n))
}

// scalars are a step's curves.
func scalars(step training.StepResult) []tbevents.Scalar {
	var out []tbevents.Scalar
	for _, a := range step.Adapters {
		if !a.Skipped {
			out = append(out, tbevents.Scalar{Tag: "loss/" + a.Name, Value: a.Loss}, tbevents.Scalar{Tag: "gradient_norm/" + a.Name, Value: a.GradNorm},
				tbevents.Scalar{Tag: "learning_rate/" + a.Name, Value: a.LearningRate})
		}
	}
	v := step.Validation
	if v == nil {
		return out
	}
	add := func(q training.Quality) {
		for i, b := range v.Budgets {
			if hits, recall := q.HitRate[i], q.Recall[i]; hits == hits {
				out = append(out, tbevents.Scalar{Tag: fmt.Sprintf("validation_hit_rate_%d/%s", b, q.Name), Value: float64(hits)},
					tbevents.Scalar{Tag: fmt.Sprintf("validation_recall_%d/%s", b, q.Name), Value: float64(recall)})
			}
		}
		if q.Tau == q.Tau {
			out = append(out, tbevents.Scalar{Tag: "validation_tau/" + q.Name, Value: float64(q.Tau)})
		}
	}
	for _, q := range v.Adapters {
		if finite(q.Loss) {
			out = append(out, tbevents.Scalar{Tag: "validation_loss/" + q.Name, Value: q.Loss})
		}
		add(q)
	}
	add(v.SnapKV)
	return out
}

// draw writes the curves of all steps so far.
func (r *records) draw() error {
	if r.dir == "" || len(r.steps) == 0 {
		return nil
	}
	return atomicfile.Write(filepath.Join(r.dir, curvesName), func(w io.Writer) error { return figures.WriteCurves(w, panels(r.steps)) })
}

func panels(steps []training.StepResult) []figures.Panel {
	loss := figures.Panel{Title: "loss (dashed: held-out samples)", Log: true}
	hits := figures.Panel{Title: "hit rate on held-out samples, smallest budget (dashed: SnapKV)"}
	norm, rate := figures.Panel{Title: "gradient norm", Log: true}, figures.Panel{Title: "learning rate", Log: true}
	for i, a := range steps[0].Adapters {
		line := func(value func(training.AdapterResult) float64) figures.Line {
			l := figures.Line{Name: a.Name, Color: i}
			for _, s := range steps {
				if !s.Adapters[i].Skipped {
					l.Steps, l.Values = append(l.Steps, float64(s.Step)), append(l.Values, value(s.Adapters[i]))
				}
			}
			return l
		}
		validation := func(value func(*training.Validation) float64) figures.Line {
			l := figures.Line{Name: a.Name, Color: i}
			for _, s := range steps {
				if s.Validation != nil {
					l.Steps, l.Values = append(l.Steps, float64(s.Step)), append(l.Values, value(s.Validation))
				}
			}
			return l
		}
		held := validation(func(v *training.Validation) float64 { return v.Adapters[i].Loss })
		held.Dashed, held.Name = true, a.Name+", held out"
		loss.Lines = append(loss.Lines, line(func(a training.AdapterResult) float64 { return a.Loss }), held)
		norm.Lines = append(norm.Lines, line(func(a training.AdapterResult) float64 { return a.GradNorm }))
		rate.Lines = append(rate.Lines, line(func(a training.AdapterResult) float64 { return a.LearningRate }))
		hits.Lines = append(hits.Lines, validation(func(v *training.Validation) float64 { return float64(v.Adapters[i].HitRate[0]) }))
		if i == len(steps[0].Adapters)-1 {
			snap := validation(func(v *training.Validation) float64 { return float64(v.SnapKV.HitRate[0]) })
			snap.Name, snap.Color, snap.Dashed = "SnapKV", 6, true
			hits.Lines = append(hits.Lines, snap)
		}
	}
	return []figures.Panel{loss, hits, norm, rate}
}

// close ends the files.
func (r *records) close() error {
	var errs []error
	if r.lines != nil {
		errs = append(errs, r.lines.Close())
		r.lines = nil
	}
	if r.events != nil {
		errs = append(errs, r.events.Close())
		r.events = nil
	}
	return errors.Join(errs...)
}
