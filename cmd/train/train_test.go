package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"glimpse/internal/parallel"
)

// execute runs the command as a user would.
func execute(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	before := parallel.Threads()
	defer parallel.SetThreads(before)
	root := newRoot()
	root.SilenceErrors, root.SilenceUsage = true, true
	var out, log bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&log)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	return out.String(), log.String(), err
}

func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string]string)
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = string(data)
	}
	return out
}

// TestSameSeedSameFiles: the adapter folders of one thread and of several are
// equal to the last byte; another seed gives others.
func TestSameSeedSameFiles(t *testing.T) {
	for _, kind := range []string{"lookahead", "judgeq"} {
		t.Run(kind, func(t *testing.T) {
			train := func(name string, args ...string) map[string]string {
				dir := filepath.Join(t.TempDir(), name)
				args = append([]string{kind, "--steps", "2", "--batch", "3", "--tokens", "64", "--rows", "4", "--validate", "2", "--out", dir}, args...)
				if _, log, err := execute(t, context.Background(), args...); err != nil {
					t.Fatalf("%v\n%s", err, log)
				}
				return files(t, dir)
			}
			one, two, other := train("a", "--threads", "1"), train("b", "--threads", "2"), train("c", "--seed", "2")
			if len(one) < 2 {
				t.Fatalf("adapter folder holds %d files", len(one))
			}
			for name, data := range one {
				if two[name] != data {
					t.Errorf("%s differs between 1 and 2 threads", name)
				}
			}
			if other["lookahead_embeddings.safetensors"] == one["lookahead_embeddings.safetensors"] {
				t.Error("another seed gives the same rows")
			}
		})
	}
}

// TestGenerateThenTrain goes through a pair file.
func TestGenerateThenTrain(t *testing.T) {
	dir := t.TempDir()
	pairs := filepath.Join(dir, "pairs.jsonl")
	if _, log, err := execute(t, context.Background(), "generate", "--samples", "6", "--tokens", "64", "--out", pairs); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	out, log, err := execute(t, context.Background(), "judgeq", "-v", "--data", pairs, "--steps", "2", "--batch", "4", "--rows", "2", "--cache-memory", "1000000", "--out", filepath.Join(dir, "adapter"))
	if err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	for _, want := range []string{"judgeq adapter of glimpse-reference, 2 rows", ": step ", "ms at 64 prompt", "peak memory"} {
		if !strings.Contains(out, want) {
			t.Errorf("output %q does not say %q", out, want)
		}
	}
	if strings.Contains(out, "floor") || !strings.Contains(log, "judgeq: floor ") || !strings.Contains(log, "step ÷ (prefill × floor) =") {
		t.Errorf("output %q, details %q: want the floor in the details", out, log)
	}
}

// TestErrorsLeaveNothing: every mistake is an error that says what is wrong, and
// no output appears.
func TestErrorsLeaveNothing(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	empty, broken := write("empty.jsonl", ""), write("broken.jsonl", "{\"format\":\"glimpse-pairs\"")
	taken := filepath.Join(dir, "taken")
	if err := os.Mkdir(taken, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(taken, "thesis.txt"), []byte("years of work"), 0o644); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no out":          {[]string{"lookahead", "--steps", "1"}, "--out is missing"},
		"unknown module":  {[]string{"lookahead", "--modules", "q,w", "--out", out}, `unknown module "w"`},
		"unknown task":    {[]string{"lookahead", "--task", "chian", "--out", out}, "want one of: "},
		"unknown device":  {[]string{"lookahead", "--device", "tpu", "--out", out}, `unknown device "tpu", want one of: cpu`},
		"no such model":   {[]string{"lookahead", "--model", filepath.Join(dir, "nowhere"), "--out", out}, "nowhere"},
		"out exists":      {[]string{"lookahead", "--out", taken}, "exist"},
		"not an adapter":  {[]string{"lookahead", "--replace", "--out", taken}, "thesis.txt"},
		"zero steps":      {[]string{"lookahead", "--steps", "0", "--out", out}, "steps: got 0"},
		"negative rows":   {[]string{"judgeq", "--rows", "-3", "--out", out}, "rows: got -3"},
		"short prompts":   {[]string{"judgeq", "--tokens", "7", "--out", out}, "got 7 tokens"},
		"empty data":      {[]string{"judgeq", "--data", empty, "--out", out}, "empty.jsonl"},
		"broken data":     {[]string{"judgeq", "--data", broken, "--out", out}, "broken.jsonl"},
		"no samples":      {[]string{"generate", "--samples", "0", "--out", out}, "samples: got 0"},
		"temperature":     {[]string{"generate", "--temperature", "-1", "--out", out}, "temperature: got -1"},
		"too long":        {[]string{"generate", "--tokens", "5000", "--samples", "1", "--out", out}, "longer than the model's context"},
		"threads":         {[]string{"judgeq", "--threads", "-1", "--out", out}, "threads: got -1"},
		"no config":       {[]string{"run", filepath.Join(dir, "none.json")}, "none.json"},
		"unknown setting": {[]string{"run", write("c.json", `{"train":{"step":3}}`)}, `c.json:1: train: unknown key "step", did you mean "steps"?`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := execute(t, context.Background(), c.args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want it to say %q", err, c.want)
			}
			if _, err := os.Lstat(out); !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("output appeared (%v)", err)
			}
		})
	}
	if data, err := os.ReadFile(filepath.Join(taken, "thesis.txt")); err != nil || string(data) != "years of work" {
		t.Fatal("a foreign file was touched")
	}
}

// TestInterrupt: a run that is stopped says so and leaves nothing behind.
func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, _, err := execute(t, ctx, "lookahead", "--steps", "100000", "--tokens", "64", "--out", filepath.Join(dir, "adapter"))
	// The latter where a step ends just then.
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.DeadlineExceeded or context.Canceled", err)
	}
	if left := files(t, dir); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}
