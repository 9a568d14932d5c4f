package main

import (
	"fmt"

	"glimpse/internal/cli"
	"glimpse/internal/collector"
	"glimpse/internal/hostmemory"
	"glimpse/model/hub"
	"glimpse/training"
	"glimpse/training/runs"

	"github.com/spf13/cobra"
)

// defaultPreset is planned where nothing says what to train.
const defaultPreset = "lookaheadkv"

func newPlan() *cobra.Command {
	var (
		s                = runs.Default()
		prompt, response int
		asJSON           bool
	)
	cmd := &cobra.Command{
		Use:   "plan [CONFIG.yaml]",
		Short: "Say what a run will take, before it runs and without its weights",
		Long: `Say what a run will take, before it runs and without its weights.

Prints how long the run takes on this machine and, computed, on one H100, every adapter's
number of parameters, the memory by purpose, the time of a step, and what to change where
the run takes more than a day or more memory than there is. The model's folder needs no
weights: config.json is enough. A configuration is that of "train run", or of "train
sweep", whose passes are then added up. Without one the run is that of --preset.`,
		Annotations: cli.Details(`Of a model of the hub or of a bucket only config.json is fetched. A plan takes about a
second, whatever the model's size: memory is counted without weights, and the times are
computed from rates that are measured on this machine.

Lengths are those of the data, of the synthetic tasks, or of --prompt-tokens and
--response-tokens; without any of them, those of the preset.`),
		Example: `  train plan --prompt-tokens 512
  train plan scripts/examples/run.yaml
  train plan scripts/examples/sweep.yaml
  train plan --preset lookaheadkv --prompt-tokens 512 --response-tokens 16 --json
  train plan --preset lookaheadkv --model path/to/llama --prompt-tokens 16384`,
		Args: cli.Args("[CONFIG.yaml]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := cli.GivenFlags(cmd.Flags())
			path := "train plan"
			if len(args) == 1 {
				path = args[0]
				if err := s.Read(path, flags); err != nil {
					return err
				}
			} else {
				if s.Preset == "" {
					s.Preset = defaultPreset
					fmt.Fprintf(cmd.ErrOrStderr(), "no configuration, no --preset: a plan of --preset %s\n", s.Preset)
				}
				if err := s.ReadPreset(flags); err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
			}
			collector.Bound(training.LeastGarbage)
			m, err := hub.OpenShapes(cmd.Context(), s.Model, s.S3, cmd.ErrOrStderr(), s.Device)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if err := m.SetCacheDType(s.CacheDType); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			passes, o, err := s.Plan(cmd.Context(), m, prompt, response, cmd.ErrOrStderr())
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			o.Resident, o.Available = hostmemory.Resident, hostmemory.Available
			p, err := training.NewPlan(cmd.Context(), m, passes, o)
			if err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema string `json:"schema"`
					*training.RunPlan
				}{"glimpse.plan/1", p})
			}
			return p.Write(cmd.OutOrStdout(), &passes[0])
		},
	}
	f := cmd.Flags()
	bindSpec(f, s)
	bindSet(f, s)
	f.IntVar(&prompt, "prompt-tokens", 0, "tokens of the longest prompt; 0 is that of the data or the preset")
	f.IntVar(&response, "response-tokens", 0, "tokens of the longest response; 0 is that of the data or the preset")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "preset", "model", "device", "data", "prompt-tokens", "response-tokens", "steps", "batch", "set", "json")
	return cmd
}
