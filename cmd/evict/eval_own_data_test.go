package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// ownData writes files of prompts for the built-in model to a folder.
func ownData(t *testing.T, files map[string]string) (in func(name string) string) {
	t.Helper()
	dir := t.TempDir()
	in = func(name string) string { return filepath.Join(dir, name) }
	for name, text := range files {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return in
}

// TestEvalOfBrokenRows: rows that cannot be used are named with file, line, what is there and what is wanted, the
// others are measured and stay measured, and the exit is an error; without such rows it is none.
func TestEvalOfBrokenRows(t *testing.T) {
	good := `{"text": "anna calls bruno", "answer": "lamp"}` + "\n"
	in := ownData(t, map[string]string{
		"broken.jsonl": good + `{"text": 5}` + "\n" + `{"tex` + "\n" + `{"context": "anna"}` + "\n",
		"good.jsonl":   good + good,
	})
	run := func(more ...string) (string, error) {
		out, _, err := execute(t, append([]string{"eval", "--policy", "full,snapkv", "--budget", "2", "--max-new", "4", "--out", in("run")}, more...)...)
		return out, err
	}
	for _, args := range [][]string{{}, {"--resume"}} { // a finished run says it again
		out, err := run(append(args, "--data", in("broken.jsonl"))...)
		if err == nil || !strings.Contains(out, "snapkv") {
			t.Fatalf("%v, %q: want an error and the table", err, out)
		}
		for _, want := range []string{
			"3 of 4 samples failed", "broken.jsonl:2: field \"text\": got 5, want a string",
			"broken.jsonl:3: got the end of the line after byte 1, want", "broken.jsonl:4: got no prompt",
		} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want it to say %q", err, want)
			}
		}
	}
	for _, name := range []string{"predictions.jsonl", "metrics.json"} {
		if _, err := os.Stat(in("run/" + name)); err != nil {
			t.Error(err)
		}
	}
	if _, err := run("--data", in("good.jsonl"), "--replace"); err != nil {
		t.Errorf("no row is broken: %v", err)
	}
}

// TestEvalOfSeveralFiles: every --data is a column that is called by its file, with the metric's name below.
func TestEvalOfSeveralFiles(t *testing.T) {
	row := `{"text": "anna calls bruno", "answer": "lamp"}` + "\n"
	in := ownData(t, map[string]string{"notes.jsonl": row + row, "mails.jsonl": row})
	args := []string{"eval", "--policy", "full,snapkv", "--budget", "2", "--max-new", "4", "--data", in("notes.jsonl"), "--data", in("mails.jsonl")}
	out, log, err := execute(t, args...)
	if err != nil || !strings.Contains(out, "notes") || !strings.Contains(out, "mails") || !strings.Contains(out, "tasks: substring_exact_match in %") || !strings.Contains(log, "3/3 prompts") {
		t.Errorf("%v: %q, %q", err, out, log)
	}
	if _, _, err := execute(t, append(args, "--task", "section")...); err == nil || !strings.Contains(err.Error(), "--data: got 2, want one where --task is another than data") {
		t.Errorf("with another task: %v", err)
	}
	if out, _, err = execute(t, append(args, "--task", "data", "--metric", "qa_f1")...); err != nil || !strings.Contains(out, "tasks: qa_f1 in %") {
		t.Errorf("%v: %q", err, out)
	}
}
