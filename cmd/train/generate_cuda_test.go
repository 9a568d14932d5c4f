//go:build gpu && linux && (amd64 || arm64)

package main

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"glimpse/kernels"
	"glimpse/model"
	"glimpse/model/modeltest"
)

// TestCUDAGenerateRefusesWhatCannotFit: before the weights are loaded, by the
// lengths that were asked for, where not even one response fits; of a file of short prompts the longest counts and not how
// long they may be.
func TestCUDAGenerateRefusesWhatCannotFit(t *testing.T) {
	modeltest.NeedCUDA(t)
	backend, err := kernels.Open("cuda")
	if err != nil {
		t.Fatal(err)
	}
	meter := backend
	dir := t.TempDir()
	short := filepath.Join(dir, "short.jsonl")
	if err := os.WriteFile(short, []byte(`{"prompt_ids": [1, 5, 9, 2]}`+"\n"+`{"prompt_ids": [1, 4]}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	defer meter.LimitMemory(meter.Memory().Live + 7<<20)()
	meter.ResetPeak()
	before := meter.Memory().Peak
	out := filepath.Join(dir, "pairs.jsonl")
	args := []string{"generate", "--device", "cuda:0", "--max-new", "4", "--out", out}
	_, _, err = execute(t, t.Context(), append(args, "--tokens", "1000", "--samples", "9")...)
	like := `cuda:0: not enough memory: [0-9.]+ MiB needed \(weights [0-9.]+ MiB, a prompt of 1000 tokens and up to 4 of its response .*\), [0-9.]+ MiB available; .*lower --max-prompt`
	if !errors.Is(err, model.ErrMemory) || !regexp.MustCompile(like).MatchString(err.Error()) {
		t.Errorf("long prompts: error %v", err)
	}
	if peak := meter.Memory().Peak; peak != before {
		t.Errorf("%d bytes were taken before the error", peak-before)
	}
	if _, _, err := execute(t, t.Context(), append(args, "--prompts", short, "--raw")...); err != nil {
		t.Errorf("short prompts: %v", err)
	}
}
