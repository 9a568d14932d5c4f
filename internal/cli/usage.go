package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

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
	{"Model", "model from device cache-dtype exact adapter draft pattern"},
	{"Prompt", "prompt context system messages token-ids example example-seed raw chat-template chat-option chat-date"},
	{"Data", "config data field prompts recipe responses task task-option split tokens samples max-prompt context-first truncate held-out prompt-tokens response-tokens metric label budgets shortest longest"},
	{"Policy", "policy budget keep keep-pattern heads set sink recent"},
	{"Promise", "confidence document on-breach"},
	{"Sampling", "sampling temperature top-p top-k min-p repetition-penalty max-new max-response seed sampling-seed"},
	{"Training", "preset steps epochs batch rows lr modules rank alpha loss head-weights init-adapter scorer init-token init-noise pooling warmup warmup-ratio schedule final-ratio ridge hidden beta1 beta2 epsilon weight-decay clip"},
	{"Validation", "validate validate-every validate-budgets patience"},
	{"Work", "times workers concurrency cache-memory cache-disk strict dry-run shards shard resume accept-changed-data checkpoint checkpoint-every"},
	{"Measurement", "agreement compare inspect count chip queries query-rows query-trials query-starts baseline highlight"},
	{"Output", "out title run log export upload dtype registry replace json markdown groups json-out table-out plot needle-plot sweep-plot html npz"},
	{"Judge", "judge judge-model judge-key-env max-tokens timeout attempts"},
	{"Server", "listen served-model-name memory prefix-cache prefix-dir prefix-dir-size context-dir context-dir-size shared-prefixes full-below max-num-seqs queue max-gap max-body strict-fields reasoning-format keys admin-keys allowed-hosts cors-origin adapter-dir adapter-timeout tls-cert tls-key drain log-json record record-share record-limit verify-share shadow shadow-share"},
	{"Storage", "s3-endpoint s3-region s3-path-style"},
}

// plainColumns is the width of help that is not for a terminal.
const plainColumns = 100

// everyday is the annotation of flags that --help shows.
const everyday = "everyday"

// Everyday marks the flags of a command that --help shows. --help-all shows the others, too.
func Everyday(c *cobra.Command, names ...string) {
	for _, name := range names {
		if err := c.Flags().SetAnnotation(name, everyday, nil); err != nil {
			panic("cli: " + c.Name() + ": " + err.Error()) // there is no such flag
		}
	}
}

// inGroup is the annotation of flags that a command has in another group than others have.
const inGroup = "group"

// Group puts flags of a command, whose names mean something else elsewhere, into another of the FlagGroups.
func Group(c *cobra.Command, title string, names ...string) {
	for _, name := range names {
		if err := c.Flags().SetAnnotation(name, inGroup, []string{title}); err != nil {
			panic("cli: " + c.Name() + ": " + err.Error()) // there is no such flag
		}
	}
}

// details is the annotation of a command that --help-all and the manual say after its long text.
const details = "details"

// Details are the annotations of a command with text for --help-all and the manual.
func Details(text string) map[string]string { return map[string]string{details: text} }

// about is the text of a command.
func about(c *cobra.Command, all bool) string {
	text := strings.TrimSpace(cmp.Or(c.Long, c.Short))
	if more := strings.TrimSpace(c.Annotations[details]); all && more != "" {
		text += "\n\n" + more
	}
	return text
}

// Help is what a command does and how it is used, in lines for a terminal of so many columns; 0 is no
// terminal. It has the everyday flags, or all.
func Help(c *cobra.Command, columns int, all bool) string {
	var b strings.Builder
	page := tables.NewPage(&b)
	writeHelp(page, c, columns, all)
	page.Flush()
	return b.String()
}

func writeHelp(page *tables.Page, c *cobra.Command, columns int, all bool) {
	page.WriteString(tables.Reflow(about(c, all), columns) + "\n\n")
	writeUsage(page, c, columns, all)
}

// usage prints how a command is used, with its everyday flags in groups.
func usage(c *cobra.Command) error {
	w := c.OutOrStderr()
	page := tables.NewPage(w)
	writeUsage(page, c, tables.Columns(w), false)
	return page.Flush()
}

func writeUsage(w *tables.Page, c *cobra.Command, columns int, all bool) {
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
	columns = cmp.Or(columns, plainColumns)
	if c.HasAvailableSubCommands() {
		w.Heading("\nCommands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				writeEntry(w, fmt.Sprintf("  %-*s ", sub.NamePadding(), sub.Name()), sub.Short, columns)
			}
		}
	}
	left := writeFlags(w, c, columns, all)
	if path, err := defaultsPath(); err == nil && all {
		fmt.Fprintf(w, "\n%s\n", tables.Wrap(fmt.Sprintf("Defaults are also taken from %s; \"%s config\" shows which.", path, c.Root().Name()), columns))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nSee \"%s COMMAND --help\" for more about a command.\n", c.CommandPath())
	}
	if left > 0 {
		more := fmt.Sprintf("%d more flags", left)
		if c.Annotations[details] != "" {
			more += " and the details"
		}
		fmt.Fprintf(w, "\n\"%s --help-all\" shows %s.\n", c.CommandPath(), more)
	}
}

// writeEntry writes a line whose text goes on below itself.
func writeEntry(w io.Writer, head, text string, columns int) {
	width := utf8.RuneCountInString(head)
	room := max(columns-width, 24)
	text = foldLists(tables.Wrap(text, room), room)
	fmt.Fprintln(w, head+strings.ReplaceAll(text, "\n", "\n"+strings.Repeat(" ", width)))
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

// writeFlags writes the everyday flags, or all, in their groups; left is how many it does not write.
func writeFlags(w *tables.Page, c *cobra.Command, columns int, all bool) (left int) {
	groups := make([][]*pflag.Flag, len(FlagGroups)+1) // the last one is of flags that have no group
	c.Flags().VisitAll(func(f *pflag.Flag) {
		_, often := f.Annotations[everyday]
		switch i := groupOfFlag(f); {
		case f.Hidden:
		case !all && !often:
			left++
		case i < 0:
			groups[len(FlagGroups)] = append(groups[len(FlagGroups)], f)
		default:
			groups[i] = append(groups[i], f)
		}
	})
	for i, flags := range groups {
		if len(flags) == 0 {
			continue
		}
		title := "General"
		if i < len(FlagGroups) {
			title = FlagGroups[i].Title
		}
		w.Heading("\n" + title + ":\n")
		heads, width := make([]string, len(flags)), 0
		for j, f := range flags {
			heads[j] = flagHead(f)
			width = max(width, len(heads[j]))
		}
		for j, f := range flags {
			writeEntry(w, fmt.Sprintf("%-*s   ", width, heads[j]), flagText(f), columns)
		}
	}
	return left
}

// flagHead is a flag as it is written on a command line.
func flagHead(f *pflag.Flag) string {
	head := "      --" + f.Name
	if f.Shorthand != "" {
		head = "  -" + f.Shorthand + ", --" + f.Name
	}
	if value, _ := pflag.UnquoteUsage(f); value != "" {
		head += " " + strings.TrimSuffix(value, "Array") // which is given once for each string
	}
	return head
}

// flagText is what a flag does, with its default if that is not nothing.
func flagText(f *pflag.Flag) string {
	_, text := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "", "0", "0s", "false", "[]", "<nil>":
		return text
	}
	if f.Value.Type() == "string" {
		return fmt.Sprintf("%s (default %q)", text, f.DefValue)
	}
	return fmt.Sprintf("%s (default %s)", text, f.DefValue)
}

// foldLists breaks lists without spaces, which wrapped text has left too long, after commas.
func foldLists(text string, columns int) string {
	var out []string
	for line := range strings.SplitSeq(text, "\n") {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		for utf8.RuneCountInString(line) >= columns {
			at := strings.LastIndexByte(string([]rune(line)[:columns-1]), ',') + 1
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

// groupOfFlag is the index of a command's flag's group, -1: it has none.
func groupOfFlag(f *pflag.Flag) int {
	if title := f.Annotations[inGroup]; len(title) > 0 {
		for i, g := range FlagGroups {
			if g.Title == title[0] {
				return i
			}
		}
	}
	return groupOf(f.Name)
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
