package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
	"glimpse/internal/filelock"
)

// TestShardsAreTheWhole: the shards of a folder are the pairs of one file, whoever
// made them, and a killed shard goes on to the same bytes.
// TestMoreShardsThanPrompts: shards without prompts are finished, and all of them together are read.
func TestMoreShardsThanPrompts(t *testing.T) {
	dir := t.TempDir()
	prompts, folder := filepath.Join(dir, "prompts.jsonl"), filepath.Join(dir, "shards")
	if err := os.WriteFile(prompts, []byte(`{"prompt":"anna calls"}`+"\n"+`{"prompt":"bruno calls"}`+"\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"generate", "--prompts", prompts, "--samples", "8", "--max-new", "4", "--shards", "4", "--out", folder}
	mustExecute(t, args...)
	if _, log := mustExecute(t, args...); strings.Count(log, "is finished already") != 4 {
		t.Errorf("log %q, want four finished shards", log)
	}
	mustExecute(t, "judgeq", "--data", folder, "--steps", "1", "--batch", "1", "--rows", "2", "--validate", "0", "--out", filepath.Join(dir, "adapter"))
	empty := filepath.Join(folder, datasets.ShardName(3, 4))
	_, _, err := execute(t, t.Context(), "judgeq", "--data", empty, "--steps", "1", "--out", filepath.Join(dir, "none"))
	if !errors.Is(err, datasets.ErrEmpty) || !strings.Contains(err.Error(), empty) {
		t.Errorf("error %v, want ErrEmpty of %s", err, empty)
	}
}

func TestShardsAreTheWhole(t *testing.T) {
	dir := t.TempDir()
	args := []string{"generate", "--samples", "30", "--tokens", "64", "--max-new", "8"}
	whole := filepath.Join(dir, "whole.jsonl")
	mustExecute(t, append(args, "--out", whole)...)
	_, want, err := datasets.ReadPairs(whole)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "shards")
	t.Setenv("JOB_COMPLETION_INDEX", "1")
	mustExecute(t, append(args, "--out", folder, "--shards", "3")...)
	if got := files(t, folder); len(got) != 2 { // with the settings
		t.Fatalf("a worker with an index made %d files", len(got))
	}
	os.Unsetenv("JOB_COMPLETION_INDEX")
	mustExecute(t, append(args, "--out", folder, "--shard", "2/3")...)
	_, log := mustExecute(t, append(args, "--out", folder, "--shards", "3")...)
	if strings.Count(log, "is finished already") != 2 {
		t.Errorf("log %q, want two shards to be finished already", log)
	}
	seen := 0
	for i := range 3 {
		h, pairs, err := datasets.ReadPairs(filepath.Join(folder, datasets.ShardName(i, 3)))
		if err != nil || h.Shard != i || h.Shards != 3 || len(h.WeightsSHA256) != 64 {
			t.Fatalf("%v: %+v", err, h)
		}
		for j, p := range pairs {
			w := want[3*j+i]
			if p.ID != w.ID || len(p.ResponseIDs) != len(w.ResponseIDs) {
				t.Fatalf("shard %d pair %d is %s, want %s", i, j, p.ID, w.ID)
			}
			seen++
		}
	}
	if seen != 30 {
		t.Errorf("%d pairs in all", seen)
	}

	// Killed in the middle: the first bytes of the file and a torn line.
	name := datasets.ShardName(0, 3)
	full, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 50, len(full) / 3, len(full) - 20, len(full)} {
		if err := os.Remove(filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "."+name+".partial"), full[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		mustExecute(t, append(args, "--out", folder, "--shard", "0/3")...)
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(full) {
			t.Errorf("taken up after %d of %d bytes: other pairs", cut, len(full))
		}
	}
	// A unit that another process holds is left to it, and a shard of it is named.
	if err := os.Remove(filepath.Join(folder, name)); err != nil {
		t.Fatal(err)
	}
	claims := filepath.Join(folder, ".work", name, "claims")
	if err := os.MkdirAll(claims, 0o777); err != nil {
		t.Fatal(err)
	}
	unlock, free, err := filelock.TryLock(filepath.Join(claims, "00000001"))
	if err != nil || !free {
		t.Fatal(free, err)
	}
	if _, log := mustExecute(t, append(args, "--out", folder, "--shards", "3")...); !strings.Contains(log, "1 of 3 shards are being worked on by others") {
		t.Errorf("log %q", log)
	}
	if _, _, err := execute(t, context.Background(), append(args, "--out", folder, "--shard", "0/3")...); err == nil || !strings.Contains(err.Error(), "another process is working on it") {
		t.Errorf("a claimed unit: error %v", err)
	}
	unlock() // it was killed
	mustExecute(t, append(args, "--out", folder, "--shards", "3")...)
	if got, err := os.ReadFile(filepath.Join(folder, name)); err != nil || string(got) != string(full) {
		t.Errorf("taken over from a killed process: other pairs (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(folder, ".work")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("work is left: %v", err)
	}
}

// TestGenerateMix: a YAML mix, recipes, source responses, and records that are left
// out.
func TestGenerateMix(t *testing.T) {
	dir := t.TempDir()
	words := strings.Join(datasets.Vocabulary()[100:140], " ")
	for name, text := range map[string]string{
		"text.jsonl": strings.Repeat(`{"text": "`+words+`"}`+"\n", 12),
		"ids.jsonl":  strings.Repeat(`{"prompt_ids": [1, 100, 101, 102, 103, 104, 105, 106, 107, 108]}`+"\n", 6),
		"c.yaml": "recipe: lookaheadkv\nsources:\n  - {path: " + filepath.Join(dir, "text.jsonl") + ", weight: 3}\n  - {path: " + filepath.Join(dir, "ids.jsonl") +
			"}\nmax_prompt: 20\nmax_new: 6\nout: " + filepath.Join(dir, "pairs.jsonl") + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	config := filepath.Join(dir, "c.yaml")
	mustExecute(t, "generate", config)
	h, self, err := datasets.ReadPairs(filepath.Join(dir, "pairs.jsonl"))
	if err != nil || len(self) != 18 || !strings.Contains(h.Data, "recipe lookaheadkv") {
		t.Fatalf("%v: %d pairs of %+v", err, len(self), h)
	}
	source := filepath.Join(dir, "source.jsonl")
	_, log := mustExecute(t, "generate", config, "--responses", "source", "--out", source)
	_, given, err := datasets.ReadPairs(source)
	if err != nil || len(given) != 12 || !strings.Contains(log, "6 prompts left out") {
		t.Fatalf("%v: %d pairs, log %q: want those of the 12 texts", err, len(given), log)
	}
	for _, p := range given { // what follows the cut
		next := p.PromptIDs[len(p.PromptIDs)-1] + 1
		if len(p.PromptIDs) > 1 && p.ResponseIDs[0] != next {
			t.Errorf("%s: prompt ends with %d, response begins with %d", p.ID, next-1, p.ResponseIDs[0])
		}
		if len(p.ResponseIDs) > 6 || len(p.PromptIDs) > 20 {
			t.Errorf("%s: %d and %d tokens", p.ID, len(p.PromptIDs), len(p.ResponseIDs))
		}
	}
	short := filepath.Join(dir, "short.jsonl")
	if _, log := mustExecute(t, "generate", config, "--recipe", "judgeq", "--out", short, "--samples", "5"); !strings.Contains(log, "prompts") {
		t.Error(log)
	}
	// Both files train.
	mustExecute(t, "judgeq", "--data", source, "--steps", "1", "--batch", "2", "--rows", "2", "--out", filepath.Join(dir, "adapter"))
}

// TestSweep: every point of the grid is trained on the same samples, as alone, and
// stands in the table once.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	config := writeFile(t, "c.yaml", `tokens: 64
train: {steps: 2, batch: 2, max_response: 8, validation: {samples: 2, budgets: [8]}}
adapters: [{kind: lookaheadkv, rank: 2, alpha: 4}]
sweep: {rows: [2, 4], modules: [qv, none], learning_rate: [0.01], per_pass: 3}
`)
	out, log := mustExecute(t, "sweep", config, "--run", filepath.Join(dir, "sweep"))
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 6 || !strings.Contains(lines[5], "SnapKV") {
		t.Errorf("table of %d lines:\n%s", len(lines), out)
	}
	if !strings.Contains(log, "pass 2 of 2: 1 adapters") {
		t.Errorf("log %q", log)
	}
	mustExecute(t, "lookahead", "--tokens", "64", "--steps", "2", "--batch", "2", "--max-response", "8", "--rows", "4", "--modules", "qv", "--rank", "2", "--alpha", "4",
		"--lr", "0.01", "--validate", "0", "--out", filepath.Join(dir, "alone"))
	swept := files(t, filepath.Join(dir, "sweep", "pass-1", "adapters", "lookaheadkv-n4-qv-lr0.01"))
	for _, name := range []string{"adapter_model.safetensors", "lookahead_embeddings.safetensors"} {
		if alone := files(t, filepath.Join(dir, "alone")); alone[name] == "" || alone[name] != swept[name] {
			t.Errorf("%s of the sweep differs from that of the adapter trained alone", name)
		}
	}
}

// TestMissingShardsAreTold: training on a part of the shards says so.
func TestMissingShardsAreTold(t *testing.T) {
	dir := t.TempDir()
	shards := filepath.Join(dir, "shards")
	generate := func(part ...string) {
		args := append([]string{"generate", "--samples", "6", "--tokens", "64", "--max-new", "8", "--out", shards}, part...)
		if _, _, err := execute(t, context.Background(), args...); err != nil {
			t.Fatal(err)
		}
	}
	told := func(out string) bool {
		_, log, err := execute(t, context.Background(), "judgeq", "--data", shards, "--steps", "1", "--batch", "1", "--validate", "0", "--out", filepath.Join(dir, out))
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(log, "training on 1 of 3 shards")
	}
	generate("--shard", "1/3")
	if !told("part") {
		t.Error("one of three shards: nothing is said")
	}
	generate("--shards", "3")
	if told("whole") {
		t.Error("all shards: told that some are missing")
	}
}
