package tasks

import (
	"glimpse/internal/progress"
	"maps"
	"math"

	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestData: rows become samples with the references that they have; a bad one fails alone,
// with its place; rows of one name get names of their own.
func TestData(t *testing.T) {
	m := byteModel(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"id": "a", "question": "q1", "doc": "c1", "gold": ["x", "y"], "kind": "easy"}
{"id": "a", "question": "q2", "doc": "c2", "gold": [], "kind": "hard"}
{"id": "b", "question": 5, "doc": "c3", "gold": ["x"], "kind": "easy"}
{"id": "c", "question": "q4", "doc": "c4", "gold": "z", "kind": ["?"]}
{"id": "d", "question": "`+strings.Repeat("long ", 50)+`", "doc": "c", "gold": "z", "kind": "long"}
`)
	s := setting(t, m, "data", "group=kind")
	s.Data, s.Samples, s.MaxPrompt = path, 0, 100
	s.Fields = []string{"prompt={doc}: {question}?", "answer=gold"}
	s.Metrics = []string{"exact_match_strict", "substring_exact_match"}
	samples, all := makeAll(t, "data", "", s)
	if samples.Metric != "exact_match_strict" || len(all) != 5 || samples.Count != 5 {
		t.Fatalf("metric %s, %d samples, Count %d", samples.Metric, len(all), samples.Count)
	}
	var ids []string
	for _, a := range all {
		ids = append(ids, a.id)
	}
	if want := []string{"a", "a@1", "b", "c", "d"}; !slices.Equal(ids, want) {
		t.Errorf("IDs %q, want %q", ids, want)
	}
	if _, text := promptText(t, m, all[0].sample); text != "c1: q1?" || all[0].sample.Groups[0] != (evaluation.Group{Key: "kind", Value: "easy"}) {
		t.Errorf("prompt %q, groups %v", text, all[0].sample.Groups)
	}
	if scoreOf(t, all[0].sample, "exact_match_strict", " y ") != 1 || scoreOf(t, all[0].sample, "exact_match_strict", "y z") != 0 || scoreOf(t, all[0].sample, "substring_exact_match", "y z") != 1 {
		t.Error("scores")
	}
	if all[1].err != nil || all[1].sample.Score != nil {
		t.Errorf("a row without a reference is scored, %v", all[1].err)
	}
	for i, want := range map[int]string{
		2: "", // numbers are text in a template
		3: `rows.jsonl:4: field "kind": got ["?"], want a string`,
		4: "rows.jsonl:5: prompt: 154 tokens, want at most 100; --truncate",
	} {
		if want == "" {
			if all[i].err != nil {
				t.Error(all[i].err)
			}
		} else if all[i].err == nil || !strings.Contains(all[i].err.Error(), want) {
			t.Errorf("row %d: error %v, want it to say %q", i, all[i].err, want)
		}
	}
	s.Samples = 2
	if _, all := makeAll(t, "data", "", s); len(all) != 2 {
		t.Errorf("%d samples, want the first 2", len(all))
	}
}

// TestUnanswerable: a question of SQuAD 2.0 without an answer is scored by SQuAD's rule, with every
// metric alike; a row of other data without a reference is not scored.
func TestUnanswerable(t *testing.T) {
	m := byteModel(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"id": "a", "context": "c", "question": "q", "answers": {"text": ["Paris"]}}
{"id": "u", "context": "c", "question": "q", "answers": {"text": [], "answer_start": []}}
`)
	for _, c := range []struct {
		fields string
		scored bool
	}{
		{"squad", true}, {"context=context,prompt=question,answer=answers.text", false}, {"squad,answer=answers.text", false},
	} {
		s := setting(t, m, "data")
		s.Data, s.Fields, s.Metrics = path, []string{c.fields}, []string{"exact_match", "qa_f1", "substring_exact_match"}
		if c.fields == "squad,answer=answers.text" {
			s.Fields = []string{"squad", "answer=answers.text"}
		}
		_, all := makeAll(t, "data", "", s)
		none := all[1].sample
		if (none.Score != nil) != c.scored {
			t.Errorf("fields %s: scored %v, want %v", c.fields, none.Score != nil, c.scored)
		}
		if !c.scored || none.Score == nil {
			continue
		}
		for _, metric := range s.Metrics {
			for answer, want := range map[string]float64{"": 1, " \n": 1, "Unanswerable.": 1, "The question is unanswerable.": 1, "no answer": 1, "Paris": 0, "unanswerable, or Paris": 0} {
				if got := scoreOf(t, none, metric, answer); got != want {
					t.Errorf("%s of %q: %v, want %v", metric, answer, got, want)
				}
				if got := scoreOf(t, all[0].sample, metric, answer); got > 0 != strings.Contains(answer, "Paris") && metric != "exact_match" {
					t.Errorf("%s of %q to a question with an answer: %v", metric, answer, got)
				}
			}
		}
	}
	only := writeFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"id": "u", "context": "c", "question": "q", "answers": {"text": []}}`)
	s := setting(t, m, "data")
	s.Data, s.Fields, s.Metrics = only, []string{"squad"}, []string{"exact_match"}
	if samples, _ := makeAll(t, "data", "", s); samples.Metric != "exact_match" {
		t.Errorf("metric %s of unanswerable questions alone, want exact_match", samples.Metric)
	}
}

// TestDataForms: each form of prompt becomes tokens by its own rule.
func TestDataForms(t *testing.T) {
	models := textModels(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "rows.jsonl"), `{"prompt": "Hello"}
{"text": "Hello"}
{"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]}
{"prompt_ids": [5, 6, 7]}
{"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]}
{"prompt_ids": [5, 600000]}
`)
	for name, want := range map[string][]string{
		"bytes": {"Hello", "Hello", "Hello", "", "! has no chat template", "! prompt rows.jsonl:6: prompt_ids: element 1: got id 600000"},
		"mistral_v3": {"<s>[INST] Hello[/INST]", "<s> Hello", "<s>[INST] Hello[/INST]", "", "<s>[INST] Be brief.\n\nHello[/INST]",
			"! prompt rows.jsonl:6: prompt_ids: element 1: got id 600000"},
	} {
		m := models[name]
		if m == nil {
			continue
		}
		s := setting(t, m, "data")
		s.Data, s.Samples = path, 0
		samples, all := makeAll(t, "data", "", s)
		if samples.Metric != "substring_exact_match" || all[2].sample.Score == nil || all[0].sample.Score != nil {
			t.Errorf("%s: metric %s; only the third row has an answer", name, samples.Metric)
		}
		for i, w := range want {
			failure, bad := strings.CutPrefix(w, "! ")
			switch {
			case bad && (all[i].err == nil || !strings.Contains(all[i].err.Error(), failure)):
				t.Errorf("%s, row %d: error %v, want it to say %q", name, i+1, all[i].err, failure)
			case bad:
			case all[i].err != nil:
				t.Errorf("%s, row %d: %v", name, i+1, all[i].err)
			case w == "":
				if ids, _ := promptText(t, m, all[i].sample); !slices.Equal(ids, []int32{5, 6, 7}) {
					t.Errorf("%s, row %d: ids %v", name, i+1, ids)
				}
			default:
				ids, _ := promptText(t, m, all[i].sample)
				text, err := m.Tokenizer.Decode(ids, false)
				if err != nil || text != w {
					t.Errorf("%s, row %d: %q, want %q", name, i+1, text, w)
				}
			}
		}
	}
}

// TestDataRefusals: what concerns all rows is told before the first.
func TestDataRefusals(t *testing.T) {
	m := byteModel(t)
	dir := t.TempDir()
	rows := writeFile(t, filepath.Join(dir, "rows.jsonl"), `{"question": "q"}`+"\n"+`{"question": "r"}`)
	for want, change := range map[string]func(s *evaluation.Setting){
		"want --data":             func(s *evaluation.Setting) { s.Data = "" },
		`unknown metric "nosuch"`: func(s *evaluation.Setting) { s.Metrics = []string{"nosuch"} },
		"unknown name \"promt\"":  func(s *evaluation.Setting) { s.Fields = []string{"promt=x"} },
		"no such file":            func(s *evaluation.Setting) { s.Data = filepath.Join(dir, "none") },
		"none of the first rows can be used; the first: " + rows + ":1: got no prompt": func(s *evaluation.Setting) { s.Fields = nil },
		"metrics qa_f1, but none of the first 2 rows of " + rows + " has a reference":  func(s *evaluation.Setting) { s.Metrics = []string{"qa_f1"} },
		`unknown format "xlsx"`: func(s *evaluation.Setting) { s.Options["format"] = "xlsx" },
	} {
		s := setting(t, m, "data")
		s.Data, s.Fields = rows, []string{"prompt=question"}
		change(s)
		openError(t, "data", "", s, want)
	}
	s := setting(t, m, "data")
	s.Data, s.Fields = rows, []string{"prompt=question"}
	if samples, _ := makeAll(t, "data", "", s); samples.Metric != evaluation.Agreement {
		t.Errorf("metric %s of rows without references, want %s", samples.Metric, evaluation.Agreement)
	}
}

// TestDataMetric: answers to rows with short references are scored by whether they contain one, others by
// F1; both are measured, which is said once, and --metric has its way.
func TestDataMetric(t *testing.T) {
	m := byteModel(t)
	short := `{"prompt": "Capital of France?", "answer": ["the beautiful city of Paris, on the banks of the river Seine", "Paris"]}` + "\n"
	long := `{"prompt": "Summarise.", "answer": "The board met on Monday and put the decision off until the accounts are there."}` + "\n"
	for _, c := range []struct {
		name, rows, metric string
		asked              []string
		scores             evaluation.Scores // of a sentence that contains the short one
	}{
		{"short", short + short, "substring_exact_match", nil, evaluation.Scores{"substring_exact_match": 1, "qa_f1": 1.0 / 3}},
		{"long", long, "qa_f1", nil, evaluation.Scores{"substring_exact_match": 0, "qa_f1": 0}},
		{"mostly long", short + long + long, "qa_f1", nil, evaluation.Scores{"substring_exact_match": 1, "qa_f1": 1.0 / 3}},
		{"mostly short", short + long + short + `{"prompt": "x"}` + "\n", "substring_exact_match", nil, evaluation.Scores{"substring_exact_match": 1, "qa_f1": 1.0 / 3}},
		{"asked for", long, "exact_match", []string{"exact_match"}, evaluation.Scores{"exact_match": 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var said strings.Builder
			s := setting(t, m, "data")
			s.Samples, s.Data, s.Metrics, s.Notices = 0, writeFile(t, filepath.Join(t.TempDir(), "notes.jsonl"), c.rows), c.asked, &progress.Notices{W: &said}
			samples, all := makeAll(t, "data", "", s)
			if samples.Metric != c.metric || samples.Count != strings.Count(c.rows, "\n") {
				t.Errorf("metric %s of %d samples, want %s of %d", samples.Metric, samples.Count, c.metric, strings.Count(c.rows, "\n"))
			}
			got, err := all[0].sample.Score(t.Context(), []evaluation.Output{{Text: "It is Paris in France."}})
			if err != nil || !maps.EqualFunc(got, c.scores, func(a, b float64) bool { return math.Abs(a-b) < 1e-12 }) {
				t.Errorf("scores %v, %v, want %v", got, err, c.scores)
			}
			if says := strings.Contains(said.String(), "scored by "+c.metric) && strings.Contains(said.String(), "--metric"); says != (c.asked == nil) {
				t.Errorf("it says %q", said.String())
			}
		})
	}
}
