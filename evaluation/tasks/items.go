package tasks

import (
	"context"
	"io"
	"iter"

	"glimpse/datasets"
	"glimpse/evaluation"
)

// rowItems makes a sample of every row of a file or folder, but those that skip (may be nil)
// tells. A row that cannot be read, or of which no sample can be made, is one that fails, and
// its error says where it is. The error is that of a source that cannot be opened.
func rowItems(path string, skip func(datasets.Row) bool, sample func(context.Context, datasets.Row) (*evaluation.Sample, error)) (iter.Seq[evaluation.Item], error) {
	rows, err := datasets.OpenRows(path, "")
	if err != nil {
		return nil, err
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	return func(yield func(evaluation.Item) bool) {
		rows, err := datasets.OpenRows(path, "")
		if err != nil {
			yield(evaluation.Item{ID: path, Make: failing(err)})
			return
		}
		defer rows.Close()
		for {
			row, err := rows.Next()
			if err == io.EOF {
				return
			}
			item := evaluation.Item{ID: row.ID(), Make: failing(err)}
			switch {
			case err != nil && row.File == "": // of a whole file
				item.ID = path
			case err == nil && skip != nil && skip(row):
				continue
			case err == nil:
				item.Make = func(ctx context.Context) (*evaluation.Sample, error) {
					s, err := sample(ctx, row)
					if err != nil {
						return nil, row.Fail(err)
					}
					return s, nil
				}
			}
			if !yield(item) {
				return
			}
		}
	}, nil
}

func failing(err error) func(context.Context) (*evaluation.Sample, error) {
	return func(context.Context) (*evaluation.Sample, error) { return nil, err }
}
