package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/internal/filelock/locktest"

	"golang.org/x/sys/unix"
)

// noLocks makes a program of these tests one on a file system without locks.
const noLocks = "GLIMPSE_TEST_NO_LOCKS"

func init() {
	if os.Getenv(noLocks) == "" {
		return
	}
	if err := locktest.None(unix.ENOTSUP); err != nil {
		panic(err)
	}
}

// TestNoLocks: without locks a run says so before it writes, instead of writing a
// checkpoint or a log that a second run could write, too.
func TestNoLocks(t *testing.T) {
	t.Setenv(noLocks, "1")
	for _, c := range []struct {
		name string
		args func(dir string) []string
		file string
	}{
		{"checkpoint", func(dir string) []string { return longRun(dir, 1) }, "state"},
		{"log", func(dir string) []string {
			return []string{"lookahead", "--steps", "1", "--tokens", "64", "--out", filepath.Join(dir, "adapter"), "--log", filepath.Join(dir, "log")}
		}, "log"},
		{"pairs", func(dir string) []string {
			return []string{"generate", "--samples", "1", "--tokens", "64", "--out", filepath.Join(dir, "pairs.jsonl")}
		}, "pairs.jsonl"},
		{"shards", func(dir string) []string {
			return []string{"generate", "--samples", "1", "--tokens", "64", "--shards", "1", "--out", filepath.Join(dir, "pairs")}
		}, "pairs/pairs-00000-of-00001.jsonl"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := start(t, c.args(dir)...)
			if code := run.finish(); code != 1 || !strings.Contains(run.output.String(), "this file system has no locks") {
				t.Errorf("exit code %d, want 1 and why:\n%s", code, &run.output)
			}
			if _, err := os.Stat(filepath.Join(dir, c.file)); err == nil {
				t.Errorf("%s was written", c.file)
			}
		})
	}
}
