package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// A run that ended goes on to more steps, and a folder that is in its way is told with the flag
// that replaces it.
func TestResumeExtendsRun(t *testing.T) {
	dir := t.TempDir()
	run := func(more ...string) (string, error) {
		_, log, err := execute(t, t.Context(), append([]string{"lookahead", "--tokens", "64", "--batch", "1", "--rows", "2", "--run", filepath.Join(dir, "run"), "-o", filepath.Join(dir, "adapter")}, more...)...)
		return log, err
	}
	if _, err := run("--steps", "1"); err != nil {
		t.Fatal(err)
	}
	if _, err := run("--steps", "2", "--resume"); err == nil || !strings.Contains(err.Error(), "write over it with --replace") {
		t.Errorf("an adapter in the way: %v", err)
	}
	if log, err := run("--steps", "2", "--resume", "--replace"); err != nil || !strings.Contains(log, "going on after step 1") {
		t.Errorf("more steps: %v, %q", err, log)
	}
	if _, err := run("--steps", "3", "--resume", "--replace", "--tokens", "65"); err == nil || !strings.Contains(err.Error(), "data: the checkpoint has train prompts of 64 tokens") {
		t.Errorf("other prompts: %v", err)
	}
	if _, err := run("--steps", "2", "--resume", "--batch", "2"); err == nil || !strings.Contains(err.Error(), "batch: the checkpoint has 1, this run 2") {
		t.Errorf("another batch: %v", err)
	}
}
