package runs

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/evaluation"
	"glimpse/evaluation/scoring"
	"glimpse/eviction"
	"glimpse/model/modeltest"
)

// LongBench's rows of multi_news run through a random model with a real tokenizer and chat
// template: the protocol, not the accuracy.
func TestLongBenchOnRealRows(t *testing.T) {
	root := os.Getenv("GLIMPSE_DATA")
	if root == "" {
		t.Skip("GLIMPSE_DATA does not name a data folder: LongBench's rows are not run")
	}
	folder, err := modeltest.Llama{Hidden: 8, Layers: 1, Heads: 2, KVHeads: 1, Intermediate: 8, Vocab: 32768, MaxPositions: 2048, Tied: true, Seed: 2}.Folder()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	put := func(name string, data []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for name, file := range folder {
		put(name, file.Data)
	}
	tokenizer, err := os.ReadFile(filepath.Join(root, "tokenizers", "mistral_v3.json"))
	if err != nil {
		t.Fatal(err)
	}
	put("tokenizer.json", tokenizer)
	template, err := os.ReadFile(filepath.Join(root, "chat_templates", "Mistral-7B-Instruct-v0.3.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := json.Marshal(map[string]string{"chat_template": string(template), "bos_token": "<s>", "eos_token": "</s>"})
	if err != nil {
		t.Fatal(err)
	}
	put("tokenizer_config.json", config)

	j := small(t.TempDir())
	j.Models = []Subject{{Model: dir}}
	j.Policies, j.Budgets = Names{"full,snapkv"}, []eviction.Budget{eviction.Pairs(64)}
	j.Tasks = []Task{{Task: "longbench"}}
	j.Data, j.Samples, j.MaxPrompt, j.MaxNew = filepath.Join(root, "longbench"), 4, 1000, 24
	var log strings.Builder
	out, err := j.Run(t.Context(), &log)
	if err != nil || out.Failed > 0 || out.Samples != 4 {
		t.Fatalf("%+v, %v", out, err)
	}
	if !strings.Contains(log.String(), "15 subtasks are left out") {
		t.Errorf("log %q does not tell of the other data sets", &log)
	}
	f, err := os.Open(filepath.Join(j.Out, PredictionsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	predictions, _, damage, err := evaluation.ReadPredictions(f, nil)
	if err != nil || damage != nil || len(predictions) != 8 {
		t.Fatalf("%d predictions, %v, %v; want 4 samples of 2 policies", len(predictions), damage, err)
	}
	rouge, err := scoring.Metrics.Lookup("rouge")
	if err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile(filepath.Join(root, "longbench", "multi_news.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(rows), "\n")
	cut := 0
	for _, p := range predictions {
		var row struct{ Answers []string }
		if err := json.Unmarshal([]byte(lines[p.Index]), &row); err != nil {
			t.Fatal(err)
		}
		want, err := rouge.Score(p.Answers[0], scoring.Reference{Answers: row.Answers})
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := p.Measures["rouge"]; !ok || p.Metric != "rouge" || math.Abs(got-want) > 1e-12 {
			t.Errorf("%s: %v, want rouge %v", p.Sample, p.Measures, want)
		}
		// 1,000 tokens of the prompt, tokenized again, and the template around it.
		if p.PromptTokens > 1020 {
			t.Errorf("%s: a prompt of %d tokens", p.Sample, p.PromptTokens)
		}
		if p.PromptTokens > 980 {
			cut++
		}
	}
	if cut == 0 {
		t.Error("no prompt is long enough to be truncated")
	}
}
