package tasks

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestLEval: questions about one document are the turns of a sample, each once, behind the document where that comes first; answers are
// rated by the set's rule.
func TestLEval(t *testing.T) {
	m := byteModel(t)
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "tpo.jsonl"), `{"input": "A text.", "instructions": ["Q1\nA. x\nB. y", "Q2\nA. z\nB. u", "Q1\nA. x\nB. y"], "outputs": ["B", "A", "A"]}
{"input": "Other.", "instructions": ["Q"], "outputs": []}
`)
	for _, first := range []bool{false, true} {
		s := setting(t, m, "leval")
		s.Data, s.ContextFirst = folder, first
		samples, all := makeAll(t, "leval", "tpo", s)
		if len(all) != 2 || samples.Metric != "accuracy" || all[1].err == nil || !strings.Contains(all[1].err.Error(), "as many answers as questions") {
			t.Fatalf("%d samples by %s, the second's error %v", len(all), samples.Metric, all[1].err)
		}
		x := all[0].sample
		if len(x.Turns) != 2 || !slices.Equal(x.References, []string{"B", "A"}) || first != (x.Context != nil) {
			t.Fatalf("%d turns, references %v, context %v", len(x.Turns), x.References, x.Context)
		}
		ids, text := promptText(t, m, x)
		if first {
			context, err := m.Tokenizer.Decode(x.Context, true)
			if err != nil || !strings.HasSuffix(context, "A text.\n\n") || strings.Contains(text, "A text") {
				t.Errorf("the context is %q, the question %q, error %v", context, text, err)
			}
		}
		if !strings.Contains(text, "Q1") || len(ids) == 0 {
			t.Errorf("asks %q", text)
		}
		for answers, want := range map[[2]string]float64{{"B", "A."}: 1, {"The answer is (B)", "B"}: 0.5, {"both", "**A**: z"}: 0.5, {"", "b"}: 0} {
			got, err := x.Score(t.Context(), []evaluation.Output{{Text: answers[0]}, {Text: answers[1]}})
			if err != nil || got["accuracy"] != want {
				t.Errorf("%q: %v, error %v, want %v", answers, got, err, want)
			}
		}
	}
}

// TestLEvalFiles: the real files are read, where they are at hand.
func TestLEvalFiles(t *testing.T) {
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA names no data folder")
	}
	models := textModels(t)
	m := models[slices.Sorted(maps.Keys(models))[len(models)-1]] // "bytes" is the first
	for _, c := range []struct {
		name                 string
		documents, questions int
	}{{"tpo", 15, 269}, {"financial_qa", 8, 68}, {"multidoc_qa", 23, 158}, {"scientific_qa", 23, 184}} {
		s := setting(t, m, "leval")
		s.Data, s.ContextFirst, s.Samples = filepath.Join(root, "leval"), true, 0
		_, all := makeAll(t, "leval", c.name, s)
		questions := 0
		for _, x := range all {
			if x.err != nil {
				t.Fatal(c.name, x.err)
			}
			questions += len(x.sample.Turns)
		}
		if len(all) != c.documents || questions > c.questions || questions < c.questions*9/10 {
			t.Errorf("%s: %d documents, %d questions, want %d and about %d", c.name, len(all), questions, c.documents, c.questions)
		}
	}
}
