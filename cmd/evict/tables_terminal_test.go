//go:build unix

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
		"inspect":  {[]string{"inspect", "--example", "section", "--tokens", "128", "--policy", "snapkv", "--budget", "32"}, []string{"KV HEAD", "POSITIONS"}},
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

// TestHeadings: the heads of tables and the titles of sections are bold on a terminal that has
// colours, and then all else is as where it has none, to the character.
func TestHeadings(t *testing.T) {
	const bold, reset = "\x1b[1m", "\x1b[0m"
	for name, c := range map[string]struct {
		args []string
		bold []string // lines, or what they begin with
	}{
		"policies": {[]string{"policies"}, []string{"POLICY  "}},
		"task":     {[]string{"tasks", "longbench"}, []string{"OPTION  "}},
		"costs":    {[]string{"costs"}, []string{"context  "}},
		"eval":     {[]string{"eval", "--policy", "full,snapkv", "--budget", "16", "--tokens", "128", "--samples", "1", "-q"}, []string{"Budget 16, ", "policy "}},
		"help":     {[]string{"run", "--help"}, []string{"Usage:", "Examples:", "Policy:"}},
	} {
		for _, columns := range []int{80, 120} {
			t.Run(fmt.Sprintf("%s/%d", name, columns), func(t *testing.T) {
				plain := ""
				for _, env := range []string{"TERM=dumb NO_COLOR=", "TERM=xterm NO_COLOR=1", "TERM=xterm NO_COLOR="} {
					p := onTerminalWith(t, columns, strings.Fields(env), c.args...)
					if code := p.Exit(); code != 0 {
						t.Errorf("%s: exit code %d", env, code)
					}
					out, text := p.Output(), p.Screen()
					for _, line := range p.Lines() {
						if len([]rune(line)) > columns {
							t.Errorf("%s: a line of %d characters: %s", env, len([]rune(line)), line)
						}
					}
					if !strings.HasSuffix(env, "xterm NO_COLOR=") {
						if strings.Contains(out, bold) {
							t.Errorf("%s: something is bold in %q", env, out)
						}
						plain = text
						continue
					}
					if text != plain {
						t.Errorf("%s: other text:\n%s\nwant\n%s", env, text, plain)
					}
					for _, want := range c.bold {
						if !strings.Contains(out, bold+want) {
							t.Errorf("%s: %q is not bold in %q", env, want, out)
						}
					}
					for line := range strings.Lines(out) {
						if n := strings.Count(line, bold); n != strings.Count(line, reset) {
							t.Errorf("%s: %q begins or ends to be bold on another line", env, line)
						}
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
	if strings.Contains(out, "\x1b") {
		t.Errorf("a sequence for terminals in %q", out)
	}
	if got, want := strings.Count(out, "\n"), 1+len(eviction.Policies.Names()); got != want {
		t.Errorf("%d lines, want %d:\n%s", got, want, out)
	}
}
