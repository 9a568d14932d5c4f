package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// Args checks a command's arguments by their names; one in brackets, which come last,
// may be left out.
func Args(names ...string) cobra.PositionalArgs {
	least := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "[") {
			least++
		}
	}
	want := strings.Join(names, " ")
	want = cmp.Or(want, "none, only flags")
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= len(names) {
			return nil
		}
		got := "no argument"
		if len(args) > 0 {
			quoted := make([]string, min(len(args), 4))
			for i := range quoted {
				quoted[i] = fmt.Sprintf("%.40q", args[i])
			}
			if len(args) > len(quoted) {
				quoted = append(quoted, "…")
			}
			got = "the arguments " + strings.Join(quoted, " ")
			if len(args) == 1 {
				got = "the argument " + quoted[0]
			}
		}
		return fmt.Errorf("%s: got %s, want %s; see \"%s --help\"", cmd.Name(), got, want, cmd.CommandPath())
	}
}
