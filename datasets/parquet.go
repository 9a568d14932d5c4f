package datasets

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"unicode/utf8"

	"github.com/parquet-go/parquet-go"

	"glimpse/internal/regularfile"
)

// parquetRows reads a Parquet file row by row.
type parquetRows struct {
	sourceFile
	file   *os.File
	size   int64
	opened *parquet.File
	leaves []*parquet.Column
	group  int // the next row group
	rows   *parquet.GenericReader[any]
	row    int
}

func openParquet(source sourceFile) (r *parquetRows, err error) {
	path := source.path
	f, err := regularfile.Open(path)
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
	return &parquetRows{sourceFile: source, file: f, size: info.Size(), opened: file, leaves: leavesOf(file.Root(), nil)}, nil
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

// readRow returns the next row, and io.EOF after the last of the last row group.
func (r *parquetRows) readRow() (any, error) {
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
		if groups[r.group].NumRows() == 0 { // there are no pages to go to
			r.group++
			continue
		}
		if err := checkRowGroup(r.file, r.size, &r.opened.Metadata().RowGroups[r.group], r.leaves); err != nil {
			return nil, fmt.Errorf("row group %d: %w", r.group, err)
		}
		r.rows = parquet.NewGenericRowGroupReader[any](groups[r.group], r.opened.Schema())
		r.group++
	}
}

func (r *parquetRows) next() (row Row, err error) {
	defer func() {
		if x := recover(); x != nil {
			err = fmt.Errorf("%s: row %d: %v", r.path, r.row, x)
		}
	}()
	next, err := r.readRow()
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return Row{}, fmt.Errorf("%s: row %d: %w", r.path, r.row, err)
	case err != nil:
		return Row{}, io.EOF
	}
	columns, ok := next.(map[string]any)
	if !ok {
		return Row{}, fmt.Errorf("%s: row %d: got a %T, want columns by name", r.path, r.row, next)
	}
	row = Row{File: r.path, Number: r.row, unit: "row", name: r.name}
	r.row++
	raw, err := json.Marshal(plain(columns))
	if err != nil {
		return row, row.Fail(err)
	}
	return row.parseRow(raw)
}

// plain takes the wrappers off nested values: bytes are text, and a list is written
// as {"list": [{"element": …}]} by most programs. What JSON has no word for becomes null,
// or is described.
func plain(v any) any {
	switch x := v.(type) {
	case []byte:
		if !utf8.Valid(x) {
			return map[string]any{"bytes that are not UTF-8": len(x)}
		}
		return string(x)
	case string:
		if !utf8.ValidString(x) {
			return map[string]any{"bytes that are not UTF-8": len(x)}
		}
	case float32:
		if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
			return nil
		}
	case float64:
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return nil
		}
	case []any:
		out := make([]any, len(x))
		for i := range x {
			out[i] = plain(x[i])
		}
		return out
	case map[string]any:
		if list, ok := x["list"]; ok && len(x) == 1 {
			items, ok := list.([]any)
			if !ok && list != nil {
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

func (r *parquetRows) Close() error {
	if r.rows != nil {
		return errors.Join(r.rows.Close(), r.file.Close())
	}
	return r.file.Close()
}
