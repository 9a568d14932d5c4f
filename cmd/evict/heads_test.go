package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestHeadsOfARun: how heads share a budget is part of a run: it changes what is kept and nothing of how much, stands in its
// configuration, and a run goes on with no other.
func TestHeadsOfARun(t *testing.T) {
	folder := t.TempDir()
	kept := make(map[string]string)
	for _, heads := range []string{"", "equal", "global", "shipped"} {
		out := filepath.Join(folder, "run-"+heads)
		args := []string{"eval", "-q", "--task", "section", "--tokens", "128", "--samples", "1", "--policy", "lookaheadkv,adakv", "--budget", "16", "--out", out}
		if heads != "" {
			args = append(args, "--heads", heads)
		}
		if _, _, err := execute(t, args...); err != nil {
			t.Fatal(heads, err)
		}
		raw, err := os.ReadFile(filepath.Join(out, "kept.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(raw), "\n")
		at := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, `"lookaheadkv"`) })
		if at < 0 {
			t.Fatalf("%q: nothing kept by lookaheadkv in %s", heads, raw)
		}
		kept[heads] = lines[at]
		config, err := os.ReadFile(filepath.Join(out, "config.yaml"))
		if err != nil || strings.Contains(string(config), "heads: "+heads) != (heads != "") {
			t.Errorf("%q: %v\n%s", heads, err, config)
		}
	}
	if kept[""] != kept["equal"] || kept["equal"] == kept["global"] || kept["equal"] == kept["shipped"] || kept["global"] == kept["shipped"] {
		t.Errorf("kept: %q", kept)
	}
	_, _, err := execute(t, "eval", "-q", "--task", "section", "--tokens", "128", "--samples", "1", "--policy", "lookaheadkv,adakv", "--budget", "16", "--out", filepath.Join(folder, "run-global"), "--resume", "--heads", "shipped")
	if err == nil || !strings.Contains(err.Error(), `begun with heads "global"`) {
		t.Errorf("gone on with others: %v", err)
	}
	if _, _, err := execute(t, "run", "--example", "section", "--heads", "shipped", "--policy", "snapkv(head-budgets=learned)", "--budget", "16"); err != nil {
		t.Error(err)
	}
	if _, _, err := execute(t, "run", "--example", "section", "--heads", "no/such"); err == nil || !strings.Contains(err.Error(), "--heads no/such") {
		t.Errorf("no such file: %v", err)
	}
}
