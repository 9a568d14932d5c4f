package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/checkpoints/objectstore"
	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/model"
)

func init() {
	evaluation.Tasks.Add("data", evaluation.Task{
		Name:      "data",
		Doc:       "your own prompts; answers are scored against references where the rows have them, and otherwise compared with the full cache's",
		Source:    "the user",
		Data:      "JSONL, JSON, CSV, TSV, Parquet or texts: a file, a folder or s3://BUCKET/NAME",
		NeedsData: true, NamedByData: true,
		Options: []evaluation.Option{
			{Name: "format", Default: datasets.FormatAuto, Doc: "of the files: " + strings.Join(datasets.SourceFormats, ", ")},
			{Name: "group", Doc: "field whose values results are broken down by"},
		},
		Open: openData,
	})
}

const (
	dataMaxNew = 256
	dataPeek   = 64 // rows that are looked at for references
)

// Where the user names no metric, answers are scored by both of these. Tables show the first where most
// references are short, of at most shortReference characters: models answer in sentences, where F1
// counts every other word as wrong. Of longer ones a sentence says the same in other words.
const (
	shortMetric    = "substring_exact_match"
	longMetric     = "qa_f1"
	shortReference = 50
)

// localData is the path of the setting's data on the local disk.
func localData(ctx context.Context, s *evaluation.Setting) (string, error) {
	if s.Data == "" {
		return "", errors.New("no data, want --data")
	}
	return objectstore.LocalData(ctx, s.Data, s.S3, io.Discard)
}

// ownData is the task data at work.
type ownData struct {
	rater
	setting *evaluation.Setting
	path    string
	fields  datasets.Fields
	names   []string // of the metrics
}

func openData(ctx context.Context, s *evaluation.Setting, _ string) (*evaluation.Samples, error) {
	d := &ownData{setting: s, names: s.Metrics}
	if len(d.names) == 0 {
		d.names = []string{shortMetric, longMetric}
	}
	var err error
	if d.rater, err = newRater(d.names...); err != nil {
		return nil, err
	}
	if d.fields, err = datasets.ParseFields(s.Fields); err != nil {
		return nil, err
	}
	if d.path, err = localData(ctx, s); err != nil {
		return nil, err
	}
	metric, count, err := d.inspectRows()
	if err != nil {
		return nil, err
	}
	if len(s.Metrics) == 0 && metric != evaluation.Agreement {
		s.Notices.Say(fmt.Sprintf("%s: answers are scored by %s, which suits the length of the references; --metric chooses another", s.Data, metric))
	}
	return &evaluation.Samples{Metric: metric, Count: count, Each: s.Take(d.eachItem)}, nil
}

func (d *ownData) openRecords() (*datasets.RecordReader, error) {
	return datasets.OpenRecords(d.path, d.setting.Options["format"], d.fields)
}

// inspectRows finds what the first rows are scored by, and how many rows are measured, 0 where that is not known.
func (d *ownData) inspectRows() (metric string, count int, err error) {
	r, err := d.openRecords()
	if err != nil {
		return "", 0, err
	}
	defer r.Close()
	n, err := r.Count(int64(d.setting.Samples))
	if err != nil {
		n = 0 // the rows will tell
	}
	good, short, long, first := 0, 0, 0, error(nil)
	for range dataPeek {
		record, err := r.Next()
		if err == io.EOF {
			break
		}
		switch {
		case err != nil && first == nil:
			first = err
		case err != nil:
		case record.Unanswerable || len(record.References) > 0 && utf8.RuneCountInString(slices.MinFunc(record.References, shorter)) <= shortReference:
			short++
		case len(record.References) > 0:
			long++
		default:
			good++
		}
	}
	switch {
	case short+long > 0 && len(d.setting.Metrics) == 0 && long > short:
		return longMetric, max(0, int(n)), nil
	case short+long > 0:
		return d.names[0], max(0, int(n)), nil
	case good == 0 && first != nil: // a wrong field, most likely, rather than rows that are all bad
		return "", 0, fmt.Errorf("none of the first rows can be used; the first: %w", first)
	case len(d.setting.Metrics) > 0:
		return "", 0, fmt.Errorf("metrics %s, but none of the first %d rows of %s has a reference answer; --field answer=NAME says where it is", strings.Join(d.setting.Metrics, ", "), good, d.path)
	}
	return evaluation.Agreement, max(0, int(n)), nil
}

// shorter compares texts by their characters.
func shorter(a, b string) int {
	return cmp.Compare(utf8.RuneCountInString(a), utf8.RuneCountInString(b))
}

// eachItem goes over the rows. Those that cannot be read are samples that fail.
func (d *ownData) eachItem(yield func(evaluation.Item) bool) {
	seed, seen := maphash.MakeSeed(), make(map[uint64]bool) // of IDs: there may be many
	n := -1
	for record, err := range readEach(d.openRecords) {
		n++
		id := record.ID
		if id == "" { // of a file that cannot be read
			id = d.path
		}
		if seen[maphash.String(seed, id)] {
			id = fmt.Sprintf("%s@%d", id, n)
		}
		seen[maphash.String(seed, id)] = true
		item := evaluation.Item{ID: id, Make: func(ctx context.Context) (*evaluation.Sample, error) {
			sample, err := d.recordSample(ctx, &record)
			if err != nil {
				return nil, record.Row.Fail(err)
			}
			return sample, nil
		}}
		if err != nil {
			item.Make = failing(err)
		}
		if !yield(item) {
			return
		}
	}
}

func failing(err error) func(context.Context) (*evaluation.Sample, error) {
	return func(context.Context) (*evaluation.Sample, error) { return nil, err }
}

func (d *ownData) recordSample(ctx context.Context, r *datasets.Record) (*evaluation.Sample, error) {
	maxNew := maxNew(d.setting, dataMaxNew)
	ids, err := encodePrompt(ctx, d.setting, r.Prompt, maxNew)
	if err != nil {
		return nil, err
	}
	sample := &evaluation.Sample{Turns: []evaluation.Turn{{Prompt: evaluation.Fixed(ids), MaxNew: maxNew}}}
	if field := d.setting.Options["group"]; field != "" {
		value, err := r.Row.Text(field)
		if err != nil {
			return nil, err
		}
		sample.Groups = []evaluation.Group{{Key: field, Value: value}}
	}
	if len(r.References) == 0 && !r.Unanswerable {
		return sample, nil
	}
	ref := scoring.Reference{Answers: r.References}
	for name, list := range r.MetricOptions {
		switch name {
		case "wrong":
			ref.Wrong = list
		case "classes":
			ref.Classes = list
		default:
			return nil, fmt.Errorf("field %q: unknown option of a metric, want classes or wrong", "metric_options."+name)
		}
	}
	sample.References = r.References
	sample.Score = d.against(ref)
	if r.Unanswerable {
		sample.Score = func(_ context.Context, answers []evaluation.Output) (evaluation.Scores, error) {
			scores := make(evaluation.Scores, len(d.names))
			for _, name := range d.names {
				scores[name] = scoring.Unanswerable(answers[0].Text)
			}
			return scores, nil
		}
	}
	return sample, nil
}

// encodePrompt makes the tokens of a user's prompt.
func encodePrompt(ctx context.Context, s *evaluation.Setting, p datasets.Prompt, maxNew int) ([]int32, error) {
	prompt := evaluation.Prompt{Text: p.Text, IDs: p.IDs}
	switch p.Form {
	case datasets.FormIDs:
		if err := p.CheckIDs(s.Model.Config.Vocab); err != nil {
			return nil, err
		}
	case datasets.FormMessages:
		var err error
		if prompt.Messages, prompt.Tools, err = model.ChatOf(p); err != nil {
			return nil, err
		}
		// What one user says is a prompt for a model without chat templates, too.
		if len(p.Messages) == 1 && len(p.Tools) == 0 && p.Messages[0].Role == "user" && (s.Raw || !s.Model.HasChatTemplate()) {
			prompt = evaluation.Prompt{Text: p.Messages[0].Content}
		}
	case datasets.FormText, datasets.FormFewShot:
		prompt.Raw = true
	}
	s.Notices.Say(s.Model.Unread(p)...)
	return s.EncodePrompt(ctx, prompt, maxNew)
}
