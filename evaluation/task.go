package evaluation

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/internal/registry"
	"glimpse/internal/suggest"
	"glimpse/model"
)

// Task is a benchmark: where its samples come from and how answers to them are scored.
// A new one is a file in evaluation/tasks that registers itself in Tasks.
type Task struct {
	Name   string
	Doc    string // one line: what is asked and what answers it
	Source string // authors, arXiv number, section

	// Data says what --data holds for the task: "a folder with the official jsonl files".
	// It is "" for tasks that make their own prompts.
	Data      string
	NeedsData bool
	// NamedByData has results reported by the name of the data, since it is the user's own.
	NamedByData bool

	// Subtasks are the parts that are reported by themselves, as TASK/SUBTASK; nil for a
	// task that is one. Defaults are those that the task's name alone stands for; nil for all.
	Subtasks, Defaults []string
	// Contexts: it asks several questions about a context, which may be evicted before any is known (Setting.ContextFirst).
	Contexts bool
	// Bare has subtasks reported, and asked for, by their own names.
	Bare bool

	Options []Option

	// Judge is set where answers are rated by a language model, which Open does not do.
	Judge *Judged

	// Open begins the samples of one subtask, "" where there are none. Errors are those
	// that concern all samples: an unknown option, data that is missing. ErrNoData is of a
	// subtask whose part of the data is; one that was not asked for by name is then left out.
	Open func(ctx context.Context, s *Setting, subtask string) (*Samples, error)
}

// Option is a setting of one task, given as TASK.NAME=VALUE.
type Option struct{ Name, Default, Doc string }

// Judged is how a language model rates the answers of a task, after the run.
type Judged struct {
	Metric string  // mean over the turns' ratings, as a share of Scale
	Scale  float64 // the best rating
	// Prompts returns what a judge is asked of the answers to a sample: one prompt for each
	// turn.
	Prompts func(ctx context.Context, s *Setting, subtask string) (func(sample string, answers []string) ([]JudgePrompt, error), error)
}

// JudgePrompt is what a judge is asked.
type JudgePrompt struct{ System, User string }

// ErrNoData says that the data has nothing of a subtask.
var ErrNoData = errors.New("no data")

// Tasks holds every task by name.
var Tasks = registry.Registry[Task]{Noun: "task"}

// Samples are the samples of one subtask, always in the same order.
type Samples struct {
	// Metric names the score that tables and plots show; it is one of those that Sample.Score
	// gives, or Agreement.
	Metric string
	// Count is how many there are, 0 where that is known only at the end.
	Count int
	// Each goes over them. Making one may take long and is left to who runs it.
	Each iter.Seq[Item]
	// Alone: they are measured one after the other and after all others, since what they
	// measure is time.
	Alone bool
}

// Item is a sample before it is made. Make may be called on another goroutine. Its error is
// that of this sample alone.
type Item struct {
	ID   string // unique in its subtask, and names the sample for people
	Make func(ctx context.Context) (*Sample, error)
}

// Sample is a prompt, or several turns, and how answers are scored.
type Sample struct {
	Turns []Turn
	// Context are the tokens before any question. They are evicted alone. Each turn is asked of a copy of what is left, and
	// nothing that follows is evicted. Nil: the first turn's prompt is evicted with its question.
	Context []int32
	// Groups are what results are broken down by: {"length", "4k"}, {"depth", "0.5"}.
	Groups []Group
	// Evidence are the positions of the first prompt's tokens that the answers are read from, each
	// once; nil where the task does not know them.
	Evidence []int32
	// References are the answers that are accepted, or one text for each of several turns; nil where there are
	// none. They are taken down beside the answers.
	References []string
	// Score rates one answer for each turn, in [0, 1] unless the metric's name says
	// otherwise. It is nil where there is no reference.
	Score func(ctx context.Context, answers []Output) (Scores, error)
	// Measure takes the place of answering, for tasks that measure something else. It
	// returns the measures of every cell, in the order of b.Cells, on a prompt of so many Tokens.
	Measure func(ctx context.Context, b *Bench) ([]Measures, error)
	Tokens  int
}

// Group is one value of something that samples differ in.
type Group struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Scores are ratings by the name of their metric.
type Scores map[string]float64

// Measures are what was found out about one cell on one sample, by name.
type Measures map[string]float64

// Turn is one question.
type Turn struct {
	// Prompt is the whole prompt of the first turn, and what is appended after the answers
	// so far in later ones, or, where whole, the whole conversation once more, another way.
	// Setting.Encode and model.EncodeTurn make it of text.
	Prompt func(ctx context.Context, answers []Output) (ids []int32, whole bool, err error)
	MaxNew int      // most tokens of the answer
	Stop   []string // texts that end an answer, which they are not part of
	// SkipLeading: those that an answer begins with do not end it, and stay in it.
	SkipLeading bool
}

// Fixed is the prompt of a turn that does not depend on answers.
func Fixed(ids []int32) func(context.Context, []Output) ([]int32, bool, error) {
	return func(context.Context, []Output) ([]int32, bool, error) { return ids, false, nil }
}

// Output is what a model said.
type Output struct {
	Text  string // "" for a model without a tokenizer
	IDs   []int32
	Ended bool // with an end token or a stop text, not at the limit
}

// Setting is what tasks are opened with.
type Setting struct {
	Model *model.Model
	S3    objectstore.Settings // of data in a bucket

	Data    string   // file, folder or s3://…; "" for none
	Fields  []string // where its rows have what, as datasets.ParseFields reads it
	Metrics []string // that answers are scored with, where the task leaves the choice

	// Samples bounds the samples of a subtask; 0: all, of tasks that make their own prompts
	// DefaultSamples. Tasks that vary lengths or depths make so many of each. Tasks see to it
	// themselves, with Limit or Take.
	Samples int
	Tokens  int // length of prompts that are made; 0: the task's own
	Seed    uint64
	Split   datasets.Split

	MaxNew    int // tokens of an answer; 0: the task's own
	MaxPrompt int // tokens of a prompt, longer ones are truncated; 0: what the model takes
	Truncate  Truncation
	Raw       bool // prompts do not go into the chat template
	// ContextFirst: the context of several questions is evicted before any question is known. Each question is asked of a copy of it.
	ContextFirst bool

	Options map[string]string // of the task, complete

	Notices *progress.Notices // what tasks say of the data; nil: nothing
}

// DefaultSamples is how many samples a task that makes its own prompts makes of each subtask.
const DefaultSamples = 32

// Limit is how many samples a task makes.
func (s *Setting) Limit() int {
	if s.Samples > 0 {
		return s.Samples
	}
	return DefaultSamples
}

// Take ends a sequence after as many as Setting.Samples allows.
func (s *Setting) Take(each iter.Seq[Item]) iter.Seq[Item] {
	if s.Samples == 0 {
		return each
	}
	return func(yield func(Item) bool) {
		left := s.Samples
		for item := range each {
			if !yield(item) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

// Selection is one subtask that was asked for.
type Selection struct {
	Task    *Task
	Subtask string // "" where the task is one
	Named   bool   // asked for by its own name, not as one of several
}

// Name is what results are reported by.
func (s Selection) Name() string {
	switch {
	case s.Subtask == "":
		return s.Task.Name
	case s.Task.Bare:
		return s.Subtask
	}
	return s.Task.Name + "/" + s.Subtask
}

// Open begins the samples. Errors name the subtask.
func (s Selection) Open(ctx context.Context, set *Setting) (*Samples, error) {
	samples, err := s.Task.Open(ctx, set, s.Subtask)
	if err != nil {
		return nil, fmt.Errorf("task %s: %w", s.Name(), err)
	}
	return samples, nil
}

// ParseTasks reads a list of tasks: TASK, TASK/SUBTASK or, of tasks that have it so, SUBTASK,
// with commas between. A task without a subtask stands for its default ones, TASK/all for
// all of them. The order is that of the list; nothing may be in it twice.
func ParseTasks(list string) ([]Selection, error) {
	var out []Selection
	for name := range strings.SplitSeq(list, ",") {
		more, err := parseTask(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		for _, s := range more {
			if slices.ContainsFunc(out, func(other Selection) bool { return other.Name() == s.Name() }) {
				return nil, fmt.Errorf("task list %q: got %s twice, want every task once", list, s.Name())
			}
			out = append(out, s)
		}
	}
	return out, nil
}

func parseTask(name string) ([]Selection, error) {
	first, sub, cut := strings.Cut(name, "/")
	t, err := Tasks.Lookup(first)
	if err != nil {
		for _, t := range Tasks.All() {
			if t.Bare && slices.Contains(t.Subtasks, name) {
				return []Selection{{&t, name, true}}, nil
			}
		}
		return nil, suggest.Unknown("task", name, TaskNames())
	}
	names := t.Subtasks
	switch {
	case len(t.Subtasks) == 0 && !cut:
		return []Selection{{&t, "", true}}, nil
	case len(t.Subtasks) == 0:
		return nil, fmt.Errorf("task %q: %s has no subtasks", name, first)
	case !cut && t.Defaults != nil:
		names = t.Defaults
	case cut && sub != "all":
		if !slices.Contains(t.Subtasks, sub) {
			return nil, fmt.Errorf("task %q: unknown subtask, want one of: all, %s%s", name, strings.Join(t.Subtasks, ", "), suggest.DidYouMean(sub, t.Subtasks))
		}
		names = []string{sub}
	}
	return listing.Map(names, func(n string) Selection { return Selection{&t, n, cut && sub != "all"} }), nil
}

// TaskNames are all names that ParseTasks takes without a slash.
func TaskNames() []string {
	var out []string
	for name, t := range Tasks.All() {
		out = append(out, name)
		if t.Bare {
			out = append(out, t.Subtasks...)
		}
	}
	return out
}

// ContextTasks are the names of the tasks that may evict a context before any question (Task.Contexts).
func ContextTasks() (names []string) {
	for name, t := range Tasks.All() {
		if t.Contexts {
			names = append(names, name)
		}
	}
	return names
}

// SetOptions gives every option of the task its value: the default, or that of the
// assignments NAME=VALUE.
func (t *Task) SetOptions(assignments []string) (map[string]string, error) {
	out := make(map[string]string, len(t.Options))
	var names []string
	for _, o := range t.Options {
		out[o.Name] = o.Default
		names = append(names, o.Name)
	}
	for _, a := range assignments {
		name, value, ok := strings.Cut(a, "=")
		if !ok {
			return nil, fmt.Errorf("task %s: option %q: want NAME=VALUE", t.Name, a)
		}
		if !slices.Contains(names, name) {
			if len(names) == 0 {
				return nil, fmt.Errorf("task %s: unknown option %q, it has none", t.Name, name)
			}
			return nil, fmt.Errorf("task %s: %w", t.Name, suggest.Unknown("option", name, names))
		}
		out[name] = value
	}
	return out, nil
}
