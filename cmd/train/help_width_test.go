package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"glimpse/internal/cli"

	"github.com/spf13/cobra"
)

// TestHelpFitsTheTerminal: no line of any help is as long as a terminal of 80 columns is wide,
// and a command line that is folded is still one to a shell.
func TestHelpFitsTheTerminal(t *testing.T) {
	t.Setenv("GLIMPSE_CONFIG", "/home/a.person/of.some/longer/name/.config/glimpse/config.yaml")
	root := newRoot()
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		c.InitDefaultHelpFlag()
		text := cli.Help(c, 80)
		for line := range strings.SplitSeq(text, "\n") {
			if n := utf8.RuneCountInString(line); n >= 80 {
				t.Errorf("%s: %d characters: %s", c.CommandPath(), n, line)
			}
		}
		whole := strings.ReplaceAll(text, " \\\n      ", " ")
		for line := range strings.SplitSeq(c.Example, "\n") {
			if !strings.Contains(whole, line) {
				t.Errorf("%s: the example %q is not in its help", c.CommandPath(), line)
			}
		}
		if !strings.Contains(cli.Help(c, 0), c.Example) {
			t.Errorf("%s: help that is piped does not have the examples as they are", c.CommandPath())
		}
	}
}
