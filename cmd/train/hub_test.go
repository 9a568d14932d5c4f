package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"glimpse/model/hub/hubtest"
	"glimpse/model/modeltest"
)

// TestModelOfTheHub: pairs and adapters of both kinds are made for a model that
// --model names at the hub; it is downloaded once, and the adapters carry its
// name.
func TestModelOfTheHub(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen2")
	h := hubtest.New(t, modeltest.Files(t, g.Folder))
	dir := t.TempDir()
	prompts, pairs := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"text": "The river was higher than anyone could remember."}`+"\n"+`{"text": "On the third day of rain"}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, log, err := execute(t, t.Context(), "generate", "--model", "org/tiny", "--prompts", prompts, "--max-new", "8", "--out", pairs); err != nil || !strings.Contains(log, "org/tiny@main") {
		t.Fatalf("%v\n%s", err, log)
	}
	asked := len(h.Requests)
	for _, kind := range []string{"lookahead", "judgeq"} {
		out := filepath.Join(dir, kind)
		stdout, log, err := execute(t, t.Context(), kind, "--model", "org/tiny", "--data", pairs, "--steps", "2", "--batch", "2", "--rows", "3", "--out", out)
		if err != nil || !strings.Contains(stdout, "adapter of org/tiny, 3 rows") {
			t.Fatalf("%v\n%s%s", err, log, stdout)
		}
		if !strings.Contains(files(t, out)["glimpse.json"], `"org/tiny"`) {
			t.Errorf("%s: glimpse.json does not name the model", kind)
		}
	}
	config := filepath.Join(dir, "run.json")
	if err := os.WriteFile(config, []byte(`{"model": "org/tiny@main", "data": "`+pairs+`", "outs": ["`+filepath.Join(dir, "third")+`"],
		"train": {"steps": 1, "batch": 1, "adapters": [{"kind": "judgeq", "rows": 2, "learning_rate": 0.01, "pooling": 7}]}}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, log, err := execute(t, t.Context(), "run", config); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	if len(h.Requests) != asked {
		t.Errorf("asked again: %v", h.Requests[asked:])
	}
}

// TestPlanOfTheHub: a plan of a model of the hub fetches config.json and no weights,
// once per commit.
func TestPlanOfTheHub(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen2")
	h := hubtest.New(t, modeltest.Files(t, g.Folder))
	args := []string{"plan", "--preset", "judgeq", "--model", "org/tiny@" + hubtest.CommitA, "--prompt-tokens", "64", "--response-tokens", "8"}
	out, _ := mustExecute(t, args...)
	if !strings.Contains(out, "org/tiny, prompts of up to 64") {
		t.Errorf("plan %q", out)
	}
	for _, r := range h.Requests {
		if strings.Contains(r, "safetensors") || strings.Contains(r, "tokenizer") {
			t.Errorf("request %s, want config.json alone", r)
		}
	}
	local, _ := mustExecute(t, "plan", "--preset", "judgeq", "--model", g.Folder, "--prompt-tokens", "64", "--response-tokens", "8", "--json")
	asked := len(h.Requests)
	t.Setenv("HF_HUB_OFFLINE", "1")
	remote, _ := mustExecute(t, append(args, "--json")...)
	if len(h.Requests) != asked {
		t.Errorf("asked again: %v", h.Requests[asked:])
	}
	parameters := regexp.MustCompile(`"parameters": \d+`)
	if got, want := parameters.FindString(remote), parameters.FindString(local); got != want || want == "" {
		t.Errorf("plan of the hub's model has %s, of its folder %s", got, want)
	}
	if _, _, err := execute(t, t.Context(), "plan", "--preset", "judgeq", "--model", "org/other", "--prompt-tokens", "64", "--response-tokens", "8"); err == nil || !strings.Contains(err.Error(), "HF_HUB_OFFLINE") {
		t.Errorf("a model that is nowhere: error %v", err)
	}
	// What a plan has fetched is no whole model.
	t.Setenv("HF_HUB_OFFLINE", "0")
	mustExecute(t, "judgeq", "--model", "org/tiny", "--data", hubPairs(t), "--steps", "1", "--batch", "1", "--rows", "2", "--validate", "0", "--out", filepath.Join(t.TempDir(), "a"))
}

// hubPairs makes a pair file for org/tiny.
func hubPairs(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	prompts, pairs := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"text": "The river was higher than anyone could remember."}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mustExecute(t, "generate", "--model", "org/tiny", "--prompts", prompts, "--max-new", "8", "--out", pairs)
	return pairs
}
