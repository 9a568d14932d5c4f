package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
)

// extensions of the files of benchmarks, in the order in which they are looked for.
var extensions = []string{".jsonl", ".json", ".parquet"}

// findFile returns the file of a subtask: --data itself where that is a file, or the file
// of one of the names in that folder, with any of the extensions. Names may have folders.
func findFile(ctx context.Context, s *evaluation.Setting, names ...string) (string, error) {
	data, err := localData(ctx, s)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(data)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		base := strings.TrimSuffix(filepath.Base(data), filepath.Ext(data))
		if !slices.ContainsFunc(names, func(name string) bool { return filepath.Base(name) == base }) {
			return "", fmt.Errorf("%s: the file's name is not %s: %w", s.Data, strings.Join(names, " or "), evaluation.ErrNoData)
		}
		return data, nil
	}
	for _, name := range names {
		for _, ext := range extensions {
			path := filepath.Join(data, filepath.FromSlash(name)+ext)
			switch _, err := os.Stat(path); {
			case err == nil:
				return path, nil
			case !errors.Is(err, fs.ErrNotExist):
				return "", err
			}
		}
	}
	return "", fmt.Errorf("%s has no %s (%s): %w", s.Data, strings.Join(names, " or "), strings.Join(extensions, ", "), evaluation.ErrNoData)
}

// fileTask is a task that asks the rows of a file, in one turn each.
type fileTask struct {
	*evaluation.Setting
	rater
	metric string // that is shown
	path   string
	most   int                       // tokens of an answer
	id     func(datasets.Row) string // "": that of the row's place; nil: of all rows
}

// openFile is the task of a file of one of the names. Its answers are scored by metrics:
// the first is shown. They are own tokens long where the user says nothing.
func openFile(ctx context.Context, s *evaluation.Setting, metrics []string, own int, names ...string) (*fileTask, error) {
	t := &fileTask{Setting: s, metric: metrics[0], most: maxNew(s, own)}
	var err error
	if t.rater, err = newRater(metrics...); err != nil {
		return nil, err
	}
	t.path, err = findFile(ctx, s, names...)
	return t, err
}

// samples makes samples of the rows. A row that cannot be read, or made into a sample, is an error of
// that sample.
func (t *fileTask) samples(sample func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error)) (*evaluation.Samples, error) {
	return t.samplesAfter(0, sample)
}

// samplesAfter is samples without so many of the first rows.
func (t *fileTask) samplesAfter(skipped int, sample func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error)) (*evaluation.Samples, error) {
	most := t.Samples
	if most > 0 {
		most += skipped
	}
	count, err := countRows(t.path, most)
	if err != nil {
		return nil, err
	}
	items := rowItems(t.path, nil, t.id, sample)
	rest := func(yield func(evaluation.Item) bool) {
		n := 0
		for item := range items {
			if n++; n > skipped && !yield(item) {
				return
			}
		}
	}
	return &evaluation.Samples{Metric: t.metric, Count: max(0, count-skipped), Each: t.Take(rest)}, nil
}

// turn is a sample of one prompt.
func (t *fileTask) turn(ids []int32, stop []string, ref scoring.Reference) *evaluation.Sample {
	return oneTurn(ids, t.most, stop, ref.Answers, t.against(ref))
}

// countRows returns how many rows a file has, at most so many if that is not 0, and 0 of a pipe.
func countRows(path string, most int) (int, error) {
	r, err := datasets.OpenRows(path, datasets.FormatAuto)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err := r.Count(int64(most))
	return int(max(0, n)), err
}

// fileRows goes over the rows of a file. With an error comes the row that it is of, or none
// where it is the file's.
func fileRows(path string) iter.Seq2[datasets.Row, error] {
	return readEach(func() (*datasets.RowReader, error) { return datasets.OpenRows(path, datasets.FormatAuto) })
}

// readEach goes over what a reader reads, whose error where it cannot be opened is the only one then.
func readEach[T any, R interface {
	Next() (T, error)
	Close() error
}](open func() (R, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		r, err := open()
		if err != nil {
			yield(*new(T), err)
			return
		}
		defer r.Close()
		for {
			if x, err := r.Next(); err == io.EOF || !yield(x, err) {
				return
			}
		}
	}
}

// rowItems are the samples of the rows that are wanted; nil: of all. Id is fileTask.id.
func rowItems(path string, wanted func(datasets.Row) bool, id func(datasets.Row) string, sample func(ctx context.Context, row datasets.Row) (*evaluation.Sample, error)) iter.Seq[evaluation.Item] {
	return func(yield func(evaluation.Item) bool) {
		for row, err := range fileRows(path) {
			if err == nil && wanted != nil && !wanted(row) {
				continue
			}
			name := rowID(path, row)
			if id != nil && err == nil {
				name = cmp.Or(id(row), name)
			}
			item := evaluation.Item{ID: name, Make: func(ctx context.Context) (*evaluation.Sample, error) {
				if err != nil {
					return nil, err
				}
				out, err := sample(ctx, row)
				if err != nil {
					return nil, row.Fail(err)
				}
				return out, nil
			}}
			if !yield(item) {
				return
			}
		}
	}
}

// rowID names a row, or the file where the whole of it is meant.
func rowID(path string, row datasets.Row) string {
	if row.File == "" {
		return filepath.Base(path)
	}
	return row.ID()
}

// rater scores answers with metrics by name.
type rater struct {
	metrics map[string]scoring.Metric
	// edit is what the benchmark makes of an answer before it scores it; nil: nothing.
	edit func(string) string
}

// newRater looks metrics up and asks whether they have what they need.
func newRater(names ...string) (rater, error) {
	r := rater{metrics: make(map[string]scoring.Metric, len(names))}
	for _, name := range names {
		m, err := scoring.Metrics.Lookup(name)
		if err != nil {
			return r, err
		}
		if m.Prepare != nil {
			if err := m.Prepare(); err != nil {
				return r, fmt.Errorf("metric %s: %w", name, err)
			}
		}
		r.metrics[name] = m
	}
	return r, nil
}

// scores are the scores of a text.
func (r rater) scores(text string, ref scoring.Reference) (evaluation.Scores, error) {
	if r.edit != nil {
		text = r.edit(text)
	}
	out := make(evaluation.Scores, len(r.metrics))
	for name, metric := range r.metrics {
		score, err := metric.Score(text, ref)
		if err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		out[name] = score
	}
	return out, nil
}

// against is Sample.Score of a sample of one turn.
func (r rater) against(ref scoring.Reference) func(context.Context, []evaluation.Output) (evaluation.Scores, error) {
	return func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
		return r.scores(answers[0].Text, ref)
	}
}

// oneTurn is a sample of one prompt with the references of its answer.
func oneTurn(prompt []int32, maxNew int, stop, references []string, score func(context.Context, []evaluation.Output) (evaluation.Scores, error)) *evaluation.Sample {
	return &evaluation.Sample{
		Turns: []evaluation.Turn{{Prompt: evaluation.Fixed(prompt), MaxNew: maxNew, Stop: stop}},
		Score: score, References: references,
	}
}

// maxNew is the limit of an answer: the user's, or the benchmark's own.
func maxNew(s *evaluation.Setting, own int) int {
	return cmp.Or(s.MaxNew, own)
}

// fillTemplate puts values in the place of {name} in a template. Braces in values are text.
func fillTemplate(template string, values map[string]string) string {
	var pairs []string
	for name, value := range values {
		pairs = append(pairs, "{"+name+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(template)
}

// reading reads fields of a row that have to be there. Its first error stays, and nothing is read after it.
type reading struct {
	datasets.Row
	err error
}

func (r *reading) readText(name string) (text string) {
	if r.err == nil {
		text, r.err = r.Text(name)
	}
	return text
}

func (r *reading) readTexts(name string) (texts []string) {
	if r.err == nil {
		texts, r.err = r.Texts(name)
	}
	return texts
}

// decode is datasets.Row.Decode.
func (r *reading) decode(name, want string, v any) {
	if r.err == nil {
		r.err = r.Decode(name, want, v)
	}
}

// texts are fields by their names.
func (r *reading) texts(names ...string) map[string]string {
	out := make(map[string]string, len(names))
	for _, name := range names {
		out[name] = r.readText(name)
	}
	return out
}

// texts reads fields that have to be there.
func texts(row datasets.Row, names ...string) (map[string]string, error) {
	r := reading{Row: row}
	return r.texts(names...), r.err
}
