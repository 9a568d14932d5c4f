package main

import (
	"fmt"

	"glimpse/internal/cli"
	"glimpse/training/runs"

	"github.com/spf13/cobra"
)

// adapterCommand is a command that trains one adapter of one kind.
type adapterCommand struct {
	use, kind, short, long, example string
	rate                            float64 // default learning rate
	lora                            bool
}

// newAdapter makes the command. The kinds differ in their defaults and in whether
// they have LoRA.
func newAdapter(a adapterCommand) *cobra.Command {
	var (
		s       = runs.Default()
		out     string
		adapter runs.Adapter
	)
	adapter.Defaults(func(string) string { return a.kind })
	adapter.LearningRate = a.rate
	cmd := &cobra.Command{
		Use: a.use, Short: a.short, Long: a.long, Example: a.example, Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return fmt.Errorf("%s: --out is missing", a.use)
			}
			if err := s.ReadAdapter(&adapter, out, cli.GivenFlags(cmd.Flags())); err != nil {
				return fmt.Errorf("%s: %w", a.use, err)
			}
			return s.Run(cmd.Context(), cmd.ErrOrStderr(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	bind(f, s)
	f.StringVarP(&out, "out", "o", "", "adapter folder to write")
	f.IntVar(&adapter.Rows, "rows", adapter.Rows, "learned rows n")
	f.Float64Var(&adapter.LearningRate, "lr", adapter.LearningRate, "peak learning rate")
	f.Var(&adapter.InitToken, "init-token", "-1 for random rows, as in the papers; or the id of the token whose embedding the rows start from; or end: the last token of the first prompt, which chat templates make the end of the assistant header")
	f.Float64Var(&adapter.InitNoise, "init-noise", adapter.InitNoise, "noise on the rows, in standard deviations of the embeddings")
	f.IntVar(&adapter.Pooling, "pooling", adapter.Pooling, "max-pool kernel that the adapter asks for when it evicts; 0 is the paper's, but 1 for the built-in model, whose facts are single tokens")
	f.StringVar(&adapter.Loss, "loss", "", "objective: kl or mse; empty is the kind's own")
	if a.lora {
		f.Var(&adapter.Modules, "modules", "linear layers with LoRA: all, qv, none, or a list of q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")
		f.IntVar(&adapter.Rank, "rank", adapter.Rank, "LoRA rank r")
		f.Float64Var(&adapter.Alpha, "alpha", adapter.Alpha, "LoRA α; the update is scaled by α/r")
	}
	return cmd
}
