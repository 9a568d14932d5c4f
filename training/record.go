package training

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/atomicfile"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/jobs"
	"glimpse/training/tbevents"
)

// Recorder writes down what a run does while it goes: a bar or log lines, a JSONL file,
// TensorBoard events and curves.
type Recorder struct {
	bar    *progress.Bar
	log    io.Writer
	dir    string // of events and curves; "" for none
	lines  *os.File
	events *tbevents.Writer
	steps  []StepResult

	adapters []AdapterConfig
}

// CheckStepLog is an error where a file is not the log of a run.
func CheckStepLog(path string) error {
	info, err := os.Stat(path)
	switch {
	case err == nil && info.IsDir():
		return fmt.Errorf("--log: %s: a folder, want a file", path)
	case errors.Is(err, os.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("--log: %w", err)
	}
	defer f.Close()
	var first StepResult
	err = json.NewDecoder(io.LimitReader(f, maxLogLine)).Decode(&first)
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // of a run that was killed in its first step
		return nil
	case err != nil || first.Step < 1 || len(first.Adapters) == 0:
		return fmt.Errorf("--log: %s does not begin as the log of a run, with a step: want that of the run that goes on, or a new file", path)
	}
	return nil
}

// maxLogLine bounds what is read of a file that may be no log.
const maxLogLine = 1 << 20

// NewRecorder starts the record of a run, or goes on with that of the
// steps done. steps is its JSONL file, dir the folder of events and curves; "" is none.
func NewRecorder(log io.Writer, steps, dir string, c *Config, done int) (*Recorder, error) {
	r := &Recorder{log: log, dir: dir, adapters: c.Adapters, bar: progress.New(log, "steps", int64(c.Steps))}
	r.bar.Skip(int64(done))
	if steps != "" {
		// A line at a time and not atomically: what a killed run leaves is the record of
		// the steps that it did.
		var err error
		if !readAgain(steps) {
			r.lines, err = os.OpenFile(steps, os.O_WRONLY|os.O_APPEND, 0)
		} else if r.steps, r.lines, err = repairSteps(steps, done); err == nil {
			if lost := missingSteps(r.steps, done); lost != nil {
				fmt.Fprintf(log, "%s lacks the steps %s, which the checkpoint has done: they were recorded elsewhere, or lost when the machine went down\n", steps, listing.Plain(lost))
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if r.dir != "" {
		start := 0
		if done > 0 {
			start = done + 1
		}
		var err error
		if r.events, err = tbevents.Create(r.dir, int64(start)); err != nil {
			r.Close()
			return nil, err
		}
	}
	return r, nil
}

// repairSteps cuts a log down to the steps done, which a run that goes on does not do
// again, and returns them.
func repairSteps(path string, done int) (steps []StepResult, log *os.File, err error) {
	last := 0
	log, err = jobs.ReopenLines(path, func(line []byte) (bool, error) {
		var step StepResult
		if json.Unmarshal(line, &step) != nil || step.Step <= last || step.Step > done {
			return false, nil // what the checkpoint does not know of
		}
		last = step.Step
		steps = append(steps, step)
		return true, nil
	})
	return steps, log, err
}

// readAgain tells that what is written to a log can be read, which of a pipe and a terminal it cannot.
func readAgain(path string) bool {
	info, err := os.Stat(path)
	return err != nil || info.Mode().IsRegular()
}

// missingSteps are those from the first to the last one done that a log lacks, as "7" and "9 to 12".
func missingSteps(steps []StepResult, done int) (gaps []string) {
	next := 1
	gap := func(before int) {
		switch {
		case next == before-1:
			gaps = append(gaps, fmt.Sprint(next))
		case next < before:
			gaps = append(gaps, fmt.Sprintf("%d to %d", next, before-1))
		}
	}
	for _, s := range steps {
		gap(s.Step)
		next = s.Step + 1
	}
	gap(done + 1)
	return gaps
}

// Sync makes the steps so far durable, so that no checkpoint knows of more than the log.
func (r *Recorder) Sync() error {
	if r.lines == nil || !readAgain(r.lines.Name()) {
		return nil
	}
	return r.lines.Sync()
}

// Step records one step.
func (r *Recorder) Step(step StepResult) error {
	var text []string
	for _, a := range step.Adapters {
		switch {
		case a.Skipped:
			text = append(text, a.Name+" skipped")
		default:
			text = append(text, fmt.Sprintf("%s loss %.4g, gradient norm %.3g, learning rate %.3g", a.Name, a.Loss, a.GradNorm, a.LearningRate))
		}
	}
	r.bar.SetText(strings.Join(text, "  "))
	r.bar.Add(1)
	for _, n := range step.NonFinite {
		fmt.Fprintf(r.log, "step %d: %v: step skipped\n", step.Step, n)
	}
	if step.Validation != nil {
		fmt.Fprintf(r.log, "validation after step %d (%.1f s)\n", step.Step, step.Validation.Seconds)
		if err := step.Validation.WriteTable(r.log); err != nil {
			return err
		}
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
		return r.Draw()
	}
	return nil
}

// Draw writes the curves of all steps so far.
func (r *Recorder) Draw() error {
	if r.dir == "" || len(r.steps) == 0 {
		return nil
	}
	return atomicfile.Write(filepath.Join(r.dir, CurvesName), func(w io.Writer) error { return drawCurves(w, r.adapters, r.steps) })
}

// Done ends the bar and draws the curves of all steps.
func (r *Recorder) Done() error {
	r.bar.Done()
	return r.Draw()
}

// Close ends the files.
func (r *Recorder) Close() error {
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
