package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/internal/cli"
	"glimpse/model/modeltest"
	"glimpse/training/runs"
)

// TestTrainingMixes: the mixes of lab/papers/training read small files of the shapes that the
// public sets have, every source gives its share, and recipes make of it what the papers do.
func TestTrainingMixes(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "model")
	if err := os.CopyFS(model, os.DirFS(modeltest.GoldenNamed(t, "llama2").Folder)); err != nil {
		t.Fatal(err)
	}
	writeIn(t, model, "tokenizer_config.json", `{"bos_token": "<|bos|>", "eos_token": "<|end|>",
		"chat_template": "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}{{ eos_token }}{% endfor %}{% if add_generation_prompt %}me:{% endif %}"}`)
	rows := func(n int, row func(i int) map[string]any) string {
		var out strings.Builder
		for i := range n {
			line, err := json.Marshal(row(i))
			if err != nil {
				t.Fatal(err)
			}
			out.Write(append(line, '\n'))
		}
		return out.String()
	}
	list := func(lines string) string {
		return "[" + strings.Join(strings.Split(strings.TrimSpace(lines), "\n"), ",") + "]"
	}
	turns := func(i int) []map[string]string {
		return []map[string]string{{"role": "user", "content": fmt.Sprint("where is it ", i)}, {"role": "assistant", "content": "there"}}
	}
	few := rows(3, func(i int) map[string]any {
		return map[string]any{"prompt": fmt.Sprint("Q: one A: two Q: ", i, " A:"), "chosen": " three", "rejected": " four"}
	})
	longSFT := list(rows(50, func(i int) map[string]any {
		return map[string]any{"document": fmt.Sprint("the story ", i), "messages": turns(i)[:1], "answers": []string{"in the story"}}
	}))
	for _, c := range []struct {
		config  string
		sources map[string]string // file by the path's beginning
		fields  string            // of the first source, in the place of the file's
		want    map[string]int    // pairs whose prompt has the text
	}{
		{"lookaheadkv_pairs.yaml", map[string]string{
			"data/ChatQA2": longSFT,
			"data/tulu-3": rows(20, func(i int) map[string]any {
				return map[string]any{"id": fmt.Sprint(i), "messages": turns(i), "source": "x"}
			}),
			"data/the-stack": rows(7, func(i int) map[string]any {
				return map[string]any{"content": fmt.Sprint("int main() { return ", i, "; }"), "lang": "C", "size": 20}
			}),
			"data/MetaMath": few, "data/HellaSwag": few, "data/ARC": few,
		}, "", map[string]int{"the story": 50, "user: where": 20, "Q: one": 9, "in": 7}},
		{"lookaheadkv_pairs.yaml", map[string]string{
			"data/ChatQA2": list(rows(50, func(i int) map[string]any {
				return map[string]any{"question": fmt.Sprint("what of ", i), "answer": "this"}
			})),
			"data/tulu-3": few, "data/the-stack": rows(2, func(i int) map[string]any { return map[string]any{"content": "return 0"} }), "data/MetaMath": few, "data/HellaSwag": few, "data/ARC": few,
		}, "sources.0.fields={preset: qa}", map[string]int{"user: what of": 50, "Q: one": 12}},
		{"judgeq_pairs.yaml", map[string]string{
			"data/ShareGPT-Chinese-English-90k/sharegpt_jsonl/common": rows(9, func(i int) map[string]any {
				return map[string]any{"conversation_id": i, "category": "common", "conversation": []map[string]string{{"human": "say one", "assistant": "one"}, {"human": "say two", "assistant": "two and more words"}}}
			}),
			"data/ShareGPT-Chinese-English-90k/sharegpt_jsonl/computer": rows(1, func(int) map[string]any {
				return map[string]any{"conversation": []map[string]string{{"human": "what is a bit", "assistant": "zero or one, as one likes"}}}
			}),
		}, "", map[string]int{"user: say one": 9, "user: what is a bit": 1}},
	} {
		path := filepath.Join("../../lab/papers/training", c.config)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "pairs.jsonl")
		args := []string{"generate", path, "--model", model, "--max-new", "4", "--max-prompt", "200", "--shards", "0", "--out", out}
		found, at := 0, -1
		for line := range strings.Lines(string(text)) {
			_, source, ok := strings.Cut(line, "- path: ")
			if !ok {
				continue
			}
			at++
			for prefix, content := range c.sources {
				if strings.HasPrefix(source, prefix) {
					found++
					name := fmt.Sprintf("source%d.jsonl", at)
					if strings.HasPrefix(content, "[") {
						name = fmt.Sprintf("source%d.json", at)
					}
					args = append(args, "--set", fmt.Sprintf("sources.%d.path=%s", at, writeIn(t, t.TempDir(), name, content)))
				}
			}
		}
		if found != at+1 || found != len(c.sources) {
			t.Fatalf("%s: %d of %d sources are tried", c.config, found, at+1)
		}
		if c.fields != "" {
			args = append(args, "--set", c.fields)
		}
		mustExecute(t, args...)
		_, pairs, err := datasets.ReadPairs(out)
		if err != nil {
			t.Fatal(err)
		}
		m := modeltest.OpenFolder(t, os.DirFS(model), "cpu")
		got := map[string]int{}
		for _, p := range pairs {
			prompt, err := m.Tokenizer.Decode(p.PromptIDs, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{"the story", "user: where", "user: what of", "Q: one", "user: say one", "user: what is a bit", "in"} {
				if strings.Contains(prompt, text) {
					got[text]++
					break
				}
			}
			if strings.Contains(prompt, "in the story") || strings.Contains(prompt, "there<") || strings.Contains(prompt, "this") {
				t.Errorf("%s: the prompt %q has its own answer", c.config, prompt)
			}
		}
		for text, n := range c.want {
			if text == "in" { // of code that is cut at a random place
				n, got[text] = 1, min(1, got[text])
			}
			if got[text] != n {
				t.Errorf("%s: %d prompts with %q, want %d; %d pairs", c.config, got[text], text, n, len(pairs))
			}
		}
	}
}

func writeIn(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestTrainingConfigs: runs and sweeps of lab/papers/training are read strictly and are those of
// the papers.
func TestTrainingConfigs(t *testing.T) {
	for name, check := range map[string]func(s *runs.Spec) bool{
		"lookaheadkv_run.yaml": func(s *runs.Spec) bool {
			return s.Train.Steps == 7600 && s.Train.Batch == 32 && s.Adapters[0].Kind == "lookaheadkv" && s.Adapters[0].Rows == 32
		},
		"judgeq_run.yaml": func(s *runs.Spec) bool { return s.Epochs == 3 && s.Adapters[0].Kind == "judgeq" },
		"lookaheadkv_table5.yaml": func(s *runs.Spec) bool {
			return len(s.Sweep.Rows)*len(s.Sweep.Modules) == 18 && s.RunDir == "out/lookaheadkv_table5" && s.Train.Steps == 7600
		},
		"judgeq_figure5b.yaml": func(s *runs.Spec) bool { return len(s.Sweep.Rows) == 6 && s.Adapters[0].Kind == "judgeq" },
	} {
		s := runs.Default()
		cmd := newRun()
		cmd.ResetFlags()
		bindSpec(cmd.Flags(), s)
		bindSet(cmd.Flags(), s)
		if err := s.Read(filepath.Join("../../lab/papers/training", name), cli.GivenFlags(cmd.Flags())); err != nil {
			t.Fatal(err)
		}
		if !check(s) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
