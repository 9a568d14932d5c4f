// Package clitest checks what every command line program must do.
package clitest

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"glimpse/internal/cli"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// CheckHelp checks the help of all commands: --help fits on a screen and has the everyday flags, --help-all
// has every flag in a group, and lines fit the terminal.
func CheckHelp(t *testing.T, root *cobra.Command) {
	t.Setenv("GLIMPSE_CONFIG", "/home/a.person/of.some/longer/name/.config/glimpse/config.yaml")
	for _, c := range append([]*cobra.Command{root}, root.Commands()...) {
		t.Run(c.Name(), func(t *testing.T) {
			c.InitDefaultHelpFlag()
			short, all := cli.Help(c, 0, false), cli.Help(c, 0, true)
			if n := strings.Count(short, "\n"); n > 50 {
				t.Errorf("--help has %d lines, want at most 50", n)
			}
			shown, listed, rest := flags(short), flags(all), 0
			c.Flags().VisitAll(func(f *pflag.Flag) {
				if f.Hidden {
					return
				}
				if c.LocalNonPersistentFlags().Lookup(f.Name) != nil && !cli.Grouped(f.Name) && f.Name != "help" && f.Name != "version" {
					t.Errorf("--%s is in no group of cli.FlagGroups", f.Name)
				}
				if !slices.Contains(listed, f.Name) {
					t.Errorf("--help-all does not show --%s", f.Name)
				}
				if !slices.Contains(shown, f.Name) {
					rest++
				}
				own, _, _ := strings.Cut(f.Usage, " [$")
				if n := utf8.RuneCountInString(own); n > 120 {
					t.Errorf("--%s: usage of %d characters, want at most 120; --help-all has room in cli.Details: %s", f.Name, n, f.Usage)
				}
				for _, word := range strings.FieldsFunc(f.Usage, func(r rune) bool { return r < 'a' || r > 'z' }) {
					if word == "pair" || word == "pairs" {
						t.Errorf("--%s: %q, want entries for keys and values, samples for what is trained on", f.Name, f.Usage)
					}
				}
			})
			if len(shown) > 15 {
				t.Errorf("--help shows %d flags, want at most 15: %q", len(shown), shown)
			}
			lines := strings.Split(strings.TrimSpace(short), "\n")
			if last := lines[len(lines)-1]; rest > 0 && !strings.HasPrefix(last, promise(c, rest)) {
				t.Errorf("--help ends with %q, want %q", last, promise(c, rest))
			}
			for columns, text := range map[int]string{100: short + all, 80: cli.Help(c, 80, false) + cli.Help(c, 80, true)} {
				for line := range strings.SplitSeq(text, "\n") {
					if n := utf8.RuneCountInString(line); n >= columns {
						t.Errorf("%d characters, want less than %d: %s", n, columns, line)
					}
				}
				if strings.Contains(text, "[=") {
					t.Error("a flag has [=…] in its help")
				}
			}
			// A command line that is folded is still one to a shell.
			whole := strings.ReplaceAll(cli.Help(c, 80, false), " \\\n      ", " ")
			for line := range strings.SplitSeq(c.Example, "\n") {
				if !strings.Contains(whole, line) {
					t.Errorf("the example %q is not in its help", line)
				}
			}
			if !strings.Contains(short, c.Example) {
				t.Error("help that is piped does not have the examples as they are")
			}
		})
	}
}

// flagLine is a line of help that begins with a flag.
var flagLine = regexp.MustCompile(`(?m)^  (?:-\w, |    )--([\w-]+)`)

// flags are the names of the flags that a text of help lists.
func flags(help string) (names []string) {
	for _, match := range flagLine.FindAllStringSubmatch(help, -1) {
		names = append(names, match[1])
	}
	return names
}

func promise(c *cobra.Command, n int) string {
	return fmt.Sprintf(`"%s --help-all" shows %d more flags`, c.CommandPath(), n)
}
