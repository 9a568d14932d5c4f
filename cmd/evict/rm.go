package main

import (
	"fmt"

	"glimpse/internal/bytesize"
	"glimpse/internal/cli"
	"glimpse/model/hub"

	"github.com/spf13/cobra"
)

func newRemove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME",
		Short: "Delete a model that was fetched",
		Long: `Delete a model that was fetched from the cache of the Hugging Face hub, which other programs
share: NAME is as for "evict pull". org/name:FILE.gguf deletes that file alone, org/name
all that the cache holds of the model. Folders and files elsewhere are left alone.`,
		Example: "  evict rm org/name",
		Args:    cli.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			freed, err := hub.Remove(args[0])
			if err != nil {
				return fmt.Errorf("rm: %w", err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: deleted, %s\n", args[0], bytesize.FormatSize(freed))
			return err
		},
	}
}
