package main

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/labels"
	"glimpse/model"
	"glimpse/model/hub"
	"glimpse/training"

	"github.com/spf13/cobra"
)

// gatesFlags are the flags of train gates.
type gatesFlags struct {
	model, device, cacheDType, out, label string
	set                                   []string
	contexts                              contextsFlags
	ridge                                 float64
	replace                               bool
	s3                                    objectstore.Settings
}

func newGates() *cobra.Command {
	var g gatesFlags
	cmd := &cobra.Command{
		Use:   "gates",
		Short: "Learn gates that score an entry when it is made, by least squares in minutes",
		Long: `Learn gates that score an entry when it is made, by least squares in minutes.

A gate is a linear map of each layer, from what its attention reads to the logarithm of the score
that a label gives the entry in every KV head (KVzap, arXiv:2601.07891). The label looks at
contexts as its policy does when it evicts: by default kvzip+, which makes the model repeat them.
The gate then needs no repetition: policy kvzap scores with one small product a layer, of
responses, too.

The folder has KVzap's layout, which kvpress reads, and is an adapter of this program.`,
		Annotations: cli.Details(`--data takes files and folders of text, or files of samples, which end in .jsonl. A tenth of the
contexts is held out: of the logarithms of their scores it is told how much the gates explain.`),
		Example: `  train gates --data out/samples.jsonl --samples 8 -o out/gates --replace
  train gates --model path/to/llama --data docs --samples 40 -o out/llama-gates --replace`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := g.learn(cmd); err != nil {
				return fmt.Errorf("gates: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	g.device = "cpu"
	cli.BindModel(f, &g.model, &g.device)
	f.StringVar(&g.cacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	g.contexts.bind(f, 40)
	f.StringVar(&g.label, "label", "context+", "what is learned: "+strings.Join(labels.Labels.Names(), ", ")+", or a policy, by its scores")
	f.StringArrayVar(&g.set, "set", nil, "option of the label, as kvzip+.of=mean; may be repeated")
	f.Float64Var(&g.ridge, "ridge", 1e-4, "part of the inputs' mean square that is added to the square of each")
	f.StringVarP(&g.out, "out", "o", "", "folder to write")
	f.BoolVar(&g.replace, "replace", false, "replace the folder")
	g.s3.Bind(f)
	cli.Everyday(cmd, "model", "device", "data", "label", "samples", "out", "replace")
	return cmd
}

// check refuses settings that nothing can be learned with, before anything is opened.
func (g *gatesFlags) check() error {
	switch {
	case g.out == "":
		return errors.New("--out is missing: the folder to write")
	case !(g.ridge >= 0) || math.IsInf(g.ridge, 0):
		return fmt.Errorf("--ridge: got %v, want a number from 0", g.ridge)
	}
	if err := g.contexts.check(); err != nil {
		return err
	}
	return checkpoints.CheckTarget(g.out, g.replace)
}

// learn learns the gates and writes them.
func (g *gatesFlags) learn(cmd *cobra.Command) error {
	if err := g.check(); err != nil {
		return err
	}
	named, err := labels.Named(g.label)
	if err != nil {
		return err
	}
	label, err := named.Configure(g.set...)
	if err != nil {
		return err
	}
	m, err := hub.Open(cmd.Context(), g.model, g.s3, cmd.ErrOrStderr(), model.Options{Device: g.device, CacheDType: g.cacheDType})
	if err != nil {
		return err
	}
	defer m.Close()
	r := &training.GatesRun{
		Model: m, Label: label, Text: strings.Join(append([]string{g.label}, g.set...), " "), Contexts: g.contexts.samples, Ridge: g.ridge,
		From: g.contexts.String(), Seed: g.contexts.seed,
	}
	if r.Next, err = g.contexts.open(cmd.Context(), m, g.s3, cmd.ErrOrStderr()); err != nil {
		return err
	}
	bar := progress.New(cmd.ErrOrStderr(), "contexts", int64(g.contexts.samples))
	r.Progress = func(int) { bar.Add(1) }
	learned, err := r.Run(cmd.Context())
	bar.Done()
	if err != nil {
		return err
	}
	if err := checkpoints.WriteAdapter(g.out, learned, g.replace); err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: gates of %d layers, of %d contexts with %.0f tokens\n", g.out, len(learned.Gates), g.contexts.samples, learned.Metrics["tokens"])
	if explained, ok := learned.Metrics["explained"]; ok {
		fmt.Fprintf(w, "they explain %.0f%% of the variance of the logarithms of scores in contexts that were held out\n", 100*explained)
	}
	return nil
}
