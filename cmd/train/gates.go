package main

import (
	"fmt"
	"math"
	"strings"

	"glimpse/checkpoints"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/labels"
	"glimpse/training"

	"github.com/spf13/cobra"
)

// gatesFlags are the flags of train gates.
type gatesFlags struct {
	contextsFlags
	ridge float64
	mlp   training.GateMLPs // with no number between: linear gates
}

func newGates() *cobra.Command {
	var g gatesFlags
	cmd := &cobra.Command{
		Use:   "gates",
		Short: "Learn gates that score an entry when it is made, in minutes",
		Long: `Learn gates that score an entry when it is made, in minutes.

A gate is a map of each layer, from what its attention reads to the logarithm of the score that a
label gives the entry in every KV head (KVzap, arXiv:2601.07891). It is linear, by least squares.
With --hidden it has so many numbers between, begins as the linear one, and is trained by AdamW.
The label looks at contexts as its policy does when it evicts: by default kvzip+, which makes the
model repeat them. The gate then needs no repetition: policy kvzap scores with one small product
a layer, of responses, too.

The folder has KVzap's layout, which kvpress reads, and is an adapter of this program.`,
		Annotations: cli.Details(`--data takes files and folders of text, or files of samples, which end in .jsonl. A tenth of the
contexts is held out: of the logarithms of their scores it is told how much the gates explain.`),
		Example: `  train gates --data out/samples.jsonl --samples 8 -o out/gates --replace
  train gates --data out/samples.jsonl --samples 8 --hidden 64 --steps 50 -o out/gates --replace
  train gates --model path/to/llama --data docs --hidden 512 -o out/llama-gates --replace`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.learn(cmd); err != nil {
				return fmt.Errorf("gates: %w", err)
			}
			return nil
		},
	}
	g.bindFlags(cmd, 40, "context+", "what is learned: "+strings.Join(labels.Labels.Names(), ", ")+", or a policy, by its scores", "folder")
	f := cmd.Flags()
	f.Float64Var(&g.ridge, "ridge", 0.03, "part of the inputs' mean square that is added to the square of each")
	f.IntVar(&g.mlp.Hidden, "hidden", 0, "numbers between, with GELU, of gates that are MLPs (KVzap: 512); 0: linear gates")
	f.IntVar(&g.mlp.Steps, "steps", 400, "with --hidden: steps of AdamW in each layer, with a warm-up and a cosine schedule")
	f.IntVar(&g.mlp.Batch, "batch", 512, "with --hidden: rows of a step")
	f.IntVar(&g.mlp.Rows, "rows", 512, "with --hidden: most rows of a context that are learned from, which are held in memory")
	f.Float64Var(&g.mlp.LearningRate, "lr", 3e-4, "with --hidden: peak learning rate")
	cli.Everyday(cmd, "hidden")
	return cmd
}

// check refuses settings that nothing can be learned with, before anything is opened.
func (g *gatesFlags) check() error {
	if err := g.contextsFlags.check(); err != nil {
		return err
	}
	if !(g.ridge >= 0) || math.IsInf(g.ridge, 0) {
		return fmt.Errorf("--ridge: got %v, want a number from 0", g.ridge)
	}
	return checkpoints.CheckTarget(g.out, g.replace)
}

// learn learns the gates and writes them.
func (g *gatesFlags) learn(cmd *cobra.Command) error {
	if err := g.check(); err != nil {
		return err
	}
	o, err := g.open(cmd)
	if err != nil {
		return err
	}
	defer o.Close()
	r := &training.GatesRun{
		Model: o.Model, Label: o.label, Text: g.labelText(), Contexts: g.samples, Ridge: g.ridge, Next: o.next, From: g.String(), Seed: g.seed,
	}
	bar := progress.New(cmd.ErrOrStderr(), "contexts", int64(g.samples))
	r.Progress = func(int) { bar.Add(1) }
	if g.mlp.Hidden != 0 {
		r.MLP = &g.mlp
		r.MLP.Progress = func(layers int) {
			if layers == 0 {
				bar.Done()
				bar = progress.New(cmd.ErrOrStderr(), "layers", int64(o.Config.Layers))
				return
			}
			bar.Add(1)
		}
	}
	learned, err := r.Run(cmd.Context())
	bar.Done()
	if err != nil {
		return err
	}
	if err := checkpoints.WriteAdapter(g.out, learned, g.replace); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: gates of %d layers, of %d contexts with %.0f tokens\n", g.out, len(learned.Gates), g.samples, learned.Metrics["tokens"])
	if explained, ok := learned.Metrics["explained"]; ok {
		fmt.Fprintf(w, "they explain %.1f%% of the variance of the logarithms of scores in contexts that were held out%s\n", 100*explained, asLinear(learned.Metrics))
	}
	return nil
}

// asLinear says what linear gates explain, of gates that are more.
func asLinear(metrics map[string]float64) string {
	linear, ok := metrics["explained_linear"]
	if !ok {
		return ""
	}
	return fmt.Sprintf(", linear ones %.1f%%", 100*linear)
}
