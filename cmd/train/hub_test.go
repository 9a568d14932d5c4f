package main

import (
	"os"
	"path/filepath"
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
