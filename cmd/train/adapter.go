package main

import (
	"fmt"
	"strings"

	"glimpse/internal/cli"
	"glimpse/labels"
	"glimpse/losses"
	"glimpse/training/runs"

	"github.com/spf13/cobra"
)

// rowsDetails are what the help of these commands says of the learned rows.
const rowsDetails = `--init-token -1 starts from random rows, as in the papers; "end" is the last token of the first
prompt, which chat templates make the end of the assistant header. --pooling is what the adapter
asks for when it evicts; for the built-in model it is 1, since its facts are single tokens.`

// adapterCommand is a command that trains one adapter of one kind.
type adapterCommand struct {
	use, kind, short, long, details, example string
	rate                                     float64 // default learning rate
	lora                                     bool
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
		Use: a.use, Short: a.short, Long: a.long, Annotations: cli.Details(a.details), Example: a.example, Args: cli.Args(),
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
	bindSpec(f, s)
	f.StringVarP(&out, "out", "o", "", "adapter folder to write")
	f.IntVar(&adapter.Rows, "rows", adapter.Rows, "number of learned rows")
	f.Float64Var(&adapter.LearningRate, "lr", adapter.LearningRate, "peak learning rate")
	f.Var(&adapter.InitToken, "init-token", "token whose embedding the rows start from: an id, end (the first prompt's last) or -1 (random)")
	f.Float64Var(&adapter.InitNoise, "init-noise", adapter.InitNoise, "noise added to the rows at the start, in standard deviations of the embeddings")
	f.IntVar(&adapter.Pooling, "pooling", adapter.Pooling, "width of the max pooling of scores; 0 is the paper's, but 1 for the built-in model")
	f.StringVar(&adapter.Label, "label", "", "what is learned: "+strings.Join(labels.Labels.Names(), ", ")+"; empty is response")
	f.StringVar(&adapter.HeadWeights, "head-weights", "", "weights of the heads in the loss: equal, or learned for their shares of a budget (--heads)")
	f.StringVar(&adapter.InitAdapter, "init-adapter", "", "adapter folder whose numbers it begins with, of the same rows and factors")
	f.StringVar(&adapter.Scorer, "scorer", "", "adapter folder whose rows select in the place of these, for rows that stay (restore)")
	f.StringVar(&adapter.Loss, "loss", "", "objective: "+strings.Join(losses.Losses.Names(), ", ")+"; empty is that of the adapter's kind")
	if a.lora {
		f.Var(&adapter.Modules, "modules", "linear layers with LoRA: all, qv, none, experts, or a list such as q_proj,v_proj")
		f.IntVar(&adapter.Rank, "rank", adapter.Rank, "LoRA rank r")
		f.Float64Var(&adapter.Alpha, "alpha", adapter.Alpha, "LoRA α; the update is scaled by α/r")
	}
	cli.Everyday(cmd, "preset", "model", "device", "data", "label", "steps", "batch", "rows", "lr", "run", "out", "resume", "replace")
	if a.lora {
		cli.Everyday(cmd, "modules", "rank")
	}
	return cmd
}
