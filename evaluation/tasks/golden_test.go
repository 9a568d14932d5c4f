package tasks

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/evaluation/scoring/jieba/jiebatest"
	"glimpse/internal/compare"
	"glimpse/model"
	"glimpse/model/chat"
)

// golden is what lab/golden/golden_tasks.py wrote: files of benchmarks, the prompts that their
// own programs make of them, and answers with their scores.
type golden struct {
	Tokenizer json.RawMessage // of bytes and a few merges
	Cases     []struct {
		Task, Subtask string
		Files         map[string]string
		Options       []string
		Limit         int // Setting.MaxPrompt
		Samples       []struct {
			Prompt string // before the chat template
			Ends   string // instead of Prompt: what it ends with
			Raw    bool
			Answer string
			Scores map[string]float64
			Groups [][2]string
		}
	}
	Real []struct {
		Tokenizer   string
		Row, Tokens int
		SHA256      string
	}
}

func readGolden(t *testing.T) (g golden) {
	t.Helper()
	data, err := os.ReadFile("testdata/golden.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&g); err != nil {
		t.Fatal(err)
	}
	return g
}

// models are random ones with the golden tokenizer, without and with a chat template.
func (g golden) models(t *testing.T) []*model.Model {
	return []*model.Model{
		textModel(t, "golden", g.Tokenizer, nil, 320),
		textModel(t, "golden with a template", g.Tokenizer, map[string]any{
			"bos_token":     "<s>",
			"chat_template": "{{ bos_token }}{% for m in messages %}({{ m.role }}){{ m.content }}{% endfor %}{% if add_generation_prompt %}(assistant){% endif %}",
		}, 320),
	}
}

// wantIDs are the tokens of a prompt that has been truncated.
func wantIDs(t *testing.T, m *model.Model, text string, raw bool) []int32 {
	t.Helper()
	ids, err := m.Encode(text)
	if !raw && m.HasChatTemplate() {
		ids, err = m.EncodeChat(t.Context(), []chat.Message{{Role: "user", Content: text}}, chat.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	return ids
}

// Prompts, truncation, who gets the chat template, post-processing, metrics and groups are
// those of the benchmarks' own programs.
func TestBenchmarksEqualTheirPrograms(t *testing.T) {
	t.Setenv(scoring.JiebaVariable, jiebatest.Read(t, filepath.Join("..", "scoring", "jieba")).Dir)
	g := readGolden(t)
	models := g.models(t)
	seen := map[string]bool{}
	for _, c := range g.Cases {
		name := strings.TrimSuffix(c.Task+"/"+c.Subtask, "/")
		seen[name] = true
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.Files {
				writeFile(t, filepath.Join(dir, file), text)
			}
			for _, m := range models {
				s := setting(t, m, c.Task, c.Options...)
				s.Data, s.Samples, s.MaxPrompt = dir, 0, c.Limit
				samples, all := makeAll(t, c.Task, c.Subtask, s)
				if len(all) != len(c.Samples) {
					t.Fatalf("%d samples, want %d", len(all), len(c.Samples))
				}
				for i, want := range c.Samples {
					if all[i].err != nil {
						t.Fatal(all[i].err)
					}
					sample := all[i].sample
					ids, text := promptText(t, m, sample)
					if want.Ends != "" {
						if !strings.HasSuffix(text, want.Ends) {
							t.Errorf("sample %d: the prompt ends %q, want %q", i, text[max(0, len(text)-len(want.Ends)):], want.Ends)
						}
					} else if w := wantIDs(t, m, want.Prompt, want.Raw); !slices.Equal(ids, w) {
						t.Errorf("%s: sample %d: prompt of %d tokens\n%q\nwant %d\n%q", m.Name, i, len(ids), text, len(w), want.Prompt)
					}
					answer := want.Answer
					for _, stop := range sample.Turns[0].Stop {
						// Leading line ends are kept: the first line that is not empty is scored.
						if at := strings.Index(strings.TrimLeft(answer, "\n"), stop); at >= 0 {
							answer = answer[:len(answer)-len(strings.TrimLeft(answer, "\n"))+at]
						}
					}
					scores, err := sample.Score(t.Context(), []evaluation.Output{{Text: answer}})
					if err != nil {
						t.Fatal(err)
					}
					if _, ok := scores[samples.Metric]; !ok || len(scores) != len(want.Scores) {
						t.Errorf("scores %v, want those of %v with %s", scores, want.Scores, samples.Metric)
					}
					for metric, w := range want.Scores {
						if err := compare.Compare([]float64{scores[metric]}, []float64{w}, compare.Floor(1)).Within(2e-9); err != nil {
							t.Errorf("sample %d, %s of %q: %v", i, metric, answer, err)
						}
					}
					var groups [][2]string
					for _, g := range sample.Groups {
						groups = append(groups, [2]string{g.Key, g.Value})
					}
					if !slices.Equal(groups, want.Groups) {
						t.Errorf("sample %d: groups %v, want %v", i, groups, want.Groups)
					}
				}
			}
		})
	}
	for _, task := range []string{"longbench", "longbench-e"} {
		definition, err := evaluation.Tasks.Lookup(task)
		if err != nil {
			t.Fatal(err)
		}
		for _, subtask := range definition.Subtasks {
			if !seen[task+"/"+subtask] {
				t.Errorf("%s/%s has no case", task, subtask)
			}
		}
	}
}

// What LongBench's truncation leaves of real prompts is what Python's tokenizers leave.
func TestLongBenchTruncatesRealPrompts(t *testing.T) {
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA does not name a data folder: real prompts are not truncated")
	}
	models := textModels(t)
	rows := readLines(t, filepath.Join(root, "longbench", "multi_news.jsonl"))
	real := readGolden(t).Real
	if len(real) < 9 {
		t.Fatalf("%d prompts, want three for each tokenizer", len(real))
	}
	for _, want := range real {
		m := models[want.Tokenizer]
		s := setting(t, m, "longbench")
		s.Data = writeFile(t, filepath.Join(t.TempDir(), "multi_news.jsonl"), rows[want.Row])
		s.MaxPrompt = 3500
		_, all := makeAll(t, "longbench", "multi_news", s)
		if len(all) != 1 || all[0].err != nil {
			t.Fatalf("%d samples, %v", len(all), all[0].err)
		}
		ids, _, err := all[0].sample.Turns[0].Prompt(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		// The text that went into the template: the prompt, cut in the way that the sum stands for.
		var row struct{ Context string }
		if err := json.Unmarshal([]byte(rows[want.Row]), &row); err != nil {
			t.Fatal(err)
		}
		var prompts map[string]string
		longBenchTable("dataset2prompt.json", &prompts)
		text := fillTemplate(prompts["multi_news"], map[string]string{"context": row.Context, "input": ""})
		whole, err := m.Encode(text)
		if err != nil {
			t.Fatal(err)
		}
		if len(whole) != want.Tokens {
			t.Errorf("%s, row %d: %d tokens, want %d", want.Tokenizer, want.Row, len(whole), want.Tokens)
		}
		if len(whole) > s.MaxPrompt {
			if text, err = cutMiddle(s, whole, s.MaxPrompt, halves); err != nil {
				t.Fatal(err)
			}
		}
		if sum := sha256.Sum256([]byte(text)); hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Errorf("%s, row %d: another text is left", want.Tokenizer, want.Row)
		}
		if w := wantIDs(t, m, text, false); !slices.Equal(ids, w) {
			t.Errorf("%s, row %d: %d tokens with the chat template, want %d", want.Tokenizer, want.Row, len(ids), len(w))
		}
	}
}

func readLines(t *testing.T, path string) []string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []string
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		lines = append(lines, in.Text())
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
