package tasks

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/model/modeltest"
)

// TestGSM8KChat: worked examples are turns before the problem, of the train file or of the test file, whose first rows are then not asked.
func TestGSM8KChat(t *testing.T) {
	m := modeltest.WithTemplate(t, "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "test.jsonl"), `{"question": "1+1?", "answer": "It is <<1+1=2>>2.\n#### 2"}
{"question": "2+2?", "answer": "#### 4"}
{"question": "1000+200?", "answer": "#### 1,200"}
{"question": "none?", "answer": "none"}
`)
	for _, c := range []struct {
		name, shots, train string
		asked, examples    []string
	}{
		{"no examples", "0", "", []string{"1+1?", "2+2?", "1000+200?", "none?"}, nil},
		{"of the test file", "2", "", []string{"1000+200?", "none?"}, []string{"1+1?", "2+2?"}},
		{"of the train file", "1", `{"question": "3+3?", "answer": "#### 6"}`, []string{"1+1?", "2+2?", "1000+200?", "none?"}, []string{"3+3?"}},
	} {
		if c.train != "" {
			writeFile(t, filepath.Join(dir, "train.jsonl"), c.train)
		}
		s := setting(t, m, "gsm8k-chat", "shots="+c.shots)
		s.Data, s.Samples = dir, 0
		samples, all := makeAll(t, "gsm8k-chat", "", s)
		if len(all) != len(c.asked) || samples.Count != len(all) || samples.Metric != "accuracy" {
			t.Fatalf("%s: %d samples, count %d, by %s, want %d by accuracy", c.name, len(all), samples.Count, samples.Metric, len(c.asked))
		}
		for i, x := range all {
			if c.asked[i] == "none?" {
				if x.err == nil || !strings.Contains(x.err.Error(), `test.jsonl:4: field "answer": got "none", want a number`) {
					t.Errorf("%s: an answer without a number: %v", c.name, x.err)
				}
				continue
			}
			if x.err != nil {
				t.Fatal(x.err)
			}
			_, text := promptText(t, m, x.sample)
			var questions []string
			for _, part := range strings.Split(text, "[user:")[1:] {
				question, _, _ := strings.Cut(part, "]")
				question, asked := strings.CutSuffix(question, "\nPlease reason step by step, and put your final answer within \\boxed{}.")
				if questions = append(questions, question); asked != (c.examples == nil) {
					t.Errorf("%s: asks %q, want a request where there are no examples alone", c.name, part)
				}
			}
			if !slices.Equal(questions, append(slices.Clone(c.examples), c.asked[i])) || strings.Count(text, "[assistant:") != len(c.examples) {
				t.Errorf("%s: asks %v in %q, want %v after %v", c.name, questions, text, c.asked[i], c.examples)
			}
			if x.sample.Turns[0].MaxNew != gsm8kMaxNew {
				t.Errorf("answers of %d tokens, want %d", x.sample.Turns[0].MaxNew, gsm8kMaxNew)
			}
		}
		s.Samples = 1
		if samples, all := makeAll(t, "gsm8k-chat", "", s); len(all) != 1 || samples.Count != 1 {
			t.Errorf("%s: %d samples, count %d, want 1", c.name, len(all), samples.Count)
		}
	}
	s := setting(t, m, "gsm8k-chat", "shots=2")
	s.Data = dir
	openError(t, "gsm8k-chat", "", s, "1 problems, want at least 2")
	s.Options["shots"] = "few"
	openError(t, "gsm8k-chat", "", s, `option shots: got "few", want a number from 0`)
	s.Options["shots"], s.Model = "1", byteModel(t)
	openError(t, "gsm8k-chat", "", s, "has no chat template")
}

// TestGSM8KChatScores: the number behind the last ####, or else the last one, as a number.
func TestGSM8KChatScores(t *testing.T) {
	m := modeltest.WithTemplate(t, "{% for m in messages %}{{ m.content }}{% endfor %}")
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "gsm8k.jsonl"), `{"question": "q", "answer": "10 and 20\n#### 1,200"}`)
	s := setting(t, m, "gsm8k-chat", "shots=0")
	s.Data = dir
	_, all := makeAll(t, "gsm8k-chat", "", s)
	for answer, want := range map[string]float64{
		"#### 1200":                  1,
		"#### $1,200.00 dollars.":    1,
		"It is 1200":                 1,
		"It is \\boxed{1,200}.":      1,
		"#### 1200, not 7":           1,
		"#### 7\n#### 1200":          1,
		"1200 in all: ####":          1,
		"#### 1200\nThat is 1201.":   1,
		"#### -1200":                 0,
		"1200 or 1201":               0,
		"#### 120":                   0,
		"":                           0,
		"no number":                  0,
		"#### the answer is unknown": 0,
	} {
		if got := scoreOf(t, all[0].sample, "accuracy", answer); got != want {
			t.Errorf("%q: %v, want %v", answer, got, want)
		}
	}
}
