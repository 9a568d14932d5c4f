package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
)

// Bad records are told, counted and left out; --strict stops at the first, and a source of
// nothing else is an error.
func TestGenerateLeavesBadRecordsOut(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	mixed := write("mixed.jsonl", `{"prompt_ids": [5, 6, 7]}`+"\nnot JSON\n"+`{"prompt_ids": [-3]}`+"\n"+`{"prompt_ids": [8, 9]}`+"\n")
	bad := write("bad.jsonl", "not JSON\n{]\n")
	run := func(prompts, out string, more ...string) (string, error) {
		_, log, err := execute(t, t.Context(), append([]string{"generate", "--prompts", prompts, "--max-new", "2", "-o", out}, more...)...)
		return log, err
	}

	out := filepath.Join(dir, "out.jsonl")
	log, err := run(mixed, out)
	if err != nil || !strings.Contains(log, "left out: "+mixed+":2: ") || !strings.Contains(log, "2 samples, ") || !strings.Contains(log, "; 2 bad records left out, too") {
		t.Errorf("log %q, error %v", log, err)
	}
	_, pairs, err := datasets.ReadPairs(out)
	if err != nil || len(pairs) != 2 {
		t.Errorf("%d pairs, %v, want 2", len(pairs), err)
	}
	out = filepath.Join(dir, "strict.jsonl")
	if _, err := run(mixed, out, "--strict"); err == nil || !strings.Contains(err.Error(), mixed+":2: ") {
		t.Errorf("strict: error %v", err)
	}
	if _, err := run(bad, filepath.Join(dir, "none.jsonl")); err == nil || !strings.Contains(err.Error(), "all of 2 records are bad; the first: "+bad+":1: ") {
		t.Errorf("nothing but bad records: error %v", err)
	}
}
