package cli

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan writes the manual of all commands. It is for those who package the binary, so help
// does not show it.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the man pages of all commands",
		Long:    "Write the man pages of all commands into a folder, which is made. SOURCE_DATE_EPOCH sets\ntheir date.",
		Example: "  evict man out/man/man1",
		Hidden:  true,
		Args:    Args("DIR"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o777); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			root := c.Root()
			eachCommand(root, func(c *cobra.Command) { c.DisableAutoGenTag, c.Long = true, about(c, true) })
			header := &doc.GenManHeader{Section: "1", Source: "Glimpse", Manual: "Glimpse"}
			if err := doc.GenManTree(root, header, args[0]); err != nil {
				return fmt.Errorf("man: %w", err)
			}
			return nil
		},
	}
}
