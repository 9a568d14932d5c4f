package main

import (
	"fmt"

	"glimpse/internal/train"
	"glimpse/model"

	"github.com/spf13/cobra"
)

// adapterCommand is a command that trains one adapter of one kind.
type adapterCommand struct {
	use, kind, short, long, example string
	rate                            float64 // default learning rate
	lora                            bool
	pooling                         int
}

// newAdapter makes the command. The kinds differ in their defaults and in whether
// they have LoRA.
func newAdapter(a adapterCommand) *cobra.Command {
	var (
		s       = spec{Config: train.DefaultConfig()}
		adapter = train.AdapterConfig{Kind: a.kind, LearningRate: a.rate, Pooling: a.pooling, AdapterConfig: model.AdapterConfig{Rows: 32, InitNoise: 0.3}}
		modules string
	)
	cmd := &cobra.Command{
		Use: a.use, Short: a.short, Long: a.long, Example: a.example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if adapter.Modules, err = model.ParseModules(modules); err != nil {
				return fmt.Errorf("%s: --modules: %w", a.use, err)
			}
			if !a.lora {
				adapter.Rank, adapter.Alpha = 0, 0
			}
			if s.out == "" {
				return fmt.Errorf("%s: --out is missing", a.use)
			}
			adapter.Seed = s.Config.Seed
			s.Config.Adapters, s.outs = []train.AdapterConfig{adapter}, []string{s.out}
			s.initTokenSet = cmd.Flags().Changed("init-token")
			s.poolingSet = cmd.Flags().Changed("pooling")
			return s.run(cmd.Context(), cmd.ErrOrStderr(), cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	s.bind(f)
	f.StringVarP(&s.out, "out", "o", "", "adapter folder to write")
	f.IntVar(&adapter.Rows, "rows", adapter.Rows, "learned rows n")
	f.Float64Var(&adapter.LearningRate, "lr", adapter.LearningRate, "peak learning rate")
	f.Int32Var(&adapter.InitToken, "init-token", -1, "id of the token whose embedding the rows start from, -1 for random rows; without the flag the last token of the first prompt, which chat templates make the end of the assistant header")
	f.Float64Var(&adapter.InitNoise, "init-noise", adapter.InitNoise, "noise on the rows, in standard deviations of the embeddings")
	f.IntVar(&adapter.Pooling, "pooling", adapter.Pooling, "max-pool kernel that the adapter asks for when it evicts; the built-in model's facts are single tokens and want 1, which is its default")
	f.StringVar(&adapter.Loss, "loss", "", "objective: kl or mse; empty is the kind's own")
	if a.lora {
		f.StringVar(&modules, "modules", "all", "linear layers with LoRA: all, qv, none, or a list of q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")
		f.IntVar(&adapter.Rank, "rank", 8, "LoRA rank r")
		f.Float64Var(&adapter.Alpha, "alpha", 32, "LoRA α; the update is scaled by α/r")
	}
	return cmd
}
