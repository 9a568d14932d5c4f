package tasks

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
)

// TestSCBench: the first prompt has exactly the tokens that are asked for; every question
// can be answered from the context, and from it alone; later turns add the question and
// nothing of what was there before.
func TestSCBench(t *testing.T) {
	for name, m := range textModels(t) {
		for _, task := range []string{"kv", "prefix_suffix", "vt"} {
			t.Run(name+"/"+task, func(t *testing.T) {
				lengths := "lengths=2048"
				if name == "bytes" {
					lengths = "lengths=9000"
				}
				s := setting(t, m, "scbench", lengths, "turns=3")
				samples, all := makeAll(t, "scbench", task, s)
				if len(all) != 2 || samples.Metric != scMetric {
					t.Fatalf("%d samples, metric %s", len(all), samples.Metric)
				}
				for _, a := range all {
					if a.err != nil {
						t.Fatal(a.err)
					}
					if n := len(a.sample.Turns); n != 3 {
						t.Fatalf("%d turns", n)
					}
					ids, context := promptText(t, m, a.sample)
					if "lengths="+fmt.Sprint(len(ids)) != lengths {
						t.Errorf("%d tokens", len(ids))
					}
					said := []evaluation.Answer{{Text: " first\n"}, {Text: "second"}}
					var right []evaluation.Answer
					for turn := range a.sample.Turns {
						more, err := a.sample.Turns[turn].Prompt(t.Context(), said[:turn])
						if err != nil {
							t.Fatal(err)
						}
						text, err := m.Tokenizer.Decode(more, true)
						if err != nil {
							t.Fatal(err)
						}
						if turn > 0 && (len(text) > 500 || strings.Contains(text, "first") || strings.Contains(text, "second")) {
							t.Errorf("turn %d adds %q", turn+1, text)
						}
						right = append(right, evaluation.Answer{Text: scAnswer(t, task, context, text)})
					}
					scores, err := a.sample.Score(t.Context(), right)
					if err != nil || scores[scMetric] != 1 || scores[scMetric+"_turn_3"] != 1 || len(scores) != 4 {
						t.Errorf("right answers %v are rated %v, %v", right, scores, err)
					}
					right[1].Text = "no"
					if scores, _ := a.sample.Score(t.Context(), right); scores[scMetric] != 2.0/3 || scores[scMetric+"_turn_2"] != 0 {
						t.Errorf("one wrong answer: %v", scores)
					}
				}
			})
		}
	}
}

// scAnswer finds the answer to the last question of a text in the context.
func scAnswer(t *testing.T, task, context, text string) string {
	t.Helper()
	one := func(all [][]string) string {
		if len(all) != 1 {
			t.Fatalf("%d answers to %q", len(all), text)
		}
		return all[0][1]
	}
	switch task {
	case "kv":
		key := regexp.MustCompile(`Key: "(\S+)"\nThe value`).FindStringSubmatch(text)[1]
		return one(regexp.MustCompile(`"`+key+`": "(\S+)"`).FindAllStringSubmatch(context, -1))
	case "prefix_suffix":
		ends := regexp.MustCompile(`begins with "(\w+)" and ends with "(\w+)"`).FindStringSubmatch(text)
		return one(regexp.MustCompile(`(?m)^(`+ends[1]+`\w+`+ends[2]+`)$`).FindAllStringSubmatch(context, -1))
	}
	value := regexp.MustCompile(`assigned the value (\d+) in`).FindStringSubmatch(text)[1]
	var chain []string
	for _, s := range regexp.MustCompile(`VAR (\w+) = (?:VAR )?(\w+)`).FindAllStringSubmatch(context, -1) {
		if s[2] == value || slices.Contains(chain, s[2]) {
			chain = append(chain, s[1])
		}
	}
	if len(chain) != 5 {
		t.Fatalf("%d variables with the value %s, want 5", len(chain), value)
	}
	return strings.Join(chain, " ")
}

// TestSCBenchFiles reads rows as SCBench has them.
func TestSCBenchFiles(t *testing.T) {
	m := byteModel(t)
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "scbench_qa_eng.jsonl"), `{"id": 0, "context": "A book.", "multi_turns": [{"input": "Who?", "answer": ["Ann", "Anna"]}, {"input": "Where?", "answer": "Rome"}]}
{"id": 1, "context": "A book.", "multi_turns": []}
{"id": 2, "context": "A book.", "multi_turns": [{"input": "Who?"}]}
`)
	s := setting(t, m, "scbench")
	s.Data = dir
	s.Samples = 0
	_, all := makeAll(t, "scbench", "qa_eng", s)
	if len(all) != 3 || all[0].err != nil {
		t.Fatalf("%d samples, %v", len(all), all[0].err)
	}
	if _, text := promptText(t, m, all[0].sample); text != "Read the book and answer the question. Be very concise in your answer.\n\nA book.\n\nQuestion: Who?\nAnswer:" {
		t.Errorf("prompt %q", text)
	}
	ids, err := all[0].sample.Turns[1].Prompt(t.Context(), []evaluation.Answer{{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := m.Tokenizer.Decode(ids, true); text != "\n\nQuestion: Where?\nAnswer:" {
		t.Errorf("second turn %q", text)
	}
	if scores, err := all[0].sample.Score(t.Context(), []evaluation.Answer{{Text: "It is ANNA."}, {Text: "Paris"}}); err != nil || scores[scMetric] != 0.5 {
		t.Errorf("scores %v, %v", scores, err)
	}
	for i, want := range map[int]string{1: `:2: field "multi_turns": got no turns`, 2: `:3: field "multi_turns.0.answer": missing`} {
		if all[i].err == nil || !strings.Contains(all[i].err.Error(), want) {
			t.Errorf("row %d: error %v, want it to say %q", i, all[i].err, want)
		}
	}
	openError(t, "scbench", "qa_eng", setting(t, m, "scbench"), "want --data with scbench_qa_eng.jsonl")
	openError(t, "scbench", "kv", setting(t, m, "scbench", "turns=0"), `option turns: got "0"`)
	openError(t, "scbench", "kv", setting(t, m, "scbench", "lengths=200000"), "prompts of 200000 tokens")
}
