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
// they mean (lab/golden/row_fixtures.py).
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

// TestAnswersOfRows: what becomes of the answer that a row gives, under every recipe.
func TestAnswersOfRows(t *testing.T) {
	m := modeltest.WithTemplate(t, "{% for m in messages %}({{ m.content }}){% endfor %}{% if add_generation_prompt %}:{% endif %}")
	text := func(ids []int32) string {
		t.Helper()
		said, err := m.Tokenizer.Decode(ids, false)
		if err != nil {
			t.Fatal(err)
		}
		return said
	}
	user, assistant := datasets.Message{Role: "user", Content: "q"}, datasets.Message{Role: "assistant", Content: "answers"}
	for name, c := range map[string]struct {
		p               datasets.Prompt
		ids, source     string
		dialogue, after string // of judgeq
	}{
		"turn at the end": {datasets.Prompt{Form: datasets.FormMessages, Messages: []datasets.Message{user, assistant}}, "(q):", "answers", "(q)(answer", "s)"},
		"turns of a user": {datasets.Prompt{Form: datasets.FormMessages, Messages: []datasets.Message{user, user}}, "(q)(q):", "", "(q)(q", ")"},
		"completion":      {datasets.Prompt{Form: datasets.FormPrompt, Text: "q", Chosen: "answers"}, "(q):", "answers", "(q)(answer", "s)"},
		"no answer":       {datasets.Prompt{Form: datasets.FormPrompt, Text: "q"}, "(q):", "", "(q", ")"},
		"worked examples": {datasets.Prompt{Form: datasets.FormFewShot, Text: "1+1=2,1+2=", Chosen: "3"}, "1+1=2,1+2=", "3", "1+1=2,1+2", "=3"},
		"call at the end": {datasets.Prompt{Form: datasets.FormMessages, Messages: []datasets.Message{user, {Role: "assistant", NoContent: true}}}, "(q):", "", "(q)(", ")"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, recipe := range []string{"asis", "lookaheadkv", "judgeq"} {
				r, err := generation.Recipes.Lookup(recipe)
				if err != nil {
					t.Fatal(err)
				}
				item, err := r.Prepare(t.Context(), m, c.p, generation.Limits{MaxPrompt: 100}, nil)
				ids, source := c.ids, c.source
				if recipe == "judgeq" {
					ids, source = c.dialogue, c.after
				}
				if err != nil || text(item.IDs) != ids || text(item.Source) != source {
					t.Errorf("%s: prompt %q, source %q, %v, want %q and %q", recipe, text(item.IDs), text(item.Source), err, ids, source)
				}
			}
		})
	}
}
