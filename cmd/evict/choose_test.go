package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A policy that lacks its adapter is refused before the model is looked for, and where none was
// asked for another one is taken.
func TestPolicyWithoutItsAdapter(t *testing.T) {
	nowhere := filepath.Join(t.TempDir(), "none")
	for _, line := range []string{"run hi", "chat", "inspect hi", "eval --task section --budget 8"} {
		args := append(strings.Fields(line), "--model", nowhere, "--policy", "lookaheadkv")
		if _, _, err := execute(t, args...); err == nil || !strings.Contains(err.Error(), "policy lookaheadkv: needs an adapter") {
			t.Errorf("%v: error %v", args, err)
		}
	}
	for _, line := range []string{"run hi", "chat", "inspect hi"} {
		_, log, err := execute(t, append(strings.Fields(line), "--model", nowhere)...)
		if err == nil || strings.Contains(err.Error(), "adapter") || !strings.Contains(log, "the policy is snapkv; \"train lookahead") {
			t.Errorf("%s without a policy: %q, %v", line, log, err)
		}
	}
}

// TestDefaultBudget: commands that answer have one budget, with which the built-in model is right.
func TestDefaultBudget(t *testing.T) {
	for _, c := range newRoot().Commands() {
		if f := c.Flags().Lookup("budget"); slices.Contains([]string{"run", "chat", "inspect"}, c.Name()) && f.DefValue != "50%" {
			t.Errorf("%s: --budget is %s by default, want 50%%", c.Name(), f.DefValue)
		}
	}
	for _, example := range []string{"needle", "hops", "section"} {
		_, log, err := execute(t, "run", "--example", example)
		if err != nil || !strings.Contains(log, "the answer is right") || !strings.Contains(log, "budget 256 (50%)") {
			t.Errorf("%s: %v, %s", example, err, log)
		}
	}
}

// The seed of an answer does not change the example.
func TestExampleSeed(t *testing.T) {
	prompt := func(args ...string) string {
		_, log, err := execute(t, append([]string{"run", "--example", "section", "--tokens", "64", "--policy", "full", "--max-new", "2"}, args...)...)
		if err != nil || !strings.Contains(log, "cut short at 2 tokens") {
			t.Fatalf("%v, %q", err, log)
		}
		line, _, _ := strings.Cut(log, "\n")
		return line
	}
	first := prompt()
	if prompt("--seed", "2") != first {
		t.Error("another seed changes the example")
	}
	if prompt("--example-seed", "2") == first {
		t.Error("another example is the same")
	}
}
