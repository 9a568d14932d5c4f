package main

import (
	"fmt"

	"glimpse/internal/cli"
	"glimpse/training/runs"

	"github.com/spf13/cobra"
)

func newSweep() *cobra.Command {
	s := runs.Default()
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "sweep CONFIG.yaml",
		Short: "Train a grid of adapters in shared passes, and compare them in one table",
		Long: `Train a grid of adapters in shared passes, and compare them in one table.

The configuration is that of "train run" with one adapter, or a preset, and the grid:

  run: out/sweep
  adapters: [{kind: lookaheadkv}]
  sweep:
    rows: [8, 32]
    modules: [none, qv, all]
    learning_rate: [1e-3, 5e-3]
    per_pass: 8                  # adapters trained together

All adapters see the same samples in the same order. The table, best held-out loss
first, is also written to the run's folder as sweep.json.`,
		Example: `  train sweep scripts/examples/sweep.yaml`,
		Args:    cli.Args("CONFIG.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.Read(args[0], cli.GivenFlags(cmd.Flags())); err != nil {
				return err
			}
			rows, err := s.RunSweep(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if !s.Writes() {
				return nil
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema   string     `json:"schema"`
					Adapters []runs.Row `json:"adapters"`
				}{"glimpse.sweep/1", rows})
			}
			return runs.WriteRows(cmd.OutOrStdout(), rows, s.Train.Validation.Budgets)
		},
	}
	bindSpec(cmd.Flags(), s)
	bindSet(cmd.Flags(), s)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "model", "device", "data", "steps", "batch", "set", "run", "resume", "replace", "json")
	return cmd
}
