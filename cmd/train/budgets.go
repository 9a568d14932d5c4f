package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/model"
	"glimpse/model/hub"
	"glimpse/training"

	"glimpse/checkpoints/objectstore"

	"github.com/spf13/cobra"
)

func newBudgets() *cobra.Command {
	var (
		name, device, cacheDType, out, label, budgets string
		data, set                                     []string
		samples, shortest, longest                    int
		seed                                          uint64
		replace                                       bool
		s3                                            objectstore.Settings
	)
	cmd := &cobra.Command{
		Use:   "budgets",
		Short: "Learn which KV heads need how much of a budget, which costs nothing at run time",
		Long: `Learn which KV heads need how much of a budget, which costs nothing at run time.

A few heads read far back and most do not: heads that share one budget by what each needs keep
much more of what a context says (KVzip, arXiv:2505.23416). The shares are a model's, whatever
is asked: they are learned once, as the mean over contexts of what each head keeps under the
ranking of a label, and any policy then ranks within the heads ("evict run --heads budgets.json").

With --label kvzip the contexts are parts of any texts, which the model is made to repeat. With
--label oracle they are the prompts of samples made by "train generate", with their responses.`,
		Annotations: cli.Details(`--data takes files and folders of text, or one file of samples. A run that was stopped goes on
when it is started again: what was measured lies beside --out, in a file that ends in .partial.`),
		Example: `  train budgets --label oracle --data out/samples.jsonl --samples 8 -o out/budgets.json --replace
  train budgets --model path/to/llama --data docs --samples 8 -o out/llama.json --replace`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			fail := func(err error) error { return fmt.Errorf("budgets: %w", err) }
			switch {
			case out == "":
				return fail(errors.New("--out is missing: the file to write"))
			case len(data) == 0:
				return fail(errors.New("--data is missing: texts, or samples of train generate"))
			case samples < 1:
				return fail(fmt.Errorf("--samples: got %d, want at least 1", samples))
			case shortest < 16 || longest < shortest:
				return fail(fmt.Errorf("--shortest and --longest: got %d and %d, want at least 16 tokens, the longest no fewer", shortest, longest))
			}
			if _, err := os.Lstat(out); err == nil && !replace {
				return fail(fmt.Errorf("--out: %s: %w: write over it with --replace, or name another file", out, atomicfile.ErrExists))
			} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fail(err)
			}
			shares, err := parseShares(budgets)
			if err != nil {
				return fail(err)
			}
			overrides, err := eviction.ParseOverrides(append([]string{label + "." + eviction.HeadsOption + "=global"}, set...))
			if err != nil {
				return fail(err)
			}
			policy, err := eviction.New(label, seed, overrides, nil)
			if err != nil {
				return fail(err)
			}
			m, err := hub.Open(cmd.Context(), name, s3, cmd.ErrOrStderr(), model.Options{Device: device, CacheDType: cacheDType})
			if err != nil {
				return fail(err)
			}
			defer m.Close()
			r := &training.HeadBudgetsRun{
				Model: m, Label: policy, Text: strings.Join(append([]string{label}, set...), " "), Budgets: shares, Contexts: samples, Partial: out + ".partial",
				From: fmt.Sprintf("%s, seed %d, %d to %d tokens", strings.Join(data, ", "), seed, shortest, longest),
			}
			if r.Next, err = contexts(m, data, shortest, longest, seed); err != nil {
				return fail(err)
			}
			bar := progress.New(cmd.ErrOrStderr(), "contexts", int64(samples))
			r.Progress = func(int) { bar.Add(1) }
			learned, err := r.Run(cmd.Context())
			bar.Done()
			if err != nil {
				return fail(err)
			}
			raw, err := learned.Encode()
			if err == nil {
				err = atomicfile.WriteFile(out, append(raw, '\n'))
			}
			if err != nil {
				return fail(err)
			}
			if err := os.Remove(r.Partial); err != nil {
				return fail(err)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: budgets of %d layers of %d KV heads, of %d contexts with %d tokens\n", out, m.Config.Layers, m.Config.KVHeads, learned.Samples, learned.Tokens)
			for _, at := range learned.Budgets {
				fmt.Fprintf(cmd.OutOrStdout(), "at %v%%: a tenth of the heads keeps %.0f%% of all\n", 100*at.Budget, 100*at.Top(0.1))
			}
			return nil
		},
	}
	f := cmd.Flags()
	device = "cpu"
	cli.BindModel(f, &name, &device)
	f.StringVar(&cacheDType, "cache-dtype", "auto", model.CacheDTypeUsage)
	f.StringSliceVar(&data, "data", nil, "files and folders of text, or a file of samples made by train generate")
	f.StringVar(&label, "label", "kvzip", "policy whose ranking of all heads is learned: kvzip, or oracle with samples")
	f.StringArrayVar(&set, "set", nil, "option of the label, as kvzip.of=mean; may be repeated")
	f.StringVar(&budgets, "budgets", "2%,5%,10%,20%,50%", "shares of a context at which the heads' shares are learned")
	f.IntVar(&samples, "samples", 80, "number of contexts")
	f.IntVar(&shortest, "shortest", 512, "least tokens of a context, of texts")
	f.IntVar(&longest, "longest", 2048, "most tokens of a context, of texts")
	f.Uint64Var(&seed, "seed", 1, "seed of what is drawn of the texts")
	f.StringVarP(&out, "out", "o", "", "file to write")
	f.BoolVar(&replace, "replace", false, "replace the file")
	s3.Bind(f)
	cli.Everyday(cmd, "model", "device", "data", "label", "samples", "out", "replace")
	return cmd
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

// contexts are the prompts of a file of samples, with their responses, or parts of texts behind what the model's chat template
// begins a message with.
func contexts(m *model.Model, data []string, shortest, longest int, seed uint64) (func() (context, response []int32, err error), error) {
	if len(data) == 1 && filepath.Ext(data[0]) == ".jsonl" {
		_, pairs, err := datasets.ReadPairs(data[0])
		if err != nil {
			return nil, err
		}
		at := 0
		return func() ([]int32, []int32, error) {
			if at++; at > len(pairs) {
				return nil, nil, fmt.Errorf("%s has %d samples, want no fewer than --samples %s", data[0], len(pairs), strconv.Itoa(at))
			}
			return pairs[at-1].PromptIDs, pairs[at-1].ResponseIDs, nil
		}, nil
	}
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	var begins []int32
	if turn := m.UserTurn(); turn != nil {
		begins = turn.Begins
	}
	e, err := datasets.OpenExcerpts(data, shortest, longest, seed, func(text string) ([]int32, error) { return t.Encode(text, false) })
	if err != nil {
		return nil, err
	}
	return func() ([]int32, []int32, error) {
		ids, err := e.Next()
		return append(begins[:len(begins):len(begins)], ids...), nil, err
	}, nil
}
