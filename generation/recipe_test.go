package generation_test

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"glimpse/datasets"
	"glimpse/generation"
	"glimpse/model/modeltest"
)

// TestRowsOfChats: what recipes make of rows is what transformers makes of the conversations that
// they mean (scripts/row_fixtures.py).
func TestRowsOfChats(t *testing.T) {
	rows, templates := modeltest.RowTemplates(t)
	for _, x := range templates {
		for _, name := range []string{"asis", "lookaheadkv"} {
			recipe, err := generation.Recipes.Lookup(name)
			if err != nil {
				t.Fatal(err)
			}
			t.Run(x.Name+"/"+name, func(t *testing.T) {
				mix, err := datasets.OpenMix([]datasets.MixSource{{Path: rows}}, 1)
				if err != nil {
					t.Fatal(err)
				}
				defer mix.Close()
				for i, want := range x.Renderings {
					p, _, err := mix.Next()
					var item generation.Item
					if err == nil {
						item, err = recipe.Prepare(t.Context(), x.Model, p, generation.Limits{MaxPrompt: 1 << 14}, nil)
					}
					if err != nil {
						err = generation.PromptError(p.ID, err)
					}
					want.Check(t, x.Model, fmt.Sprintf("rows.jsonl:%d", i+1), item.IDs, err)
				}
				if _, _, err := mix.Next(); !errors.Is(err, io.EOF) {
					t.Errorf("after the last row: %v", err)
				}
			})
		}
	}
}
