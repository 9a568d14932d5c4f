package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Values are what the shell completes for a flag.
type Values struct {
	// Names lists them; it is called when the shell asks.
	Names func() []string
	// Separators, if any, stand between names of a list; what follows the last one is
	// completed, and each name is offered once.
	Separators string
	// Files: file names are completed, too.
	Files bool
}

// ValuesOf is the values of a flag that takes one of some names.
func ValuesOf(names ...string) Values { return Values{Names: func() []string { return names }} }

// completing tells that a shell asks for completions. What is registered for them is held as long as the process lives.
var completing = len(os.Args) > 1 && strings.HasPrefix(os.Args[1], cobra.ShellCompRequestCmd)

// completeFlags registers the values of the command's own flags, by their names. Flags that
// take numbers complete nothing, where the shell would offer files.
func completeFlags(c *cobra.Command, values map[string]Values) {
	register := func(f *pflag.Flag) {
		v, ok := values[c.Name()+" "+f.Name]
		if !ok {
			v, ok = values[f.Name]
		}
		switch f.Value.Type() {
		case "int", "int64", "uint64", "float", "float64", "intSlice", "budget":
			v, ok = Values{}, true
		}
		if !ok {
			return
		}
		err := c.RegisterFlagCompletionFunc(f.Name, func(_ *cobra.Command, _ []string, written string) ([]cobra.Completion, cobra.ShellCompDirective) {
			return v.complete(written)
		})
		if err != nil {
			panic("cli: " + err.Error()) // registered twice
		}
	}
	c.LocalNonPersistentFlags().VisitAll(register)
	c.PersistentFlags().VisitAll(register)
}

func (v Values) complete(written string) ([]cobra.Completion, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	if v.Files {
		directive = cobra.ShellCompDirectiveDefault
	}
	if v.Names == nil {
		return nil, directive
	}
	before, last := "", written
	if i := strings.LastIndexAny(written, v.Separators); i >= 0 {
		before, last = written[:i+1], written[i+1:]
	}
	taken := make(map[string]bool)
	for _, name := range strings.FieldsFunc(before, func(r rune) bool { return strings.ContainsRune(v.Separators, r) }) {
		taken[name] = true
	}
	var out []cobra.Completion
	for _, name := range v.Names() {
		if strings.HasPrefix(name, last) && !taken[name] {
			out = append(out, before+name)
		}
	}
	if v.Separators != "" {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	return out, directive
}
