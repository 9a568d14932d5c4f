package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/parquet-go/parquet-go"
)

// parquetRecords reads a Parquet file row by row.
type parquetRecords struct {
	file   *os.File
	size   int64
	opened *parquet.File
	leaves []*parquet.Column
	group  int // the next row group
	rows   *parquet.GenericReader[any]
	path   string
	name   string
	row    int
}

func openParquet(path, name string) (r Records, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	defer func() {
		// The library panics on some broken files.
		if x := recover(); x != nil {
			err = fmt.Errorf("%s: not a Parquet file: %v", path, x)
		}
		if err != nil {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if err := checkFooter(f, info.Size()); err != nil {
		return nil, fmt.Errorf("%s: not a Parquet file: %w", path, err)
	}
	// Of what is not needed nothing is read.
	file, err := parquet.OpenFile(f, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, fmt.Errorf("%s: not a Parquet file: %w", path, err)
	}
	return &parquetRecords{file: f, size: info.Size(), opened: file, leaves: leavesOf(file.Root(), nil), path: path, name: name}, nil
}

// leavesOf are the columns that hold values, in the order of a row group's.
func leavesOf(c *parquet.Column, leaves []*parquet.Column) []*parquet.Column {
	if c.Leaf() {
		return append(leaves, c)
	}
	for _, child := range c.Columns() {
		leaves = leavesOf(child, leaves)
	}
	return leaves
}

// read returns the next row, and io.EOF after the last of the last row group.
func (r *parquetRecords) read() (any, error) {
	for {
		if r.rows != nil {
			next := make([]any, 1)
			n, err := r.rows.Read(next)
			if n > 0 {
				return next[0], nil
			}
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			if err := r.rows.Close(); err != nil {
				return nil, err
			}
			r.rows = nil
		}
		groups := r.opened.RowGroups()
		if r.group >= len(groups) {
			return nil, io.EOF
		}
		if err := checkRowGroup(r.file, r.size, &r.opened.Metadata().RowGroups[r.group], r.leaves); err != nil {
			return nil, fmt.Errorf("row group %d: %w", r.group, err)
		}
		r.rows = parquet.NewGenericRowGroupReader[any](groups[r.group], r.opened.Schema())
		r.group++
	}
}

func (r *parquetRecords) Next() (p Prompt, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("%s: row %d: %v", r.path, r.row, x)
		}
	}()
	next, err := r.read()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return Prompt{}, fmt.Errorf("%s: row %d: %w", r.path, r.row, err)
	case err != nil && r.row == 0:
		return Prompt{}, fmt.Errorf("%s: %w", r.path, ErrEmpty)
	case err != nil:
		return Prompt{}, io.EOF
	}
	row, ok := next.(map[string]any)
	if !ok {
		return Prompt{}, fmt.Errorf("%s: row %d: got a %T, want columns by name", r.path, r.row, next)
	}
	for name, value := range row { // columns that are null in this row are not there
		if row[name] = plain(value); row[name] == nil {
			delete(row, name)
		}
	}
	raw, err := json.Marshal(row)
	if err != nil {
		return Prompt{}, fmt.Errorf("%s: row %d: %w", r.path, r.row, err)
	}
	if p, err = parseRecord(raw, r.name, r.row); err != nil {
		return Prompt{}, fmt.Errorf("%s: row %d: %w", r.path, r.row, err)
	}
	r.row++
	return p, nil
}

// plain takes the wrappers off nested values: bytes are text, and a list is written
// as {"list": [{"element": …}]} by most programs.
func plain(v any) any {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = plain(x[i])
		}
		return out
	case map[string]any:
		if list, ok := x["list"]; ok && len(x) == 1 {
			items, ok := list.([]any)
			if !ok {
				return plain(list)
			}
			out := make([]any, 0, len(items))
			for _, item := range items {
				if m, ok := item.(map[string]any); ok && len(m) == 1 {
					for _, key := range []string{"element", "item"} {
						if e, ok := m[key]; ok {
							item = e
						}
					}
				}
				out = append(out, plain(item))
			}
			return out
		}
		out := make(map[string]any, len(x))
		for key, value := range x {
			out[key] = plain(value)
		}
		return out
	}
	return v
}

// Close implements Records.
func (r *parquetRecords) Close() error {
	if r.rows != nil {
		return errors.Join(r.rows.Close(), r.file.Close())
	}
	return r.file.Close()
}
