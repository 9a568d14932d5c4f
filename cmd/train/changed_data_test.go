package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"glimpse/checkpoints"
)

// generated writes pairs of a seed to a file.
func generated(t *testing.T, file, seed string) {
	t.Helper()
	must(t, "generate", "--samples", "12", "--tokens", "64", "--max-new", "4", "--seed", seed, "--replace", "-o", file)
}

// acceptedIn is what the state of a run says of data that had changed.
func acceptedIn(t *testing.T, state string) []string {
	t.Helper()
	s, err := checkpoints.ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	var record struct {
		Accepted []string `json:"accepted"`
	}
	if err := json.Unmarshal(s.Run, &record); err != nil {
		t.Fatal(err)
	}
	return record.Accepted
}

// TestResumeOnChangedData: pairs of the same names that are others are refused by name, whether
// they are trained on or held out, unless that is accepted, which the state records.
func TestResumeOnChangedData(t *testing.T) {
	for name, change := range map[string]string{"the pairs": "pairs.jsonl", "a file of a folder": "folder/b.jsonl", "held-out pairs": "held.jsonl"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(file string) string { return filepath.Join(dir, filepath.FromSlash(file)) }
			if err := os.Mkdir(in("folder"), 0o777); err != nil {
				t.Fatal(err)
			}
			for i, file := range []string{"pairs.jsonl", "folder/a.jsonl", "folder/b.jsonl", "held.jsonl"} {
				generated(t, in(file), string(rune('1'+i)))
			}
			run := func(more ...string) (string, error) {
				_, log, err := execute(t, t.Context(), append([]string{"lookahead", "--data", in("pairs.jsonl"), "--data", in("folder"), "--held-out", in("held.jsonl"), "--batch", "1", "--rows", "2", "--run", in("run"), "-o", in("adapter")}, more...)...)
				return log, err
			}
			if _, err := run("--steps", "1"); err != nil {
				t.Fatal(err)
			}
			generated(t, in(change), "9")
			changed := regexp.MustCompile(regexp.QuoteMeta(in(change)) + `" has SHA-256 [0-9a-f]{12}…, want [0-9a-f]{12}…`)
			_, err := run("--steps", "2", "--resume", "--replace")
			if err == nil || !changed.MatchString(err.Error()) || !strings.Contains(err.Error(), "--accept-changed-data") {
				t.Fatalf("changed: %v", err)
			}
			if log, err := run("--steps", "2", "--resume", "--replace", "--accept-changed-data"); err != nil || !changed.MatchString(log) || !strings.Contains(log, "going on after step 1") {
				t.Fatalf("accepted: %v, %q", err, log)
			}
			if got := acceptedIn(t, in("run/state")); len(got) != 1 || !strings.HasPrefix(got[0], "after step 1: ") || !changed.MatchString(got[0]) {
				t.Errorf("the state says %q", got)
			}
			if log, err := run("--steps", "3", "--resume", "--replace"); err != nil || changed.MatchString(log) {
				t.Errorf("the same data again: %v, %q", err, log)
			}
			if got := acceptedIn(t, in("run/state")); len(got) != 1 {
				t.Errorf("later the state says %q", got)
			}
		})
	}
}

// TestResumeWithoutRecordedData: the state of a version that did not record what its data were goes
// on, and that is said once.
func TestResumeWithoutRecordedData(t *testing.T) {
	dir := t.TempDir()
	pairs, state := filepath.Join(dir, "pairs.jsonl"), filepath.Join(dir, "run", "state")
	generated(t, pairs, "1")
	run := func(more ...string) (string, error) {
		_, log, err := execute(t, t.Context(), append([]string{"judgeq", "--data", pairs, "--batch", "1", "--rows", "2", "--run", filepath.Join(dir, "run"), "-o", filepath.Join(dir, "adapter")}, more...)...)
		return log, err
	}
	if _, err := run("--steps", "1"); err != nil {
		t.Fatal(err)
	}
	s, err := checkpoints.ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	var record map[string]any
	if err := json.Unmarshal(s.Run, &record); err != nil {
		t.Fatal(err)
	}
	if record["data_sha256"] == nil {
		t.Fatal("the state does not record the data")
	}
	delete(record, "data_sha256")
	if s.Run, err = json.Marshal(record); err != nil {
		t.Fatal(err)
	}
	if err := checkpoints.SaveState(state, s); err != nil {
		t.Fatal(err)
	}
	const note = "did not record what its data were"
	if log, err := run("--steps", "2", "--resume", "--replace"); err != nil || strings.Count(log, note) != 1 {
		t.Errorf("an old state: %v, %q", err, log)
	}
	if log, err := run("--steps", "3", "--resume", "--replace"); err != nil || strings.Contains(log, note) {
		t.Errorf("then: %v, %q", err, log)
	}
}
