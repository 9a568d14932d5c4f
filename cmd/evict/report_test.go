package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReport: a run of eval becomes a page and Markdown, the same every time.
func TestReport(t *testing.T) {
	dir := t.TempDir()
	run, page, text := filepath.Join(dir, "run"), filepath.Join(dir, "a.html"), filepath.Join(dir, "a.md")
	if _, _, err := execute(t, "eval", "--task", "section,needle", "--policy", "full,snapkv,lookaheadkv", "--budget", "16,10%", "--samples", "2", "--tokens", "96", "--out", run); err != nil {
		t.Fatal(err)
	}
	if _, _, err := execute(t, "report", run, "-o", page, "--out", text, "--samples", "1"); err != nil {
		t.Fatal(err)
	}
	for path, wants := range map[string][]string{
		page: {"<!DOCTYPE html>", "<svg", "lookaheadkv/shipped", "kept by", "section-96-0", "evict eval --config"},
		text: {"| snapkv |", "B = 10%", "section-96-0", "seed: 1", "lookaheadkv/shipped"},
	} {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range wants {
			if !strings.Contains(string(data), want) {
				t.Errorf("%s lacks %q", filepath.Base(path), want)
			}
		}
	}
	before, err := os.ReadFile(text)
	if err != nil {
		t.Fatal(err)
	}
	if out, _, err := execute(t, "report", run, "--samples", "1"); err != nil || out != string(before) {
		t.Errorf("on standard output: %v, other bytes than in the file: %v", err, out != string(before))
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"report"}, "RUN"},
		{[]string{"report", dir}, "not the folder of a run"},
		{[]string{"report", run, "-o", page}, "--replace"},
		{[]string{"report", run, "-o", filepath.Join(dir, "a.txt")}, ".html or .md"},
		{[]string{"report", run, "--baseline", "tova"}, `no policy "tova"`},
	} {
		if _, _, err := execute(t, c.args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.args, err, c.want)
		}
	}
}
