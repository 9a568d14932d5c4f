package cli

import (
	"cmp"
	"fmt"
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
	{"Prompt", "prompt system messages token-ids example example-seed raw chat-option chat-date"},
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
	page := tables.NewPage(w)
	writeHelp(page, c, tables.Columns(w))
	page.Flush()
}

// Help is what a command does and how it is used, in lines for a terminal of so many columns;
// 0 leaves them as they are.
func Help(c *cobra.Command, columns int) string {
	var b strings.Builder
	page := tables.NewPage(&b)
	writeHelp(page, c, columns)
	page.Flush()
	return b.String()
}

func writeHelp(page *tables.Page, c *cobra.Command, columns int) {
	about := strings.TrimSpace(cmp.Or(c.Long, c.Short))
	page.WriteString(tables.Reflow(about, columns) + "\n\n")
	writeUsage(page, c, columns)
}

// usage prints how a command is used, with its flags in groups.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	page := tables.NewPage(w)
	writeUsage(page, c, tables.Columns(w))
	return page.Flush()
}

func writeUsage(w *tables.Page, c *cobra.Command, columns int) {
	w.Heading("Usage:\n")
	if c.HasParent() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s COMMAND\n", c.CommandPath())
	}
	if c.HasExample() {
		w.Heading("\nExamples:\n")
		fmt.Fprintln(w, foldExamples(c.Example, columns))
	}
	if c.HasAvailableSubCommands() {
		w.Heading("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				name := fmt.Sprintf("  %-*s ", sub.NamePadding(), sub.Name())
				short := sub.Short
				if columns > 0 {
					short = tables.Wrap(short, columns-len(name))
				}
				fmt.Fprintln(w, name+strings.ReplaceAll(short, "\n", "\n"+strings.Repeat(" ", len(name))))
			}
		}
	}
	flagUsages(w, c, columns)
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nSee \"%s COMMAND --help\" for more about a command.\n", c.CommandPath())
	}
}

// foldExamples continues command lines that are too long on the next line, as a shell reads
// them.
func foldExamples(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if len(line) >= columns {
			folded := tables.Wrap(strings.TrimSpace(line), columns-len(`       \`))
			lines[i] = "  " + strings.ReplaceAll(folded, "\n", " \\\n      ")
		}
	}
	return strings.Join(lines, "\n")
}

func flagUsages(w *tables.Page, c *cobra.Command, columns int) {
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
	show := func(title string, f *pflag.FlagSet) {
		if f != nil && f.HasAvailableFlags() {
			w.Heading("\n" + title + ":\n")
			fmt.Fprintln(w, foldLists(strings.TrimRight(f.FlagUsagesWrapped(columns), "\n"), columns))
		}
	}
	for i, f := range groups {
		show(FlagGroups[i].Title, f)
	}
	show("General", rest)
	if path, err := defaultsPath(); err == nil {
		fmt.Fprintf(w, "\n%s\n", tables.Wrap(fmt.Sprintf("Defaults are also taken from %s; \"%s config\" shows which.", path, c.Root().Name()), columns))
	}
}

// foldLists breaks lists without spaces, which wrapped text has left too long, after commas.
func foldLists(text string, columns int) string {
	if columns <= 0 {
		return text
	}
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for len(line) >= columns {
			at := strings.LastIndexByte(line[:columns-1], ',') + 1
			if at <= indent {
				break
			}
			out = append(out, line[:at])
			line = strings.Repeat(" ", indent) + line[at:]
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
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
