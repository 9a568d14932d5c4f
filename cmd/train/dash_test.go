package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/stdin"
)

// TestPairsThroughPipes: "-" is standard input for prompts and pairs, with the bytes that a file
// gives, and what would have to read it again refuses it.
func TestPairsThroughPipes(t *testing.T) {
	before := os.Stdin
	t.Cleanup(func() { os.Stdin = before })
	feed := func(path string) {
		t.Helper()
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		stdin.Standard.Remove()
		os.Stdin = f
	}
	dir := t.TempDir()
	prompts, pairs := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "pairs.jsonl")
	if err := os.WriteFile(prompts, []byte(`{"prompt_ids": [5, 6, 7]}`+"\n"+`{"prompt_ids": [5, 8]}`+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	feed(prompts)
	defer stdin.Standard.Remove()
	if _, log, err := execute(t, t.Context(), "generate", "--prompts", "-", "--max-new", "2", "-o", pairs); err != nil || !strings.Contains(log, "2 samples, ") {
		t.Fatalf("%v, log %q", err, log)
	}
	feed(pairs)
	if _, _, err := execute(t, t.Context(), "judgeq", "--data", "-", "--steps", "1", "--batch", "1", "--rows", "1", "--validate", "0", "-o", filepath.Join(dir, "adapter")); err != nil {
		t.Error(err)
	}
	for _, again := range []string{"--resume", "--shards=2"} {
		if _, _, err := execute(t, t.Context(), "generate", "--prompts", "-", "-o", filepath.Join(dir, "more"), again); err == nil || !strings.Contains(err.Error(), "standard input cannot be read again") {
			t.Errorf("%s: %v", again, err)
		}
		if _, _, err := execute(t, t.Context(), "generate", "--samples", "4", "-o", "-", again); err == nil || !strings.Contains(err.Error(), "cannot be gone on with") {
			t.Errorf("--out - %s: %v", again, err)
		}
	}
}
