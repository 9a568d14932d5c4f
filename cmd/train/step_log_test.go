package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLostSteps: lines of steps.jsonl that went with a machine are named when the run goes on, every time, and those behind them stay.
func TestLostSteps(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "run", "steps.jsonl")
	run := func(steps string, more ...string) string {
		t.Helper()
		_, said, err := execute(t, t.Context(), append([]string{"lookahead", "--steps", steps, "--schedule", "constant", "--warmup", "0", "--batch", "1", "--tokens", "64", "--rows", "2", "--validate", "0", "--checkpoint-every", "1", "--run", filepath.Join(dir, "run"), "--out", filepath.Join(dir, "out"+steps)}, more...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		return said
	}
	lines := func() []string {
		t.Helper()
		data, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(strings.TrimSuffix(string(data), "\n"), "\n")
	}
	run("4")
	if said := run("5", "--resume"); strings.Contains(said, "lacks the steps") || len(lines()) != 5 {
		t.Fatalf("nothing is lost: %d lines\n%s", len(lines()), said)
	}
	if err := os.WriteFile(log, []byte(strings.Join(lines()[:3], "")+`{"step": 4, "sam`), 0o600); err != nil {
		t.Fatal(err)
	}
	const want = "steps.jsonl lacks the steps 4 to 5, which the checkpoint has done"
	if said := run("6", "--resume"); !strings.Contains(said, want) || len(lines()) != 4 {
		t.Errorf("%d lines, want 4, and that %s\n%s", len(lines()), want, said)
	}
	if said := run("7", "--resume"); !strings.Contains(said, want) || len(lines()) != 5 {
		t.Errorf("%d lines, want 5, and that %s\n%s", len(lines()), want, said)
	}
	if err := os.Remove(log); err != nil { // on another machine
		t.Fatal(err)
	}
	for i, steps := range []string{"8", "9"} {
		if said := run(steps, "--resume"); !strings.Contains(said, "lacks the steps 1 to 7") || len(lines()) != i+1 {
			t.Errorf("a log that begins with step 8: %d lines, want %d\n%s", len(lines()), i+1, said)
		}
	}
}

// TestFoldersInPlaceOfFiles: a folder that stands where a run writes a file is refused before anything is trained.
func TestFoldersInPlaceOfFiles(t *testing.T) {
	for _, name := range []string{"steps.jsonl", "curves.png", "config.yaml", "state"} {
		for _, more := range [][]string{nil, {"--resume"}, {"--replace"}} {
			dir := filepath.Join(t.TempDir(), "run")
			if err := os.MkdirAll(filepath.Join(dir, name, "x"), 0o700); err != nil {
				t.Fatal(err)
			}
			_, said, err := execute(t, t.Context(), append([]string{"lookahead", "--steps", "1", "--batch", "1", "--tokens", "64", "--validate", "0", "--run", dir, "--out", filepath.Join(t.TempDir(), "out")}, more...)...)
			if err == nil || !strings.Contains(err.Error(), "train: --run "+dir+": "+name+" is a folder, want a file") || strings.Contains(said, "loss") {
				t.Errorf("%s, %v: %v, want it refused\n%s", name, more, err, said)
			}
		}
	}
	_, _, err := execute(t, t.Context(), "lookahead", "--steps", "1", "--batch", "1", "--tokens", "64", "--log", t.TempDir(), "--checkpoint", filepath.Join(t.TempDir(), "state"), "--resume", "--out", filepath.Join(t.TempDir(), "out"))
	if err == nil || !strings.Contains(err.Error(), "a folder, want a file") {
		t.Errorf("--log: %v", err)
	}
}
