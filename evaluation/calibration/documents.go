package calibration

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"glimpse/datasets"
)

// DocumentFields are the fields of rows that name the document, where a user names none: the first that all rows have.
var DocumentFields = []string{"document", "document_id", "doc_id", "context"}

// Documents says which document the prompts of a run are about.
type Documents struct {
	Count   int
	Prompts int
	// By is the field that named them, "" where they were told by how prompts begin.
	By string
	// Common is how many bytes all prompts begin with, which make no document of them.
	Common int
	Bytes  int64 // of all prompts

	of [][]int // by file and row
}

// Of is the document of a row of a file, by their places.
func (d *Documents) Of(file, row int) int {
	if file >= len(d.of) || row >= len(d.of[file]) {
		return -1 - row // data that have grown meanwhile: a document of its own
	}
	return d.of[file][row]
}

// prompt is one row.
type prompt struct {
	file, row int
	text      []byte
	document  string
}

// ReadDocuments reads files of prompts of the user's own, of each the first most rows, 0: all. Field is the column that names
// the document; "": one of DocumentFields, or else prompts are about one document where they begin alike for at least half of the
// shorter one. What all prompts begin with, as instructions, does not count. Rows that cannot be used are passed over.
func ReadDocuments(ctx context.Context, paths []string, fields []string, field string, most int) (*Documents, error) {
	mapping, err := datasets.ParseFields(fields)
	if err != nil {
		return nil, err
	}
	d := &Documents{of: make([][]int, len(paths))}
	var all []prompt
	names := DocumentFields
	if field != "" {
		names = []string{field}
	}
	has := make([]int, len(names))
	for file, path := range paths {
		some, err := readPrompts(ctx, file, path, mapping, most, func(row datasets.Row) {
			for i, name := range names {
				if row.Has(name) {
					has[i]++
				}
			}
		}, names)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(all) == 0 {
		return nil, errors.New("none of the rows has a prompt")
	}
	at := slices.Index(has, len(all))
	if at < 0 && field != "" {
		return nil, fmt.Errorf("%d of %d rows have the field %q, which is to name their document, want all", has[0], len(all), field)
	}
	d.Prompts = len(all)
	for i := range all {
		d.Bytes += int64(len(all[i].text))
	}
	if at >= 0 {
		d.By = names[at]
	} else {
		d.groupByBeginnings(all)
	}
	number := make(map[string]int)
	for _, p := range all {
		key := p.document
		if at >= 0 {
			key = strings.Split(p.document, "\x00")[at]
		}
		n, ok := number[key]
		if !ok {
			n = len(number)
			number[key] = n
		}
		for len(d.of[p.file]) <= p.row {
			d.of[p.file] = append(d.of[p.file], -1)
		}
		d.of[p.file][p.row] = n
	}
	d.Count = len(number)
	return d, nil
}

// readPrompts reads one file. The documents of its prompts are the values of the fields, with zeros between.
func readPrompts(ctx context.Context, file int, path string, mapping datasets.Fields, most int, each func(datasets.Row), names []string) (out []prompt, err error) {
	r, err := datasets.OpenRecords(path, datasets.FormatAuto, mapping)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for row := 0; most == 0 || row < most; row++ {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		record, err := r.Next()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			continue // the evaluation names it
		}
		each(record.Row)
		p := prompt{file: file, row: row, text: textOf(&record)}
		var values []string
		for _, name := range names {
			value := ""
			if record.Row.Has(name) {
				raw, err := record.Row.Raw(name)
				if err != nil {
					return nil, err
				}
				value = string(raw)
			}
			values = append(values, value)
		}
		p.document = strings.Join(values, "\x00")
		out = append(out, p)
	}
	return out, nil
}

// textOf is a prompt as bytes: text, messages one after the other, or ids.
func textOf(r *datasets.Record) []byte {
	switch {
	case len(r.IDs) > 0:
		var out []byte
		for _, id := range r.IDs {
			out = binary.BigEndian.AppendUint32(out, uint32(id))
		}
		return out
	case len(r.Messages) > 0:
		out := slices.Clone([]byte(r.Tools))
		for _, m := range r.Messages {
			out = append(out, m.Role+"\n"+m.Content+"\n"...)
		}
		return out
	}
	return []byte(r.Text)
}

// groupByBeginnings gives prompts the same document where they begin alike for at least half of the shorter one, and those that such
// prompts link.
func (d *Documents) groupByBeginnings(all []prompt) {
	sorted := make([]*prompt, len(all))
	for i := range all {
		sorted[i] = &all[i]
	}
	slices.SortStableFunc(sorted, func(a, b *prompt) int { return strings.Compare(string(a.text), string(b.text)) })
	if n := len(sorted); n > 1 {
		d.Common = common(sorted[0].text, sorted[n-1].text)
		if shortest := slices.MinFunc(sorted, func(a, b *prompt) int { return len(a.text) - len(b.text) }); d.Common == len(shortest.text) {
			d.Common = 0 // one is all that others begin with: it is no instruction
		}
	}
	root := make([]int, len(sorted))
	for i := range root {
		root[i] = i
	}
	find := func(i int) int {
		for root[i] != i {
			root[i] = root[root[i]]
			i = root[i]
		}
		return i
	}
	shortest := len(sorted[0].text)
	for _, p := range sorted {
		shortest = min(shortest, len(p.text))
	}
	length := func(i int) int { return len(sorted[i].text) - d.Common }
	for i := range sorted {
		shared := length(i)
		for j := i + 1; j < len(sorted); j++ {
			shared = min(shared, common(sorted[j-1].text, sorted[j].text)-d.Common)
			if 2*shared < min(length(i), shortest-d.Common) {
				break // no later one shares more
			}
			if 2*shared >= min(length(i), length(j)) {
				root[find(j)] = find(i)
			}
		}
	}
	for i, p := range sorted {
		p.document = fmt.Sprint(find(i))
	}
}

// common is how many bytes two texts begin with.
func common(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
