package tasks

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestQMSum: a meeting with all its queries, or each query with the turns that are relevant to it; what cannot be read is named.
func TestQMSum(t *testing.T) {
	m := byteModel(t)
	folder := t.TempDir()
	writeFile(t, filepath.Join(folder, "test.jsonl"), `{"topic_list": [], "general_query_list": [{"query": "All?", "answer": "Everything."}], "specific_query_list": [{"query": "Why?", "answer": "Because of rain.", "relevant_text_span": [["1", "1"], ["2", "2"]]}, {"query": "Who?", "answer": "B.", "relevant_text_span": [["5", "9"]]}], "meeting_transcripts": [{"speaker": "A", "content": "zero"}, {"speaker": "B", "content": "one"}, {"speaker": "A", "content": "two"}]}
{"general_query_list": []}
`)
	for _, first := range []bool{false, true} {
		s := setting(t, m, "qmsum")
		s.Data, s.ContextFirst, s.Samples = folder, first, 0
		samples, all := makeAll(t, "qmsum", qmsumMeetings, s)
		if len(all) != 2 || samples.Metric != "rougeL" || all[1].err == nil || !strings.Contains(all[1].err.Error(), "meeting_transcripts") {
			t.Fatalf("%d samples by %s, the second's error %v", len(all), samples.Metric, all[1].err)
		}
		if x := all[0].sample; !slices.Equal(x.References, []string{"Everything.", "Because of rain.", "B."}) || first != (x.Context != nil) {
			t.Errorf("references %v, context %v", x.References, x.Context)
		}
		samples, all = makeAll(t, "qmsum", qmsumSpans, s)
		if len(all) != 3 || samples.Count != 3 || all[0].err != nil || all[1].err == nil || !strings.Contains(all[1].err.Error(), `turns "5" to "9", want some of 0 to 2`) || all[2].err == nil {
			t.Fatalf("%d samples of %d: %v", len(all), samples.Count, all)
		}
		x := all[0].sample
		_, text := promptText(t, m, x)
		if first {
			context, err := m.Tokenizer.Decode(x.Context, true)
			if err != nil {
				t.Fatal(err)
			}
			text = context + text
		}
		if !strings.Contains(text, "B: one\nA: two\n") || strings.Contains(text, "zero") || !strings.Contains(text, "Why?") {
			t.Errorf("asks %q", text)
		}
	}
}

// TestQMSumFile: the real file is read, where it is at hand.
func TestQMSumFile(t *testing.T) {
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA names no data folder")
	}
	models := textModels(t)
	m := models[slices.Sorted(maps.Keys(models))[len(models)-1]] // "bytes" is the first
	for name, want := range map[string]int{qmsumMeetings: 35, qmsumSpans: 244} {
		s := setting(t, m, "qmsum")
		s.Data, s.ContextFirst, s.Samples = filepath.Join(root, "qmsum"), true, 0
		_, all := makeAll(t, "qmsum", name, s)
		for _, x := range all {
			if x.err != nil && !strings.Contains(x.err.Error(), "tokens, want at most") {
				t.Errorf("%s: %v", name, x.err)
			}
		}
		if len(all) != want {
			t.Errorf("%s: %d samples, want %d", name, len(all), want)
		}
	}
}
