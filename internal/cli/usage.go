package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"strings"

	"glimpse/internal/tables"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// FlagGroups are the groups of flags in help, in its order. A name is of the same group in every
// command.
var FlagGroups = []struct {
	Title string
	Names string
}{
	{"Model", "model device cache-dtype adapter draft pattern"},
	{"Prompt", "prompt token-ids example example-seed raw chat-option chat-date"},
	{"Data", "config data field prompts recipe responses task task-option split tokens samples max-prompt truncate held-out prompt-tokens response-tokens metric"},
	{"Policy", "policy budget set sink recent"},
	{"Sampling", "sampling temperature top-p top-k min-p repetition-penalty max-new max-response seed sampling-seed"},
	{"Training", "preset steps epochs batch rows lr modules rank alpha loss init-token init-noise pooling warmup warmup-ratio schedule final-ratio beta1 beta2 epsilon weight-decay clip"},
	{"Validation", "validate validate-every validate-budgets patience"},
	{"Work", "workers concurrency cache-memory cache-disk strict dry-run shards shard resume checkpoint checkpoint-every"},
	{"Measurement", "agreement timings compare inspect count chip queries query-rows query-trials query-starts baseline highlight"},
	{"Output", "out title run log export upload replace json markdown groups json-out table-out plot needle-plot sweep-plot html npz"},
	{"Judge", "judge judge-model judge-key-env max-tokens timeout attempts"},
	{"Storage", "s3-endpoint s3-region s3-path-style"},
}

// help prints what a command does and how it is used.
func help(c *cobra.Command, _ []string) {
	w := c.OutOrStdout()
	about := strings.TrimSpace(cmp.Or(c.Long, c.Short))
	if columns := tables.Columns(w); columns > 0 {
		about = tables.Reflow(about, columns)
	}
	fmt.Fprintf(w, "%s\n\n%s", about, c.UsageString())
}

// usage prints how a command is used, with its flags in groups.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	fmt.Fprint(w, "Usage:\n")
	if c.HasParent() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprint(w, "\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	flagUsages(w, c)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nSee \"%s COMMAND --help\" for more about a command.\n", c.CommandPath())
	}
	return nil
}

func flagUsages(w io.Writer, c *cobra.Command) {
	groups, rest := make([]*pflag.FlagSet, len(FlagGroups)), newFlags()
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if i := groupOf(f.Name); i < 0 {
			rest.AddFlag(f)
		} else {
			if groups[i] == nil {
				groups[i] = newFlags()
			}
			groups[i].AddFlag(f)
		}
	})
	width := tables.Columns(os.Stdout)
	show := func(title string, f *pflag.FlagSet) {
		if f != nil && f.HasAvailableFlags() {
			fmt.Fprintf(w, "\n%s:\n%s\n", title, strings.TrimRight(f.FlagUsagesWrapped(width), "\n"))
		}
	}
	for i, f := range groups {
		show(FlagGroups[i].Title, f)
	}
	show("General", rest)
	if path, err := defaultsPath(); err == nil {
		fmt.Fprintf(w, "\nDefaults are also taken from %s; \"%s config\" shows which.\n", path, c.Root().Name())
	}
}

func newFlags() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	return f
}

// groupOf is the index of a flag's group, -1: it has none.
func groupOf(name string) int {
	for i, g := range FlagGroups {
		for other := range strings.FieldsSeq(g.Names) {
			if other == name {
				return i
			}
		}
	}
	return -1
}

// Grouped tells that help shows the flags of a name in one of the FlagGroups.
func Grouped(name string) bool { return groupOf(name) >= 0 }
