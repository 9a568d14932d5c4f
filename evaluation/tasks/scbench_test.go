package tasks

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/model/modeltest"
	"glimpse/model/runner"
)

// TestSCBench: the first prompt has exactly the tokens that are asked for; every question
// can be answered from the context, and from it alone; later turns add the question and
// nothing of what was there before.
func TestSCBench(t *testing.T) {
	for name, m := range textModels(t) {
		for _, task := range []string{"kv", "prefix_suffix", "vt", "needles"} {
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
					said := []evaluation.Output{{Text: " first\n"}, {Text: "second"}}
					var right []evaluation.Output
					for turn := range a.sample.Turns {
						more, _, err := a.sample.Turns[turn].Prompt(t.Context(), said[:turn])
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
						right = append(right, evaluation.Output{Text: scAnswer(t, task, context, text)})
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
	case "needles":
		about := regexp.MustCompile(`special magic number for (\S+) mentioned`).FindAllStringSubmatch(text, -1)
		return one(regexp.MustCompile(`special magic numbers for `+about[len(about)-1][1]+` is: (\d+)\.`).FindAllStringSubmatch(context, -1))
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
	ids, _, err := all[0].sample.Turns[1].Prompt(t.Context(), []evaluation.Output{{Text: "x"}})
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := m.Tokenizer.Decode(ids, true); text != "\n\nQuestion: Where?\nAnswer:" {
		t.Errorf("second turn %q", text)
	}
	if scores, err := all[0].sample.Score(t.Context(), []evaluation.Output{{Text: "It is ANNA."}, {Text: "Paris"}}); err != nil || scores[scMetric] != 0.5 {
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

// TestSCBenchRewrittenHistory: a chat template that drops the thoughts before an answer once it
// is said does not end a conversation. Every turn is answered as the whole conversation is.
func TestSCBenchRewrittenHistory(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := textModel(t, "thinking", golden, map[string]any{
		"chat_template": "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:<think></think>{% endif %}",
	}, 256)
	s := setting(t, m, "scbench", "lengths=2000", "turns=3")
	samples, all := makeAll(t, "scbench", "kv", s)
	var policies []engine.Policy
	for _, name := range []string{"full", "snapkv"} {
		p, err := eviction.New(name, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, engine.Policy{Configured: p})
	}
	for _, batch := range []int{1, 3} {
		results := evaluation.NewResults(nil, false)
		if _, err := evaluation.Run(t.Context(), m, []evaluation.Work{{Name: "kv", Samples: samples}}, evaluation.Options{
			Policies: policies, Budgets: []eviction.Budget{eviction.Pairs(64)}, Batch: batch, Concurrency: 1,
		}, results); err != nil {
			t.Fatal(err)
		}
		if n := len(results.Predictions()); n != 4 {
			t.Fatalf("%d predictions, want 2 samples of 2 policies", n)
		}
		for _, p := range results.Predictions() {
			if p.Error != "" || len(p.Answers) != 3 {
				t.Fatalf("%s: %d answers, %s", p.Policy, len(p.Answers), p.Error)
			}
			// The full cache keeps what comes before the thoughts; what was evicted is read again.
			if got := p.Measures[evaluation.MeasureReread]; (got > 2000) != (p.Policy == "snapkv") || got < 2*float64(len("<think></think>")) {
				t.Errorf("%s: %v tokens are read again", p.Policy, got)
			}
			sample, cell := all[p.Index].sample, policies[0].Configured
			if p.Policy == "snapkv" {
				cell = policies[1].Configured
			}
			var said []evaluation.Output
			for turn, answer := range p.Answers {
				ids, whole, err := sample.Turns[turn].Prompt(t.Context(), said)
				if err != nil || len(ids) < 2000 || turn > 0 && !whole {
					t.Fatalf("turn %d has %d tokens, %v", turn+1, len(ids), err)
				}
				alone, err := eviction.NewRuntime(m).Prefill(t.Context(), cell, eviction.Prompt{Tokens: ids, Budget: 64})
				if err != nil {
					t.Fatal(err)
				}
				tokens, _, err := alone.Generate(t.Context(), runner.GenerateOptions{MaxNew: sample.Turns[turn].MaxNew})
				if err != nil {
					t.Fatal(err)
				}
				if want, err := m.Tokenizer.Decode(tokens, true); err != nil || answer != want {
					t.Errorf("%s: turn %d answers %q, the whole conversation %q, %v", p.Policy, turn+1, answer, want, err)
				}
				said = append(said, evaluation.Output{Text: answer})
			}
		}
	}
}

// TestConversationOfCutPrompt: a conversation that is given whole has the first prompt as it was
// cut, not as it was before.
func TestConversationOfCutPrompt(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := textModel(t, "counting", golden, map[string]any{
		"chat_template": "{{ messages|length }}{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:",
	}, 256)
	s := setting(t, m, "mtbench")
	s.MaxPrompt, s.Truncate = 100, evaluation.TruncateMiddle
	turns, err := (&conversation{setting: s, users: []string{strings.Repeat("abcdefghij", 50), "more"}, maxNew: 5}).turns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first, _, err := turns[0].Prompt(t.Context(), nil)
	if err != nil || len(first) > 100 {
		t.Fatalf("%d tokens, %v", len(first), err)
	}
	before, err := m.Tokenizer.Decode(first, true)
	if err != nil {
		t.Fatal(err)
	}
	ids, whole, err := turns[1].Prompt(t.Context(), []evaluation.Output{{Text: " yes\n"}})
	if err != nil || !whole {
		t.Fatalf("whole is %v, %v", whole, err)
	}
	if got, err := m.Tokenizer.Decode(ids, true); err != nil || got != "3"+before[1:]+"yes;u:more;a:" {
		t.Errorf("%q, %v, after %q", got, err, before)
	}
}

// TestSCBenchContextFirst: a context is evicted before any question is known, and every question is answered as it is alone,
// whatever else was asked.
func TestSCBenchContextFirst(t *testing.T) {
	golden, err := os.ReadFile(filepath.Join(modeltest.Testdata(t), "golden", "llama3.1", "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	m := textModel(t, "framed", golden, map[string]any{
		"chat_template": "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}{% if add_generation_prompt %}a:{% endif %}",
	}, 256)
	s := setting(t, m, "scbench", "lengths=1500", "turns=3")
	s.ContextFirst = true
	samples, all := makeAll(t, "scbench", "kv", s)
	_, whole := makeAll(t, "scbench", "kv", setting(t, m, "scbench", "lengths=1500", "turns=3"))
	var policies []engine.Policy
	for _, name := range []string{"full", "snapkv"} {
		p, err := eviction.New(name, 1, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		policies = append(policies, engine.Policy{Configured: p})
	}
	nll := make(map[string]float64) // by policy and sample
	for _, c := range []struct {
		batch    int
		policies []engine.Policy
	}{{1, policies}, {4, policies}, {1, policies[1:]}} { // also where the full cache is not measured
		batch := c.batch
		results := evaluation.NewResults(nil, false)
		if _, err := evaluation.Run(t.Context(), m, []evaluation.Work{{Name: "kv", Samples: samples}}, evaluation.Options{
			Policies: c.policies, Budgets: []eviction.Budget{eviction.Pairs(64)}, Batch: batch, Concurrency: 1,
		}, results); err != nil {
			t.Fatal(err)
		}
		for _, p := range results.Predictions() {
			if p.Error != "" || len(p.Answers) != 3 || !(p.Measures[evaluation.MeasureNLL] > 0) {
				t.Fatalf("%s: %d answers, nll %v, %s", p.Policy, len(p.Answers), p.Measures[evaluation.MeasureNLL], p.Error)
			}
			key, now := fmt.Sprint(p.Policy, p.Index), p.Measures[evaluation.MeasureNLL]
			if before, known := nll[key]; known && before != now {
				t.Errorf("%s: nll %v, before %v", key, now, before)
			}
			nll[key] = now
			sample, cell := all[p.Index].sample, policies[slices.IndexFunc(policies, func(c engine.Policy) bool { return c.Configured.Name == p.Policy })]
			for turn, answer := range p.Answers {
				question, _, err := sample.Turns[turn].Prompt(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				if turn == 0 {
					_, text := promptText(t, m, whole[p.Index].sample)
					if got, _ := m.Tokenizer.Decode(slices.Concat(sample.Context, question), true); got != text {
						t.Errorf("context and question are %.60q…, want %.60q…", got, text)
					}
				}
				alone, err := eviction.NewRuntime(m).Prefill(t.Context(), cell.Configured, eviction.Prompt{Tokens: sample.Context, Budget: 64})
				if err != nil {
					t.Fatal(err)
				}
				alone.KeepRest()
				if err := alone.Turn(t.Context(), eviction.Prompt{Tokens: question}); err != nil {
					t.Fatal(err)
				}
				tokens, _, err := alone.Generate(t.Context(), runner.GenerateOptions{MaxNew: sample.Turns[turn].MaxNew})
				if err != nil {
					t.Fatal(err)
				}
				if text, _ := m.Tokenizer.Decode(tokens, true); text != answer {
					t.Errorf("%s, batch %d, question %d: %q, alone %q", p.Policy, batch, turn+1, answer, text)
				}
			}
		}
	}
}
