package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Record is a prompt with the answers that count as right.
type Record struct {
	Prompt
	Index      int      // place among the source's rows, from 0; bad ones are counted, too
	References []string // none of them is empty; nil: there are none
	// Unanswerable: the data set says that the question has no answer (SQuAD 2.0), which
	// is not that none is known.
	Unanswerable bool
	// MetricOptions are lists that the row gives to metrics, such as the classes to choose
	// from, by the option's name.
	MetricOptions map[string][]string
	Row           Row // what else the row holds
}

// RecordReader streams records.
//
// A row's references are its field "answers" or "answer", unless [Fields] say where they
// stand: a string, a list of strings, or an object with them as "text". Without any, the
// last turn is taken where it is the assistant's, and "chosen" after worked examples. Its
// "metric_options" are an object of such lists.
type RecordReader struct {
	mappedRows
	index int
}

// OpenRecords opens a file, or all files of a folder in the order of their paths. Format
// is one of SourceFormats; "" is auto. The caller closes it.
func OpenRecords(path, format string, fields Fields) (*RecordReader, error) {
	m, err := openMapped("records", path, format, fields)
	if err != nil {
		return nil, err
	}
	return &RecordReader{mappedRows: m}, nil
}

// Next returns the next record, or io.EOF after the last. Any other error concerns what it
// names, and the reading goes on: after a *RowError, which is returned with the record's
// Index and place as its ID, with the next row, after another with the next file.
func (r *RecordReader) Next() (Record, error) {
	row, err := r.rows.Next()
	var bad *RowError
	if err != nil && !errors.As(err, &bad) {
		return Record{}, err
	}
	e := Record{Index: r.index, Row: row}
	r.index++
	if err == nil {
		if err = r.mapping.readRow(&e); err == nil {
			return e, nil
		}
		err = row.Fail(err)
	}
	return Record{Prompt: Prompt{ID: row.ID()}, Index: e.Index, Row: row}, err
}

// Count is RowReader.Count.
func (r *RecordReader) Count(most int64) (int64, error) { return r.rows.Count(most) }

func (m *mapping) readRow(e *Record) (err error) {
	if e.Prompt, err = m.readPrompt(e.Row); err != nil {
		return err
	}
	if err := m.readReferences(e); err != nil {
		return err
	}
	if e.Form == FormMessages && !slices.ContainsFunc(e.Messages, func(x Message) bool { return x.Role != "system" }) {
		return errors.New("got no turn to answer, want a user's")
	}
	return m.readOptions(e)
}

func (m *mapping) readOptions(e *Record) (err error) {
	e.MetricOptions = map[string][]string{}
	if e.Row.Has("metric_options") {
		var given map[string]json.RawMessage
		if err := e.Row.Decode("metric_options", "an object", &given); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(given)) {
			if e.MetricOptions[name], err = textsOf(given[name], 0); err != nil {
				return fmt.Errorf("field \"metric_options.%s\": %w", name, err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.options)) {
		if e.MetricOptions[name], err = e.Row.Texts(m.options[name].path); err != nil {
			return err
		}
	}
	return nil
}

func (m *mapping) readReferences(e *Record) (err error) {
	// A turn that has been given is not asked for.
	var turn []string
	if n := len(e.Messages); n > 0 && e.Messages[n-1].Role == "assistant" {
		turn, e.Messages = []string{e.Messages[n-1].Content}, e.Messages[:n-1]
	}
	switch {
	case m.answer != nil:
		e.References, err = m.answer.texts(e.Row)
	case e.Row.Has("answers"):
		e.References, err = e.Row.Texts("answers")
	case e.Row.Has("answer"):
		e.References, err = e.Row.Texts("answer")
	case e.Chosen != "":
		e.References = []string{e.Chosen}
	default:
		e.References = turn
	}
	e.References = slices.DeleteFunc(e.References, func(text string) bool { return text == "" })
	if len(e.References) == 0 {
		e.References, e.Unanswerable = nil, m.unanswerable && err == nil
	}
	return err
}
