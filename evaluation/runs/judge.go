package runs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"sync"

	"glimpse/checkpoints/objectstore"
	"glimpse/evaluation"
	"glimpse/evaluation/judging"
	"glimpse/internal/progress"
	"glimpse/jobs"

	"golang.org/x/sync/errgroup"
)

// JudgementsFile is what judges have said of a run, a line for each prompt.
const JudgementsFile = "judgements.jsonl"

// Judging is how the answers of a finished run are judged.
type Judging struct {
	Judge       judging.Judge
	Concurrency int // prompts that are out at once; 0 is 4
	// Data replaces the paths of the judged tasks in the run's configuration, where
	// the files lie elsewhere now.
	Data string
}

// judgement is a line of JudgementsFile.
type judgement struct {
	Judge  string   `json:"judge"`
	Prompt string   `json:"prompt_sha256"` // of system and user, so that equal answers are judged once
	Task   string   `json:"task"`          // of the first answer that it was asked for
	Sample string   `json:"sample"`
	Turn   int      `json:"turn"`
	Rating *float64 `json:"rating"` // nil where the judge gave none
	Text   string   `json:"text"`
}

// asked is a prompt on its way.
type asked struct {
	evaluation.JudgePrompt
	judgement
}

// opinion is a prediction with what is asked of it.
type opinion struct {
	prediction *evaluation.Prediction
	judged     *evaluation.Judged
	hashes     []string // of the prompts, by turn
}

const usualJudging, maxJudging = 4, 1024

// JudgeRun lets a language model rate the answers of a finished run's tasks that are judged.
// What it says is taken down prompt by prompt, and a prompt that it was asked before is not
// asked again: a run that ended early goes on where it stopped. When all are there, the
// ratings become the scores in the run's predictions and metrics.
func JudgeRun(ctx context.Context, dir string, o Judging, log io.Writer) (*Outcome, error) {
	if o.Concurrency < 0 || o.Concurrency > maxJudging {
		return nil, fmt.Errorf("judge: concurrency: got %d, want 0 to %d", o.Concurrency, maxJudging)
	}
	fail := func(err error) (*Outcome, error) { return nil, fmt.Errorf("judge: %s: %w", dir, err) }
	if err := o.Judge.Validate(); err != nil {
		return nil, err
	}
	f := &folder{path: dir}
	if err := f.open(ctx, objectstore.Settings{}); err != nil {
		return fail(err)
	}
	if _, err := os.Stat(f.file(MetricsFile)); err != nil {
		return fail(fmt.Errorf("want a finished run with %s: %w", MetricsFile, err))
	}
	leave, err := f.work.Enter(ctx, "", func(alive bool) error {
		if alive {
			return errors.New("another run is writing it")
		}
		return nil
	})
	if err != nil {
		return fail(err)
	}
	defer leave()
	found := new(Stored)
	if err := errors.Join(found.read(ctx, f, math.MaxInt, 0), found.readAbout(ctx, f, 0)); err != nil {
		return fail(err)
	}
	if found.Damage != "" || !found.Finished {
		return fail(fmt.Errorf("want a finished run: %s", cmp.Or(found.Damage, "this one is being extended, which --resume ends")))
	}
	all := found.Predictions
	opinions, prompts, err := o.prompts(ctx, f, all)
	if err != nil {
		return fail(err)
	}
	var told sync.Map // each text once: many prompts wait for one server
	o.Judge.Tell = func(text string) {
		if _, before := told.LoadOrStore(text, true); !before {
			fmt.Fprintln(log, "judge: "+text)
		}
	}
	said, err := o.askJudge(ctx, f, prompts, log)
	if err != nil {
		return fail(err)
	}
	none := 0
	for _, op := range opinions {
		none += op.rate(said)
	}
	if none > 0 {
		fmt.Fprintf(log, "%d ratings are missing: the judge gave none from 0 to 10\n", none)
	}
	models, tasks := namesIn(all)
	out, err := sumUp(all, found.Timings, models, tasks)
	if err != nil {
		return fail(err)
	}
	found.Environment.nameDevices(out.Rows)
	return out, f.results(out.Rows, all)
}

// prompts makes what is to be asked: every different prompt once, in the order of the
// predictions.
func (o *Judging) prompts(ctx context.Context, f *folder, all []*evaluation.Prediction) (opinions []opinion, prompts []asked, err error) {
	j := Default()
	if err := j.Read(f.file(ConfigFile), nil, func() error { return nil }); err != nil {
		return nil, nil, err
	}
	plans, err := j.checkedPlans()
	if err != nil {
		return nil, nil, err
	}
	seen := make(map[string]bool)
	for _, p := range plans {
		judged := p.selection.Task.Judge
		if judged == nil {
			continue
		}
		if o.Data != "" {
			p.setting.Data = o.Data
		}
		of, err := judged.Prompts(ctx, &p.setting, p.selection.Subtask)
		if err != nil {
			return nil, nil, fmt.Errorf("task %s: %w", p.name, err)
		}
		for _, prediction := range all {
			if prediction.Task != p.name || prediction.Error != "" || prediction.Policy == "" {
				continue
			}
			list, err := of(prediction.Sample, prediction.Answers)
			if err != nil {
				return nil, nil, fmt.Errorf("task %s: %w", p.name, err)
			}
			op := opinion{prediction: prediction, judged: judged}
			for turn, prompt := range list {
				sum := sha256.Sum256([]byte(prompt.System + "\x00" + prompt.User))
				hash := hex.EncodeToString(sum[:])
				op.hashes = append(op.hashes, hash)
				if !seen[hash] {
					seen[hash] = true
					prompts = append(prompts, asked{prompt, judgement{Judge: o.Judge.Model, Prompt: hash, Task: p.name, Sample: prediction.Sample, Turn: turn + 1}})
				}
			}
			opinions = append(opinions, op)
		}
	}
	if len(opinions) == 0 {
		return nil, nil, fmt.Errorf("the run has no answers that are judged; tasks whose answers are: %s", strings.Join(judgedTasks(), ", "))
	}
	return opinions, prompts, nil
}

func judgedTasks() (names []string) {
	for name, t := range evaluation.Tasks.All() {
		if t.Judge != nil {
			names = append(names, name)
		}
	}
	return names
}

// askJudge returns the judgements by prompt, with earlier attempts'.
func (o *Judging) askJudge(ctx context.Context, f *folder, prompts []asked, log io.Writer) (map[string]judgement, error) {
	said := make(map[string]judgement)
	out, err := jobs.ReopenLines(f.file(JudgementsFile), func(line []byte) (bool, error) {
		var j judgement
		if err := json.Unmarshal(line, &j); err != nil {
			return false, fmt.Errorf("%s: %w", JudgementsFile, err)
		}
		if j.Judge == o.Judge.Model {
			said[j.Prompt] = j
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	defer out.Close()
	lines := json.NewEncoder(out)
	bar := progress.New(log, "judgements", int64(len(prompts)))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var mu sync.Mutex
	var failed int
	var first error
	var workers errgroup.Group
	workers.SetLimit(cmp.Or(o.Concurrency, usualJudging))
	for _, a := range prompts {
		mu.Lock()
		_, done := said[a.Prompt]
		mu.Unlock()
		if done {
			bar.Skip(1)
			continue
		}
		if ctx.Err() != nil {
			break
		}
		workers.Go(func() error {
			text, err := o.Judge.Ask(ctx, a.System, a.User)
			mu.Lock()
			defer mu.Unlock()
			defer bar.Add(1)
			switch {
			case err == nil:
				a.Text = text
				if rating, ok := judging.Rating(text); ok {
					a.Rating = &rating
				}
				if err := lines.Encode(a.judgement); err != nil {
					cancel(err)
				}
				said[a.Prompt] = a.judgement
			case errors.Is(err, judging.ErrRefused):
				cancel(err)
			case ctx.Err() == nil:
				failed++
				if first == nil {
					first = fmt.Errorf("sample %s, turn %d: %w", a.Sample, a.Turn, err)
				}
			}
			return nil
		})
	}
	workers.Wait()
	bar.Done()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%w; %d judgements are in %s, and the same command goes on", context.Cause(ctx), len(said), JudgementsFile)
	case failed > 0:
		return nil, fmt.Errorf("%d of %d judgements could not be had; the same command asks for them again; the first: %w", failed, len(prompts), first)
	}
	return said, out.Sync()
}

// rate puts the ratings into a prediction, and returns how many are missing.
func (op opinion) rate(said map[string]judgement) (missing int) {
	p := op.prediction
	p.Metric = op.judged.Metric
	delete(p.Measures, op.judged.Metric) // of another judge
	sum := 0.0
	for i, hash := range op.hashes {
		name := fmt.Sprintf("%s_turn_%d", op.judged.Metric, i+1)
		delete(p.Measures, name)
		rating := said[hash].Rating
		if rating == nil {
			missing++
			continue
		}
		if p.Measures == nil {
			p.Measures = make(evaluation.Measures)
		}
		p.Measures[name] = *rating / op.judged.Scale
		sum += p.Measures[name]
	}
	if missing == 0 {
		p.Measures[op.judged.Metric] = sum / float64(len(op.hashes))
	}
	return missing
}
