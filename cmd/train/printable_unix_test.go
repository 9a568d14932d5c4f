//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNamesAreShown: names of files reach no terminal and no log as they are, in
// messages as in errors.
func TestNamesAreShown(t *testing.T) {
	dir := t.TempDir()
	pairs := filepath.Join(dir, "pairs\x1b[2J.jsonl")
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"pairs", []string{"generate", "--samples", "2", "--tokens", "64", "--out", pairs}, `pairs\x1b[2J.jsonl: 2 samples`},
		{"error", []string{"lookahead", "--steps", "1", "--data", filepath.Join(dir, "\x1b[31m"), "--out", filepath.Join(dir, "c")}, `\x1b[31m`},
	} {
		run := start(t, c.args...)
		run.finish()
		if out := run.output.String(); !strings.Contains(out, c.want) || strings.Contains(out, "\x1b") {
			t.Errorf("%s: got %q, want %q in it", c.name, out, c.want)
		}
	}
}
