package main

import (
	"fmt"

	"glimpse/internal/cli"
	"glimpse/training/runs"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	s := runs.Default()
	cmd := &cobra.Command{
		Use:   "run CONFIG.yaml",
		Short: "Train several adapters, of any kinds, in one pass over the data",
		Long: `Train several adapters, of any kinds, in one pass over the data.

The adapters share each prompt's prefill and target, so every further one costs
only its own rows. The configuration is YAML, or JSON:

  preset: lookaheadkv          # a paper's hyper-parameters; all other keys override it
  model: path/to/llama         # without it, the built-in model
  data: [samples/]             # files or folders of samples; without it, synthetic tasks
  run: out/llama               # folder for configuration, log, events, curves, state, adapters
  train:
    steps: 2000
    validation: {every: 100, samples: 32, budgets: [64, 128, 256], patience: 5}
  adapters:
    - {name: all, kind: lookaheadkv, modules: all, learning_rate: 1e-3}
    - {name: soft, kind: judgeq, learning_rate: 0.02}`,
		Annotations: cli.Details(`What an adapter leaves out is as in its kind's paper; "outs" or an adapter's "out"
name other folders for the adapters. Flags override the file, and --set reaches
every key of it: --set adapters.0.rows=16. Unknown keys are errors. The resolved
configuration is written to the run's folder as config.yaml.`),
		Example: `  train run scripts/examples/run.yaml
  train run scripts/examples/run.yaml --steps 4 --set adapters.1.rows=16 --run out/short`,
		Args: cli.Args("CONFIG.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := s.Read(args[0], cli.GivenFlags(cmd.Flags())); err != nil {
				return err
			}
			if s.Sweep != nil {
				return fmt.Errorf("%s: sweep: is for train sweep, want none", args[0])
			}
			if err := s.Folders(args[0]); err != nil {
				return err
			}
			if err := s.Run(cmd.Context(), cmd.ErrOrStderr(), cmd.OutOrStdout()); err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			return nil
		},
	}
	bindSpec(cmd.Flags(), s)
	bindSet(cmd.Flags(), s)
	cli.Everyday(cmd, "model", "device", "data", "steps", "batch", "set", "run", "export", "resume", "replace")
	return cmd
}
