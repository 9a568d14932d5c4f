package datasets

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// tableRows are the records of a CSV or TSV file (RFC 4180), whose first names the fields.
type tableRows struct {
	sourceFile
	io.Closer
	room    *allowance
	records *csv.Reader
	names   []string
	read    int
}

// allowance reads no more than what is left: a quote that is not closed makes a record of
// all that follows.
type allowance struct {
	r    io.Reader
	left int
}

func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("got a record of more than %d bytes, want less than %d", 2*MaxLine, MaxLine)
	}
	n, err := a.r.Read(p[:min(len(p), a.left)])
	a.left -= n
	return n, err
}

func newTableRows(f textFile, file sourceFile, format string) (*tableRows, error) {
	head, _ := f.Peek(headSize) // its error comes again
	t := &tableRows{sourceFile: file, Closer: f, room: &allowance{r: f, left: 2 * MaxLine}}
	t.records = csv.NewReader(t.room)
	t.records.Comma = separator(string(head), format)
	names, err := t.records.Read()
	if err == io.EOF {
		return nil, fmt.Errorf("%s: %w", file.path, ErrEmpty)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: header: %w", file.path, err)
	}
	seen := map[string]bool{}
	for _, name := range names {
		switch {
		case !utf8.ValidString(name):
			return nil, fmt.Errorf("%s: header: got bytes that are not UTF-8, want names of fields in UTF-8", file.path)
		case name != "" && seen[name]: // pandas leaves its index without a name
			return nil, fmt.Errorf("%s: header: field %q: got it twice, want it once", file.path, name)
		}
		seen[name] = true
	}
	t.names = names
	return t, nil
}

// separator is what stands between the fields: spreadsheets in languages with a decimal
// comma write semicolons.
func separator(head, format string) rune {
	if format == FormatTSV {
		return '\t'
	}
	header, _, _ := strings.Cut(head, "\n")
	best := ','
	for _, c := range ";\t" {
		if strings.Count(header, string(c)) > strings.Count(header, string(best)) {
			best = c
		}
	}
	return best
}

func (t *tableRows) next() (Row, error) {
	t.room.left = 2 * MaxLine
	record, err := t.records.Read()
	var bad *csv.ParseError
	switch {
	case err == io.EOF:
		return Row{}, io.EOF
	case err != nil && !errors.As(err, &bad):
		return Row{}, fmt.Errorf("%s: after row %d: read: %w", t.path, t.read, err)
	}
	t.read++
	row := Row{File: t.path, unit: "line", name: t.name, object: object{}}
	switch {
	case errors.Is(err, csv.ErrFieldCount):
		row.Number, _ = t.records.FieldPos(0)
		return row, row.Fail(fmt.Errorf("got %d fields, want %d as the header has", len(record), len(t.names)))
	case err != nil:
		row.Number = bad.StartLine
		return row, row.Fail(fmt.Errorf("line %d, column %d: %w", bad.Line, bad.Column, bad.Err))
	}
	row.Number, _ = t.records.FieldPos(0)
	length := 0
	for i, value := range record {
		if !utf8.ValidString(value) {
			return row, row.Fail(fmt.Errorf("field %q: got bytes that are not UTF-8, want text in UTF-8", t.names[i]))
		}
		length += len(value)
		raw := json.RawMessage("null")
		if value != "" {
			if raw, err = json.Marshal(value); err != nil {
				return row, row.Fail(err)
			}
		}
		row.object[t.names[i]] = raw
	}
	if length >= MaxLine {
		return row, row.Fail(fmt.Errorf("got a record of %d bytes, want less than %d", length, MaxLine))
	}
	return row, nil
}
