package main

import (
	"fmt"
	"strings"
	"testing"

	"glimpse/eviction"
)

// TestTablesOnTerminal: whatever a command prints at a terminal fits it.
func TestTablesOnTerminal(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"policies": {[]string{"policies"}, []string{"POLICY", "RULE", "snapkv"}},
		"models":   {[]string{"models"}, []string{"ARCHITECTURE", "RoPE scaling types"}},
		"tasks":    {[]string{"tasks"}, []string{"TASK", "METRIC", "rouge"}},
		"task":     {[]string{"tasks", "longbench"}, []string{"subtasks", "OPTION"}},
		"costs":    {[]string{"costs"}, []string{"policy", "overhead ms", "tok/s", "want of room"}},
		"inspect":  {[]string{"inspect", "--example", "copy", "--tokens", "128", "--policy", "snapkv", "--budget", "32"}, []string{"KV HEAD", "POSITIONS"}},
		"eval":     {[]string{"eval", "--policy", "full,snapkv", "--budget", "16,32", "--tokens", "128", "--samples", "1"}, []string{"policy", "mean ±se", "kept"}},
	} {
		for _, columns := range []int{80, 120} {
			t.Run(fmt.Sprintf("%s/%d", name, columns), func(t *testing.T) {
				p := onTerminal(t, columns, c.args...)
				if code := p.Exit(); code != 0 {
					t.Errorf("exit code %d", code)
				}
				text := p.Screen()
				for _, want := range c.want {
					if !strings.Contains(text, want) {
						t.Errorf("no %q in\n%s", want, text)
					}
				}
				for _, line := range p.Lines() {
					if len([]rune(line)) > columns {
						t.Errorf("a line of %d characters: %s", len([]rune(line)), line)
					}
				}
			})
		}
	}
}

// TestTablesInPipe: piped, a row is a line.
func TestTablesInPipe(t *testing.T) {
	out, _, err := execute(t, "policies")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Count(out, "\n"), 1+len(eviction.Policies.Names()); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, out)
	}
}
