package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"glimpse/checkpoints"
	"glimpse/datasets"
	"glimpse/model"
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
	made := t.TempDir()
	for _, seed := range []string{"1", "2", "3", "4", "9"} {
		generated(t, filepath.Join(made, seed+".jsonl"), seed)
	}
	for name, change := range map[string]string{"the pairs": "pairs.jsonl", "a file of a folder": "folder/b.jsonl", "held-out pairs": "held.jsonl"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			put := func(seed, to string) {
				t.Helper()
				data, err := os.ReadFile(filepath.Join(made, seed+".jsonl"))
				if err == nil {
					err = os.WriteFile(to, data, 0o666)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			in := func(file string) string { return filepath.Join(dir, filepath.FromSlash(file)) }
			if err := os.Mkdir(in("folder"), 0o777); err != nil {
				t.Fatal(err)
			}
			for i, file := range []string{"pairs.jsonl", "folder/a.jsonl", "folder/b.jsonl", "held.jsonl"} {
				put(string(rune('1'+i)), in(file))
			}
			run := func(more ...string) (string, error) {
				_, log, err := execute(t, t.Context(), append([]string{"lookahead", "--data", in("pairs.jsonl"), "--data", in("folder"), "--held-out", in("held.jsonl"), "--batch", "1", "--rows", "2", "--run", in("run"), "-o", in("adapter")}, more...)...)
				return log, err
			}
			if _, err := run("--steps", "1"); err != nil {
				t.Fatal(err)
			}
			put("9", in(change))
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

// TestGenerateOnChangedPrompts: an interrupted file and the next shard are not made of prompts that
// have changed. What an earlier version began, which recorded none and had another name for the
// weights, is gone on with.
func TestGenerateOnChangedPrompts(t *testing.T) {
	const prompts, others = `{"prompt_ids": [1, 3, 7, 345, 12]}`, `{"prompt_ids": [1, 3, 7, 346, 12]}`
	m, err := model.Open("", model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	weights, err := m.SHA256(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	golden, err := os.ReadFile("../../model/testdata/reference_golden.json")
	if err != nil {
		t.Fatal(err)
	}
	filesSum := regexp.MustCompile(`"files_sha256": "([0-9a-f]{64})"`).FindSubmatch(golden)
	if filesSum == nil {
		t.Fatal("no hash of the files")
	}
	recorded := regexp.MustCompile(`"data_sha256":\[[^]]*\],`)
	for name, sharded := range map[string]bool{"a file": false, "shards": true} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			source, out := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "out")
			put := func(text string) {
				t.Helper()
				if err := os.WriteFile(source, []byte(strings.Repeat(text+"\n", 6)), 0o666); err != nil {
					t.Fatal(err)
				}
			}
			run := func(again bool) (string, error) {
				args := []string{"generate", "--prompts", source, "--max-new", "2", "-o", out}
				switch {
				case sharded && again:
					args = append(args, "--shard", "1/2")
				case sharded:
					args = append(args, "--shard", "0/2")
				case again:
					args = append(args, "--resume")
				}
				_, log, err := execute(t, t.Context(), args...)
				return log, err
			}
			put(prompts)
			if _, err := run(false); err != nil {
				t.Fatal(err)
			}
			head := filepath.Join(out, datasets.SettingsName)
			if !sharded { // as if it was interrupted after the header
				head = datasets.PartialOf(out)
				data, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				line, _, _ := strings.Cut(string(data), "\n")
				if err := errors.Join(os.WriteFile(head, []byte(line+"\n"), 0o666), os.Remove(out)); err != nil {
					t.Fatal(err)
				}
			}
			put(others)
			_, err := run(true)
			if want := `"` + source + `" has SHA-256 `; err == nil || !strings.Contains(err.Error(), want) {
				t.Fatalf("changed prompts: %v, want %s", err, want)
			}
			text, err := os.ReadFile(head)
			if err != nil {
				t.Fatal(err)
			}
			if !recorded.Match(text) {
				t.Fatalf("the header does not record the prompts: %s", text)
			}
			old, unrecorded := strings.Replace(string(text), weights, string(filesSum[1]), 1), 0
			if !sharded { // whose shards have one record
				old, unrecorded = recorded.ReplaceAllString(old, ""), 1
			}
			if err := os.WriteFile(head, []byte(old), 0o666); err != nil {
				t.Fatal(err)
			}
			put(prompts)
			if log, err := run(true); err != nil || strings.Count(log, "did not record what its data were") != unrecorded {
				t.Fatalf("begun by an earlier version: %v, %q", err, log)
			}
			if sharded { // the first names the weights by their tensors, the second by their files
				must(t, "judgeq", "--data", out, "--steps", "1", "--batch", "1", "--rows", "2", "-o", filepath.Join(dir, "adapter"))
			}
		})
	}
}
