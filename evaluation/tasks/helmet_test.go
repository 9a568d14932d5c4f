package tasks

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
)

func TestAnswerAfter(t *testing.T) {
	cases := []struct{ text, prefix, want string }{
		{" Paris \nmore", "Answer:", "Paris"},
		{"I think so.\nanswer: Paris\nAnswer: Rome", "Answer:", "Paris"},
		{"label: Label: 7", "label:", "7"},
		{"", "Answer:", ""},
		{"Answer:", "Answer:", ""},
		{"a(b: 3", "a(b:", "3"},
	}
	for _, c := range cases {
		if got := answerAfter(c.text, c.prefix); got != c.want {
			t.Errorf("after %q in %q: %q, want %q", c.prefix, c.text, got, c.want)
		}
	}
}

func TestUncited(t *testing.T) {
	if got := uncited("It is [1][2] red [10 |.\n\nAnd so[3].<|im_end|>"); got != "It is red. And so." {
		t.Errorf("%q", got)
	}
}

// Worked examples are of other questions, as many as were asked for, and always the same.
func TestHELMETExamples(t *testing.T) {
	m := readGolden(t).models(t)[0]
	dir := t.TempDir()
	row := func(i int, popularity float64) string {
		data, _ := json.Marshal(map[string]any{"id": fmt.Sprint(i), "question": fmt.Sprintf("question %d?", i), "answers": []string{fmt.Sprintf("answer %d", i)},
			"s_pop": popularity, "ctxs": []any{map[string]any{"title": "T", "text": fmt.Sprintf("text %d", i)}}})
		return string(data)
	}
	var rows []string
	for i := range 6 {
		rows = append(rows, row(i, 10))
	}
	rows = append(rows, row(6, 999), row(7, 1000)) // log10 below 3, and not
	writeFile(t, filepath.Join(dir, "kilt", "popqa_test_1000_k50_dep6.jsonl"), strings.Join(rows, "\n"))
	writeFile(t, filepath.Join(dir, "kilt", "popqa_test_1000_k3_dep6.jsonl"), strings.Join(append(rows, rows...), "\n"))
	s := setting(t, m, "helmet")
	s.Data, s.Samples = dir, 0
	_, all := makeAll(t, "helmet", "kilt_popqa", s)
	if len(all) != 7 {
		t.Fatalf("%d samples, want 7 without the popular entity", len(all))
	}
	_, again := makeAll(t, "helmet", "kilt_popqa", s)
	drawnTexts := map[string]bool{}
	for i, a := range all {
		if a.err != nil {
			t.Fatal(a.err)
		}
		_, text := promptText(t, m, a.sample)
		if _, second := promptText(t, m, again[i].sample); text != second {
			t.Errorf("sample %d: the same seed gives other examples", i)
		}
		if strings.Count(text, "Answer: answer") != 2 || strings.Contains(text, fmt.Sprintf("Answer: answer %d\n", i)) || strings.Contains(text, "answer 7") {
			t.Errorf("sample %d: %q", i, text)
		}
		drawnTexts[text[strings.Index(text, "Document"):strings.LastIndex(text, "Document")]] = true
	}
	if len(drawnTexts) < 3 {
		t.Errorf("%d different pairs of examples for 7 questions", len(drawnTexts))
	}
	s.Options["shots"] = "7"
	openError(t, "helmet", "kilt_popqa", s, "7 questions, want more than 7")
	s.Options["shots"] = "-1"
	openError(t, "helmet", "kilt_popqa", s, "option shots")
	s.Options["shots"], s.Options["length"] = "2", "5"
	openError(t, "helmet", "kilt_popqa", s, "option length")
	s.Options["length"] = "16384"
	openError(t, "helmet", "kilt_popqa", s, "no data")
}

// Lists of answers are compared by their spellings (eval_alce.py, compute_qampari_f1).
func TestQampari(t *testing.T) {
	m := readGolden(t).models(t)[0]
	dir := t.TempDir()
	var answers [][]string
	for i := range 8 {
		answers = append(answers, []string{fmt.Sprintf("The Film %d", i), fmt.Sprintf("movie %d", i)})
	}
	data, _ := json.Marshal([]any{map[string]any{"question": "which?", "docs": []any{}, "answers": answers}})
	writeFile(t, filepath.Join(dir, "alce_qampari.json"), string(data))
	writeFile(t, filepath.Join(dir, "qampari_revised.json"), `{"instruction": "List.", "doc_prompt": "{text}", "demo_prompt": "{question}: {answer}", "demos": [{"question": "q", "answer": "a", "docs": []}]}`)
	s := setting(t, m, "helmet", "shots=1")
	s.Data = dir
	samples, all := makeAll(t, "helmet", "alce_qampari", s)
	if all[0].err != nil || samples.Metric != "qampari_rec_top5" {
		t.Fatal(samples.Metric, all[0].err)
	}
	if _, text := promptText(t, m, all[0].sample); text != "q: a\n\n\nList.\n\nQuestion: which?\n\n\n\nAnswer:" {
		t.Errorf("prompt %q", text)
	}
	cases := []struct {
		answer                string
		precision, recall, f1 float64
	}{
		{"film 0 [1], Movie 1 [2], other.", 2.0 / 3, 2.0 / 5, 0.5},
		{"film 0, movie 0, film 1", 1, 2.0 / 5, 4.0 / 7}, // two spellings of one
		{"film 0, film 1, film 2, film 3, film 4, film 5.", 1, 1, 1},
		{" , . ", 0, 0, 0},
	}
	for _, c := range cases {
		scores, err := all[0].sample.Score(t.Context(), []evaluation.Output{{Text: c.answer}})
		if err != nil {
			t.Fatal(err)
		}
		got := []float64{scores["qampari_prec"], scores["qampari_rec_top5"], scores["qampari_f1_top5"]}
		for i, want := range []float64{c.precision, c.recall, c.f1} {
			if d := got[i] - want; d > 1e-12 || d < -1e-12 {
				t.Errorf("%q: %v, want %v, %v, %v", c.answer, got, c.precision, c.recall, c.f1)
			}
		}
	}
}

func TestLMEvalOptions(t *testing.T) {
	m := readGolden(t).models(t)[0]
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "coqa.jsonl"), `{"story": "s", "questions": {"input_text": ["q1", "q2"]}, "answers": {"input_text": ["a1", "a2"]}}
{"story": "s", "questions": {"input_text": ["q1"]}, "answers": {"input_text": []}}`)
	s := setting(t, m, "lm-eval", "turns=all")
	s.Data, s.Samples = dir, 0
	_, all := makeAll(t, "lm-eval", "coqa", s)
	if len(all) != 3 || all[2].err == nil || !strings.Contains(all[2].err.Error(), "coqa.jsonl:2: 1 questions and 0 answers") {
		t.Fatalf("%d samples, %+v", len(all), all)
	}
	for i, want := range []string{"s\n\nQ: q1\n\nA:", "s\n\nQ: q1\n\nA: a1\n\nQ: q2\n\nA:"} {
		if _, text := promptText(t, m, all[i].sample); text != want {
			t.Errorf("prompt %q, want %q", text, want)
		}
	}
	s.Options["turns"] = "first"
	openError(t, "lm-eval", "coqa", s, `got "first", want last or all`)

	writeFile(t, filepath.Join(dir, "gsm8k.jsonl"), `{"question": "1+1?", "answer": "#### 2"}`)
	openError(t, "lm-eval", "gsm8k", s, "no gsm8k_train to take 5 worked examples from")
	var train []string
	for i := range 9 {
		train = append(train, fmt.Sprintf(`{"question": "%d+0?", "answer": "#### %d"}`, i, i))
	}
	writeFile(t, filepath.Join(dir, "gsm8k_train.jsonl"), strings.Join(train, "\n"))
	_, all = makeAll(t, "lm-eval", "gsm8k", s)
	_, text := promptText(t, m, all[0].sample)
	if strings.Count(text, "Answer: #### ") != 5 || !strings.HasSuffix(text, "\n\nQuestion: 1+1?\nAnswer:") {
		t.Errorf("prompt %q", text)
	}
	s.Options["shots"] = "10"
	openError(t, "lm-eval", "gsm8k", s, "9 problems, want at least 10")

	if got := drawn(1, "a question", 50, 50); !slices.Equal(got, drawn(1, "a question", 50, 50)) || slices.Equal(got, drawn(2, "a question", 50, 50)) || slices.Equal(got, drawn(1, "another", 50, 50)) {
		t.Error("what is drawn depends on the seed and the question alone")
	}
}
