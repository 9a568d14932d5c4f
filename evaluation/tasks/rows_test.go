package tasks

import (
	"fmt"
	"testing"

	"glimpse/evaluation"
	"glimpse/model/modeltest"
)

// TestRowsOfChats: what --data makes of rows is what transformers makes of the conversations that
// they mean (scripts/row_fixtures.py).
func TestRowsOfChats(t *testing.T) {
	rows, templates := modeltest.RowTemplates(t)
	for _, x := range templates {
		t.Run(x.Name, func(t *testing.T) {
			s := &evaluation.Setting{Model: x.Model, Data: rows, Truncate: evaluation.TruncateNone, Options: map[string]string{}}
			samples, err := openData(t.Context(), s, "")
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for item := range samples.Each {
				t.Run(fmt.Sprint(n), func(t *testing.T) {
					sample, err := item.Make(t.Context())
					var ids []int32
					if err == nil {
						ids, err = sample.Turns[0].Prompt(t.Context(), nil)
					}
					x.Renderings[n].Check(t, x.Model, fmt.Sprintf("rows.jsonl:%d", n+1), ids, err)
				})
				n++
			}
			if n != len(x.Renderings) {
				t.Errorf("%d rows, want %d", n, len(x.Renderings))
			}
		})
	}
}
