package datasets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Row is one record of a source: a line of a JSONL, CSV or TSV file, an element of a JSON
// array, a row of a Parquet file.
//
// Its fields are named by paths: "answers.text" is the field text of the field answers.
// On the way a number takes one element of a list, from 0, and a name that of every
// element: "turns.0.content", "turns.content". A field whose name has dots in it is found,
// too.
type Row struct {
	File   string
	Number int // lines from 1, elements and rows from 0; -1 where the file is one row

	unit   string // "line", "element" or "row"
	name   string // of the file in IDs
	object object
}

// RowError is an error of one row; the reading may go on after it.
type RowError struct {
	File string
	Row  int    // as Row.Number
	Unit string // "line", "element" or "row"
	Err  error
}

func (e *RowError) Error() string {
	switch {
	case e.Row < 0:
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	case e.Unit == "line":
		return fmt.Sprintf("%s:%d: %v", e.File, e.Row, e.Err)
	}
	return fmt.Sprintf("%s: %s %d: %v", e.File, e.Unit, e.Row, e.Err)
}

// Unwrap returns the error without the place.
func (e *RowError) Unwrap() error { return e.Err }

// Fail is an error of the row.
func (r Row) Fail(err error) error { return &RowError{r.File, r.Number, r.unit, err} }

// ID names the row after its place: FILE:NUMBER.
func (r Row) ID() string {
	if r.Number < 0 {
		return r.name
	}
	return fmt.Sprintf("%s:%d", r.name, r.Number)
}

// parseRow reads the row's object.
func (r Row) parseRow(raw []byte) (Row, error) {
	if len(raw) >= MaxLine {
		return r, r.Fail(fmt.Errorf("got an object of %d bytes, want less than %d", len(raw), MaxLine))
	}
	o, err := parseObject(raw)
	if err != nil {
		return r, r.Fail(err)
	}
	r.object = o
	return r, nil
}

var errMissing = errors.New("missing")

// Raw is the JSON of a field. Where the path goes through a list by name, it is the list of
// what the elements hold.
func (r Row) Raw(path string) (json.RawMessage, error) {
	raw, err := r.object.valueAt(path)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w", path, err)
	}
	return raw, nil
}

// Has tells whether there is a field that is not null.
func (r Row) Has(path string) bool {
	raw, err := r.object.valueAt(path)
	return err == nil && string(raw) != "null"
}

// Decode reads a field into the value that v points to; want describes it in the error:
// "a list of numbers". Null is an error.
func (r Row) Decode(path, want string, v any) error {
	raw, err := r.object.valueAt(path)
	if err != nil {
		return fmt.Errorf("field %q: %w, want %s", path, err, want)
	}
	return object{path: raw}.decode(path, want, v)
}

// Text is a field that is a string, a number or true or false, as text.
func (r Row) Text(path string) (string, error) {
	raw, err := r.object.valueAt(path)
	if err != nil {
		return "", fmt.Errorf("field %q: %w, want a string", path, err)
	}
	text, ok := scalarText(raw)
	if !ok {
		return "", fmt.Errorf("field %q: got %s, want a string", path, excerpt(raw))
	}
	return text, nil
}

// Texts are the strings of a field: one string, a list of strings, an object with such a
// field "text" as SQuAD's answers, or a list of these. Numbers, true and false stand for
// their text. Null is none.
func (r Row) Texts(path string) ([]string, error) {
	raw, err := r.object.valueAt(path)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w, want a string or a list of strings", path, err)
	}
	texts, err := textsOf(raw, 0)
	if err != nil {
		return nil, fmt.Errorf("field %q: %w", path, err)
	}
	return texts, nil
}

func textsOf(raw json.RawMessage, depth int) ([]string, error) {
	const most = 8 // lists in lists
	if text, ok := scalarText(raw); ok {
		return []string{text}, nil
	}
	switch {
	case string(raw) == "null":
		return nil, nil
	case depth < most && raw[0] == '[':
		items, err := elementsOf(raw)
		if err != nil {
			return nil, err
		}
		var all []string
		for i, item := range items {
			texts, err := textsOf(item, depth+1)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			all = append(all, texts...)
		}
		return all, nil
	case depth < most && raw[0] == '{':
		o, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		if text, ok := o["text"]; ok {
			return textsOf(text, depth+1)
		}
	}
	return nil, fmt.Errorf(`got %s, want a string, a list of strings, or an object with them as "text"`, excerpt(raw))
}

// scalarText is the text of a string, a number, true or false.
func scalarText(raw json.RawMessage) (text string, ok bool) {
	if len(raw) == 0 {
		return "", false
	}
	switch raw[0] {
	case '"':
		return text, json.Unmarshal(raw, &text) == nil
	case '[', '{', 'n':
		return "", false
	}
	return string(raw), json.Valid(raw) // not NaN
}

// valueAt follows a path.
func (o object) valueAt(path string) (json.RawMessage, error) {
	if raw, ok := o[path]; ok {
		return raw, nil
	}
	// The longest name that there is, so that a name with dots hides nothing.
	for i := len(path) - 1; i > 0; i-- {
		if path[i] != '.' {
			continue
		}
		if raw, ok := o[path[:i]]; ok {
			return follow(raw, path[:i], path[i+1:])
		}
	}
	return nil, errMissing
}

// follow goes on from the value of the field named so.
func follow(raw json.RawMessage, name, path string) (json.RawMessage, error) {
	switch raw[0] {
	case '{':
		o, err := parseObject(raw)
		if err != nil {
			return nil, err
		}
		return o.valueAt(path)
	case '[':
		items, err := elementsOf(raw)
		if err != nil {
			return nil, err
		}
		head, rest, more := strings.Cut(path, ".")
		if i, err := strconv.ParseUint(head, 10, 31); err == nil {
			switch {
			case i >= uint64(len(items)):
				return nil, fmt.Errorf("%q has %d elements, want one of number %d", name, len(items), i)
			case more:
				return follow(items[i], head, rest)
			}
			return items[i], nil
		}
		for i, item := range items {
			value, err := follow(item, strconv.Itoa(i), path)
			if err != nil {
				return nil, fmt.Errorf("element %d: %w", i, err)
			}
			items[i] = value
		}
		return joinRaw(items), nil
	}
	return nil, fmt.Errorf("got %s for %q, want an object or a list", excerpt(raw), name)
}

func joinRaw(items []json.RawMessage) json.RawMessage {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, item := range items {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(item)
	}
	b.WriteByte(']')
	return b.Bytes()
}
