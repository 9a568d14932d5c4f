package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"glimpse/internal/outputs"
)

func wantRefused(t *testing.T, want string, args ...string) {
	t.Helper()
	if _, _, err := execute(t, context.Background(), args...); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one that says %q", strings.Join(args, " "), err, want)
	}
}

// TestPairsAreNotOverwritten: a file that exists needs --replace, and has one writer.
func TestPairsAreNotOverwritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pairs.jsonl")
	generate := func(samples string, more ...string) []string {
		return append([]string{"generate", "--samples", samples, "--tokens", "64", "--max-new", "4", "--out", path}, more...)
	}
	must(t, generate("6")...)
	before := readText(t, path)
	wantRefused(t, "--replace", generate("2")...)
	unlock, err := outputs.Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "another run is writing it", generate("2", "--replace")...)
	unlock()
	wantRefused(t, "what this command reads", "generate", "--prompts", path, "--out", path, "--replace")
	if got := readText(t, path); got != before {
		t.Errorf("refused runs left %d bytes in place of %d", len(got), len(before))
	}
	must(t, generate("2", "--replace")...)
	if got := readText(t, path); strings.Count(got, "\n") != 3 {
		t.Errorf("replaced by %d lines, want a header and 2 pairs", strings.Count(got, "\n"))
	}
}

// TestLogIsNotOverwritten: a log is new, this run's own, or asked to be replaced.
func TestLogIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	pairs, log := filepath.Join(dir, "pairs.jsonl"), filepath.Join(dir, "log.jsonl")
	must(t, "generate", "--samples", "4", "--tokens", "64", "--max-new", "4", "--out", pairs)
	data := readText(t, pairs)
	judge := func(out string, more ...string) []string {
		return append([]string{"judgeq", "--steps", "1", "--batch", "1", "--rows", "2", "--validate", "0", "--data", pairs, "--out", filepath.Join(dir, out)}, more...)
	}
	wantRefused(t, "what this command reads", judge("a", "--log", pairs, "--replace")...)
	wantRefused(t, "what this command reads", judge("a", "--log", pairs)...)
	wantRefused(t, "does not begin as the log of a run", judge("a", "--log", pairs, "--checkpoint", filepath.Join(dir, "state"), "--resume")...)
	if readText(t, pairs) != data {
		t.Fatal("the training data changed")
	}
	must(t, judge("a", "--log", log)...)
	one := readText(t, log)
	wantRefused(t, "exists", judge("b", "--log", log)...)
	unlock, err := outputs.Lock(log)
	if err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "another run is writing it", judge("b", "--log", log, "--replace")...)
	unlock()
	if readText(t, log) != one {
		t.Error("the log changed")
	}
	must(t, judge("b", "--log", log, "--replace")...)
	if got := readText(t, log); strings.Count(got, "\n") != 1 {
		t.Errorf("the replaced log holds %q, want one step", got)
	}
}

// TestLogInTheWorkingFolder: a log may have the name that it would have in a run's folder.
func TestLogInTheWorkingFolder(t *testing.T) {
	t.Chdir(t.TempDir())
	must(t, "judgeq", "--steps", "1", "--batch", "1", "--rows", "2", "--tokens", "64", "--validate", "0", "--out", "a", "--log", "steps.jsonl")
	if got := readText(t, "steps.jsonl"); strings.Count(got, "\n") != 1 {
		t.Errorf("the log holds %q, want one step", got)
	}
}

// TestNamesStayInTheirFolder: a name is one path element, and checked before any work.
func TestNamesStayInTheirFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"../../evil", "..", ".", "a/b", `a\\b`, ".hidden"} {
		file := writeFile(t, "run.yaml", "run: "+filepath.Join(dir, "in", "run")+"\ntasks: copy\ntokens: 64\ntrain: {steps: 1, batch: 1}\nadapters:\n  - {kind: judgeq, name: \""+name+"\", rows: 2, learning_rate: 0.1}\n")
		wantRefused(t, "without a slash", "run", file)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("refused runs left %v (%v)", entries, err)
	}
}

// TestMixedShardsAreRefused: shards of two generations are not trained on as one set.
func TestMixedShardsAreRefused(t *testing.T) {
	dir := t.TempDir()
	shards := func(name, maxNew string, n int) string {
		out := filepath.Join(dir, name)
		must(t, "generate", "--samples", "8", "--tokens", "64", "--max-new", maxNew, "--shards", strconv.Itoa(n), "--out", out)
		return out
	}
	a := shards("a", "4", 2)
	for name, other := range map[string]string{"pairs-00001-of-00002.jsonl": shards("b", "5", 2), "pairs-00003-of-00004.jsonl": shards("c", "4", 4)} {
		mixed := filepath.Join(dir, "mixed "+name)
		if err := os.Mkdir(mixed, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, from := range map[string]string{"pairs-00000-of-00002.jsonl": a, name: other} {
			if err := os.WriteFile(filepath.Join(mixed, file), []byte(readText(t, filepath.Join(from, file))), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		wantRefused(t, "of other settings than", "judgeq", "--steps", "1", "--batch", "1", "--rows", "2", "--validate", "0", "--data", mixed, "--out", filepath.Join(dir, "x"))
	}
}
