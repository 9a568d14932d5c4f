package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/training"
)

// TestCacheDType: training, generation and plans take the type of the cache from the
// file and from the flag; the state of a run says it, and one of another type is not
// taken up.
func TestCacheDType(t *testing.T) {
	dir := t.TempDir()
	path, run := filepath.Join(dir, "c.yaml"), filepath.Join(dir, "run")
	config := "run: " + run + "\ncache_dtype: bf16\ntokens: 48\ntrain: {steps: 1, batch: 1, max_response: 4, validation: {samples: 0}}\nadapters: [{kind: judgeq, rows: 4, learning_rate: 0.02}]\n"
	if err := os.WriteFile(path, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, log, err := execute(t, t.Context(), "run", path); err != nil {
		t.Fatal(err, log)
	}
	resolved, err := os.ReadFile(filepath.Join(run, training.ConfigName))
	if err != nil || !strings.Contains(string(resolved), "cache_dtype: bf16") {
		t.Errorf("resolved configuration (%v):\n%s", err, resolved)
	}
	if _, log, err := execute(t, t.Context(), "run", path, "--resume", "--replace"); err != nil {
		t.Error(err, log)
	}
	_, _, err = execute(t, t.Context(), "run", path, "--resume", "--replace", "--cache-dtype", "float32")
	if err == nil || !strings.Contains(err.Error(), "type of the cache: the checkpoint has BF16, this run float32") {
		t.Errorf("error %v", err)
	}
	pairs := filepath.Join(dir, "pairs.jsonl")
	if _, log, err := execute(t, t.Context(), "generate", "--samples", "2", "--tokens", "48", "--max-new", "4", "--cache-dtype", "bf16", "--out", pairs); err != nil {
		t.Error(err, log)
	}
	for _, command := range [][]string{{"run", path}, {"generate", "--out", filepath.Join(dir, "other")}, {"judgeq", "--out", filepath.Join(dir, "adapter")}, {"plan", path}} {
		if _, _, err := execute(t, t.Context(), append(command, "--cache-dtype", "int4")...); err == nil || !strings.Contains(err.Error(), `cache dtype: got "int4", want auto, float32, bf16, fp8, q4_0, `) {
			t.Errorf("%s: error %v", command[0], err)
		}
	}
}
