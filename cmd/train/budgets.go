package main

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/labels"
	"glimpse/training"

	"github.com/spf13/cobra"
)

// budgetsFlags are the flags of train budgets.
type budgetsFlags struct {
	contextsFlags
	budgets string
}

func newBudgets() *cobra.Command {
	var b budgetsFlags
	cmd := &cobra.Command{
		Use:   "budgets",
		Short: "Learn which KV heads need how much of a budget, which costs nothing at run time",
		Long: `Learn which KV heads need how much of a budget, which costs nothing at run time.

A few heads read far back and most do not: heads that share one budget by what each needs keep
much more of what a context says (KVzip, arXiv:2505.23416). The shares are a model's, whatever
is asked: they are learned once, as the mean over contexts of what each head keeps under the
ranking of a label, and any policy then ranks within the heads ("evict run --heads budgets.json").

With --label context the contexts are parts of any texts, which the model is made to repeat. With
--label response they are the prompts of samples made by "train generate", with their responses.`,
		Annotations: cli.Details(`--data takes files and folders of text, or files of samples, which end in .jsonl.
A run that was stopped goes on when it is started again: what was measured lies beside --out,
in a file that ends in .partial.`),
		Example: `  train budgets --label response --data out/samples.jsonl --samples 8 -o out/budgets.json --replace
  train budgets --model path/to/llama --data docs --samples 8 -o out/llama.json --replace`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := b.learn(cmd); err != nil {
				return fmt.Errorf("budgets: %w", err)
			}
			return nil
		},
	}
	b.bindFlags(cmd, 80, "context", "what all heads are ranked by: "+strings.Join(labels.Labels.Names(), ", ")+", or a policy", "file")
	cmd.Flags().StringVar(&b.budgets, "budgets", "2%,5%,10%,20%,50%", "shares of a context at which the heads' shares are learned")
	return cmd
}

// check refuses settings that nothing can be learned with, before anything is opened.
func (b *budgetsFlags) check() error {
	if err := b.contextsFlags.check(); err != nil {
		return err
	}
	_, err := os.Lstat(b.out)
	switch {
	case err == nil && !b.replace:
		return fmt.Errorf("--out: %s: %w: write over it with --replace, or name another file", b.out, atomicfile.ErrExists)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return nil
}

// learn learns the budgets and writes them.
func (b *budgetsFlags) learn(cmd *cobra.Command) error {
	if err := b.check(); err != nil {
		return err
	}
	shares, err := parseShares(b.budgets)
	if err != nil {
		return err
	}
	o, err := b.open(cmd, eviction.HeadsOption+"=global")
	if err != nil {
		return err
	}
	defer o.Close()
	r := &training.HeadBudgetsRun{
		Model: o.Model, Label: o.label, Text: b.labelText(), Budgets: shares, Contexts: b.samples, Next: o.next, From: b.String(), Partial: b.out + ".partial",
	}
	bar := progress.New(cmd.ErrOrStderr(), "contexts", int64(b.samples))
	r.Progress = func(int) { bar.Add(1) }
	learned, err := r.Run(cmd.Context())
	bar.Done()
	if err != nil {
		return err
	}
	raw, err := learned.Encode()
	if err == nil {
		err = atomicfile.WriteFile(b.out, append(raw, '\n'))
	}
	if err == nil {
		err = os.Remove(r.Partial)
	}
	if err != nil {
		return err
	}
	w := cmd.OutOrStdout()
	fmt.Fprintf(w, "%s: budgets of %d layers of %d KV heads, of %d contexts with %d tokens\n", b.out, o.Config.Layers, o.Config.KVHeads, learned.Samples, learned.Tokens)
	for _, at := range learned.Budgets {
		fmt.Fprintf(w, "at %.4g%%: a tenth of the heads keeps %.0f%% of all\n", 100*at.Budget, 100*at.Top(0.1))
	}
	middle := learned.Budgets[len(learned.Budgets)/2]
	fmt.Fprintf(w, "what the heads keep at %.4g%%, a column a layer, nothing (·) to everything (█):\n%s", 100*middle.Budget, drawnShares(middle, o.Config.KVHeads))
	return nil
}

// drawnShares has a line for each KV head and a character for each of its layers.
func drawnShares(at eviction.HeadShares, heads int) string {
	levels := []rune("·▁▂▃▄▅▆▇█")
	var out strings.Builder
	for h := range heads {
		fmt.Fprintf(&out, "head %-3d ", h)
		for _, shares := range at.Heads {
			switch {
			case shares == nil: // it is not decided about
				out.WriteByte(' ')
			default:
				out.WriteRune(levels[int(math.Round(shares[h]*float64(len(levels)-1)))])
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}

// parseShares reads shares of a context, which ascend.
func parseShares(list string) (out []float64, err error) {
	all, err := eviction.ParseBudgets(list)
	if err != nil {
		return nil, err
	}
	for _, b := range all {
		if b.Share() == 0 || b.Share() >= 1 || len(out) > 0 && b.Share() <= out[len(out)-1] {
			return nil, fmt.Errorf("--budgets: got %s, want shares below 100%% that ascend, as 5%%,10%%", list)
		}
		out = append(out, b.Share())
	}
	return out, nil
}
