package tasks

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
)

const longBenchLine = `{"input": "who?", "context": "the text", "answers": ["Ann"], "length": 3, "all_classes": null}`

// The embedded tables have every data set, and nothing else.
func TestLongBenchTables(t *testing.T) {
	var prompts, first map[string]string
	var lengths map[string]int
	longBenchTable("dataset2prompt.json", &prompts)
	longBenchTable("dataset2maxlen.json", &lengths)
	longBenchTable("question_first.json", &first)
	for _, set := range longBenchSets {
		if !strings.Contains(prompts[set.name], "{context}") || lengths[set.name] < 32 {
			t.Errorf("%s: prompt %q, answers of %d tokens", set.name, prompts[set.name], lengths[set.name])
		}
		if _, err := scoring.Metrics.Lookup(set.metric); err != nil {
			t.Errorf("%s: %v", set.name, err)
		}
	}
	raw := longBenchNames(func(s longBenchSet) bool { return s.raw })
	if want := []string{"trec", "triviaqa", "samsum", "lsht", "lcc", "repobench-p"}; !slices.Equal(raw, want) {
		t.Errorf("without the chat template: %v, want %v", raw, want)
	}
	if len(prompts) != 21 || len(lengths) != 21 || len(longBenchSets) != 21 || len(first) != 3 {
		t.Errorf("%d prompts, %d lengths, %d data sets, %d prompts with the question first", len(prompts), len(lengths), len(longBenchSets), len(first))
	}
	for name, prompt := range first { // Judge Q, appendix A.3
		if q, c := strings.Index(prompt, "{input}"), strings.Index(prompt, "{context}"); q < 0 || c < q {
			t.Errorf("%s: the question does not stand before the text: %q", name, prompt)
		}
	}
}

func TestLongBenchOptions(t *testing.T) {
	m := readGolden(t).models(t)[1]
	dir := t.TempDir()
	for _, name := range []string{"narrativeqa", "trec", "lcc", "samsum"} {
		writeFile(t, filepath.Join(dir, name+".jsonl"), longBenchLine)
	}
	with := func(options ...string) *evaluation.Setting {
		s := setting(t, m, "longbench", options...)
		s.Data, s.Samples = dir, 0
		return s
	}
	_, all := makeAll(t, "longbench", "narrativeqa", with("question=first"))
	if _, text := promptText(t, m, all[0].sample); !strings.Contains(text, "Question: who?.\n\nStory: the text") {
		t.Errorf("prompt %q", text)
	}
	openError(t, "longbench", "trec", with("question=first"), "is there for multifieldqa_en, narrativeqa, qasper")
	openError(t, "longbench", "narrativeqa", with("question=middle"), `got "middle", want first or last`)
	openError(t, "longbench", "lcc", with("code_sim=other"), `got "other", want difflib or levenshtein`)
	if samples, _ := makeAll(t, "longbench", "lcc", with("code_sim=levenshtein")); samples.Metric != "code_sim_levenshtein" {
		t.Errorf("metric %s", samples.Metric)
	}
	_, all = makeAll(t, "longbench", "samsum", with())
	if turn := all[0].sample.Turns[0]; turn.MaxNew != 128 || !slices.Equal(turn.Stop, []string{"\n"}) {
		t.Errorf("samsum: %d tokens, stops at %q", turn.MaxNew, turn.Stop)
	}
	s := with()
	s.MaxNew = 5
	if _, all = makeAll(t, "longbench", "samsum", s); all[0].sample.Turns[0].MaxNew != 5 {
		t.Error("the user's limit of an answer is not taken")
	}
	// A class is needed to score, and its absence is that sample's error.
	_, all = makeAll(t, "longbench", "trec", with())
	if _, err := all[0].sample.Score(t.Context(), []evaluation.Output{{Text: "x"}}); err == nil || !strings.Contains(err.Error(), "classes") {
		t.Errorf("error %v, want one about the classes", err)
	}
}

// Data that has only some of the data sets; rows that are bad.
func TestLongBenchData(t *testing.T) {
	m := readGolden(t).models(t)[0]
	dir := t.TempDir()
	file := writeFile(t, filepath.Join(dir, "qasper.jsonl"), longBenchLine+`
{"input": "who?", "context": ["a list", {}], "answers": ["Ann"]}
not JSON
{"input": "who?", "context": "text"}
`+longBenchLine)
	writeFile(t, filepath.Join(dir, "qasper_e.jsonl"), `{"input": "who?", "context": "text", "answers": ["Ann"], "length": "many"}`)
	s := setting(t, m, "longbench")
	s.Data, s.Samples = dir, 0
	definition, _ := evaluation.Tasks.Lookup("longbench")
	if _, err := definition.Open(t.Context(), s, "musique"); !errors.Is(err, evaluation.ErrNoData) || !strings.Contains(err.Error(), "has no musique") {
		t.Errorf("error %v, want ErrNoData", err)
	}
	s.Data = file // a file is that of its name alone
	if _, err := definition.Open(t.Context(), s, "musique"); !errors.Is(err, evaluation.ErrNoData) {
		t.Errorf("error %v, want ErrNoData", err)
	}
	_, all := makeAll(t, "longbench", "qasper", s)
	if len(all) != 5 || all[0].err != nil || all[4].err != nil {
		t.Fatalf("%d samples, %v, %v", len(all), all[0].err, all[4].err)
	}
	for i, want := range map[int]string{1: `qasper.jsonl:2: field "context"`, 2: "qasper.jsonl:3: ", 3: `qasper.jsonl:4: field "answers": missing`} {
		if all[i].err == nil || !strings.Contains(all[i].err.Error(), want) {
			t.Errorf("row %d: error %v, want it to say %q", i+1, all[i].err, want)
		}
	}
	s.Samples = 2
	if _, all := makeAll(t, "longbench", "qasper", s); len(all) != 2 {
		t.Errorf("%d samples, want the first 2", len(all))
	}
	e := setting(t, m, "longbench-e")
	e.Data = dir
	if _, all := makeAll(t, "longbench-e", "qasper", e); all[0].err == nil || !strings.Contains(all[0].err.Error(), `field "length"`) {
		t.Errorf("error %v, want one about the length", all[0].err)
	}
	t.Setenv(scoring.JiebaVariable, "")
	if slices.Contains(definition.Defaults, "dureader") {
		t.Error("the task alone stands for Chinese data sets, which need a dictionary")
	}
}

// A prompt that the model cannot take with the template around it is cut further.
func TestEncodeLongFitsTheModel(t *testing.T) {
	g := readGolden(t)
	for _, m := range g.models(t) {
		for _, maxPrompt := range []int{0, 200, 400} {
			for _, room := range []int{60, 150, 1000} {
				s := setting(t, m, "longbench")
				s.MaxPrompt = maxPrompt
				text := strings.Repeat("some words of a long text. ", 60) + "The end"
				maxNew := m.Config.MaxPositions + 1 - room
				ids, err := encodeLong(t.Context(), s, text, false, maxNew, halves)
				if err != nil {
					t.Fatal(err)
				}
				got, err := m.Tokenizer.Decode(ids, true)
				if err != nil {
					t.Fatal(err)
				}
				if len(ids) > room || len(ids) < min(room, 200)-16 || !strings.Contains(got, "some words") || !strings.Contains(got, "The end") {
					t.Errorf("%s, limit %d, room for %d: %d tokens, %q", m.Name, maxPrompt, room, len(ids), got)
				}
			}
		}
	}
	m := g.models(t)[1]
	s := setting(t, m, "longbench")
	if _, err := encodeLong(t.Context(), s, "text", false, m.Config.MaxPositions, halves); err == nil || !strings.Contains(err.Error(), "leave no room") {
		t.Errorf("error %v, want one that there is no room", err)
	}
	s.Truncate, s.MaxPrompt = evaluation.TruncateLeft, 40
	ids, err := encodeLong(t.Context(), s, strings.Repeat("begin ", 40)+"The end", false, 8, halves)
	if err != nil || len(ids) > 40 {
		t.Fatalf("%d tokens, %v", len(ids), err)
	}
}

// HELMET cuts the end of the context and leaves the question.
func TestEncodeContext(t *testing.T) {
	for _, m := range readGolden(t).models(t) {
		s := setting(t, m, "helmet")
		s.MaxPrompt = 90
		values := map[string]string{"context": strings.Repeat("one two three ", 40), "question": "who?"}
		ids, err := encodeContext(t.Context(), s, "Read: {context}\n\nQuestion: {question}", values, false, 8)
		if err != nil {
			t.Fatal(err)
		}
		text, err := m.Tokenizer.Decode(ids, true)
		if err != nil {
			t.Fatal(err)
		}
		if len(ids) > 90 || len(ids) < 80 || !strings.Contains(text, "Read: one two three") || !strings.Contains(text, "\n\nQuestion: who?") {
			t.Errorf("%d tokens: %q", len(ids), text)
		}
		s.MaxPrompt = 10
		if _, err := encodeContext(t.Context(), s, "Read: {context}\n\nQuestion: {question}", values, false, 8); err == nil || !strings.Contains(err.Error(), "leaves nothing") {
			t.Errorf("error %v", err)
		}
	}
}

func TestLongProcPages(t *testing.T) {
	m := readGolden(t).models(t)[0]
	dir := t.TempDir()
	row := func(page string) string {
		data, _ := json.Marshal(map[string]string{"task_topic": "t", "task_description": "d", "tsv_header": "a", "filtering_instruction": "", "html_path": page, "gt": "a\n1"})
		return string(data)
	}
	writeFile(t, filepath.Join(dir, "secret.html"), "secret")
	writeFile(t, filepath.Join(dir, "data", "prompts.yaml"), "USER_PROMPT: '{html_str}'\n")
	writeFile(t, filepath.Join(dir, "data", "webpage", "p.html"), "page")
	writeFile(t, filepath.Join(dir, "data", "html_to_tsv_2k.json"), "["+row("webpage/p.html")+","+row("../secret.html")+"]")
	s := setting(t, m, "longproc")
	s.Data = filepath.Join(dir, "data")
	_, all := makeAll(t, "longproc", "html_to_tsv_2k", s)
	if len(all) != 2 || all[0].err != nil || all[1].err == nil || !strings.Contains(all[1].err.Error(), `element 1: field "html_path"`) {
		t.Fatalf("%d samples, %v, %v", len(all), all[0].err, all[1].err)
	}
	if _, text := promptText(t, m, all[0].sample); text != "page" || all[0].sample.Turns[0].MaxNew != 3072 {
		t.Errorf("prompt %q, %d tokens", text, all[0].sample.Turns[0].MaxNew)
	}
	writeFile(t, filepath.Join(dir, "data", "prompts.yaml"), "OTHER: x\n")
	openError(t, "longproc", "html_to_tsv_2k", s, "no USER_PROMPT")
	s.Data = dir
	openError(t, "longproc", "html_to_tsv_2k", s, "no data")
	s.Data = "s3://bucket/longproc"
	openError(t, "longproc", "html_to_tsv_2k", s, "want a local folder")
}
