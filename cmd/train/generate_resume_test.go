package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"glimpse/datasets"
)

// TestGenerateResumes: an interrupted file keeps its finished pairs, is not begun again
// unasked, and when it is gone on with has the bits of one that was never interrupted.
func TestGenerateResumes(t *testing.T) {
	dir := t.TempDir()
	whole, cut := filepath.Join(dir, "whole.jsonl"), filepath.Join(dir, "cut.jsonl")
	samples := "200"
	if testing.Short() {
		samples = "60"
	}
	args := func(out string, more ...string) []string {
		return slices.Concat([]string{"generate", "--samples", samples, "--tokens", "64", "--max-new", "8", "--threads", "1", "--out", out}, more)
	}
	mustExecute(t, args(whole)...)
	want, err := os.ReadFile(whole)
	if err != nil {
		t.Fatal(err)
	}

	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil {
			if entries, _ := os.ReadDir(filepath.Join(dir, ".cut.jsonl.work", "results")); len(entries) > 1 {
				interrupt()
			}
			time.Sleep(time.Millisecond)
		}
	}()
	_, _, err = execute(t, ctx, args(cut)...)
	interrupt()
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "finished samples of "+cut+" are kept, and the same command with --resume goes on") {
		t.Fatalf("interrupted: error %v", err)
	}
	if _, err := os.Stat(cut); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is there before it is complete: %v", err)
	}
	if _, _, err := execute(t, t.Context(), args(cut)...); err == nil || !strings.Contains(err.Error(), "go on with --resume, or begin again with --replace") {
		t.Errorf("begun again unasked: error %v", err)
	}
	if _, _, err := execute(t, t.Context(), args(cut, "--resume", "--seed", "2")...); err == nil || !strings.Contains(err.Error(), "was begun with other settings: Data: got ") || strings.Contains(err.Error(), "Weights") {
		t.Errorf("gone on with otherwise: error %v", err)
	}
	if _, _, err := execute(t, t.Context(), args(cut, "--resume", "--replace")...); err == nil || !strings.Contains(err.Error(), "want one of them") {
		t.Errorf("both: error %v", err)
	}
	mustExecute(t, args(cut, "--resume")...)
	if got, err := os.ReadFile(cut); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %d bytes, want the %d of a run that was never interrupted", err, len(got), len(want))
	}
	// What an earlier version has left, with the torn line of a crash.
	if err := os.Remove(cut); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(datasets.PartialOf(cut), want[:len(want)*2/5], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, t.Context(), args(cut)...); err == nil || !strings.Contains(err.Error(), "go on with --resume, or begin again with --replace") {
		t.Errorf("begun again unasked: error %v", err)
	}
	if _, _, err := execute(t, t.Context(), args(cut, "--resume", "--seed", "2")...); err == nil || !strings.Contains(err.Error(), "was begun with other settings: Data: got ") {
		t.Errorf("gone on with otherwise: error %v", err)
	}
	if _, log := mustExecute(t, args(cut, "--resume")...); !strings.Contains(log, "goes on after") {
		t.Errorf("log %q", log)
	}
	if got, err := os.ReadFile(cut); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%v: %d bytes, want the %d of a run that was never interrupted", err, len(got), len(want))
	}
	if _, log := mustExecute(t, args(cut, "--resume")...); !strings.Contains(log, "is finished already") {
		t.Errorf("log %q", log)
	}
	if _, _, err := execute(t, t.Context(), args(cut)...); err == nil || !strings.Contains(err.Error(), "--replace") {
		t.Errorf("a complete file: error %v", err)
	}
	mustExecute(t, args(cut, "--replace", "--samples", "3")...)
	if _, pairs, err := datasets.ReadPairs(cut); err != nil || len(pairs) != 3 {
		t.Errorf("%v: %d pairs, want the 3 of the new run", err, len(pairs))
	}
	for name := range files(t, dir) {
		if strings.HasPrefix(filepath.Base(name), ".") {
			t.Errorf("%s is left", name)
		}
	}
}
