package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"glimpse/evaluation"
	"glimpse/model/modeltest"
)

// TestRowsOfChats: what --data makes of rows is what transformers makes of the conversations that
// they mean (lab/golden/row_fixtures.py).
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
						ids, _, err = sample.Turns[0].Prompt(t.Context(), nil)
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

// TestTruncateParts: what a user says in parts is cut as text is, and becomes one part.
func TestTruncateParts(t *testing.T) {
	m := modeltest.WithTemplate(t, "{% for m in messages %}{% if m.content is string %}({{ m.content }}){% else %}{% for p in m.content %}[{{ p.text }}]{% endfor %}{% endif %}{% endfor %}{{ tools | length }}:")
	rows := filepath.Join(t.TempDir(), "rows.jsonl")
	if err := os.WriteFile(rows, []byte(`{"messages": [{"role": "user", "content": [{"type": "text", "text": "abcdefgh"}, {"type": "text", "text": "ijklmnop"}]}], "tools": [{}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	for truncate, want := range map[evaluation.Truncation]string{evaluation.TruncateLeft: "[mnop]1:", evaluation.TruncateMiddle: "[abop]1:"} {
		s := &evaluation.Setting{Model: m, Data: rows, MaxPrompt: 10, Truncate: truncate, Options: map[string]string{}}
		samples, err := openData(t.Context(), s, "")
		if err != nil {
			t.Fatal(err)
		}
		for item := range samples.Each {
			sample, err := item.Make(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ids, _, _ := sample.Turns[0].Prompt(t.Context(), nil)
			if got, err := m.Tokenizer.Decode(ids, false); err != nil || got != want {
				t.Errorf("%s: got %q, %v, want %q", truncate, got, err, want)
			}
		}
	}
}
