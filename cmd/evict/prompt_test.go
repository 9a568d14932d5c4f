package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestPipedDocument: "-" is what is piped in, before or after a text as they are given; without it the pipe is left alone and
// that is said.
func TestPipedDocument(t *testing.T) {
	run := func(args ...string) (notes int, log string, left bool) {
		t.Helper()
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		if _, err := in.WriteString("map river\n"); err != nil {
			t.Fatal(err)
		}
		in.Close()
		root := newRoot()
		var told bytes.Buffer
		root.SetIn(out)
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&told)
		root.SetArgs(append([]string{"run", "--policy", "full", "--raw", "--max-new", "1"}, args...))
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		n, _ := out.Read(make([]byte, 1))
		return strings.Count(told.String(), "what is piped in is not read"), told.String(), n > 0
	}
	for _, c := range []struct {
		args    []string
		entries string
		left    bool
	}{
		{[]string{"map"}, "kept 1 of 1 ", true},
		{[]string{"-"}, "kept 2 of 2 ", false},
		{[]string{"-", "map"}, "kept 3 of 3 ", false},
		{[]string{"map", "-"}, "kept 3 of 3 ", false},
	} {
		notes, log, left := run(c.args...)
		if left != c.left || (notes == 1) != c.left || !strings.Contains(log, c.entries) {
			t.Errorf("%q: %d notes, left %v, want left %v and %q:\n%s", c.args, notes, left, c.left, c.entries, log)
		}
	}
}

// TestShortPromptsAreWhole: without a budget a short prompt keeps everything, and a budget that is given holds for it, too.
func TestShortPromptsAreWhole(t *testing.T) {
	for want, args := range map[string][]string{
		"budget 4 (all of a short prompt): kept 4 of 4 ": nil,
		"budget 2 (50%): kept 2 of 4 ":                   {"--budget", "50%"},
	} {
		_, log, err := execute(t, append([]string{"run", "--policy", "streamingllm", "--raw", "--max-new", "1", "map river map river"}, args...)...)
		if err != nil || !strings.Contains(log, want) {
			t.Errorf("%q: %v, want %q:\n%s", args, err, want, log)
		}
	}
}
