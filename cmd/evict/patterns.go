package main

import (
	"fmt"
	"os"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/atomicfile"
	"glimpse/internal/progress"
	"glimpse/internal/tables"

	"glimpse/internal/cli"

	"github.com/spf13/cobra"
)

// maxSamples bounds the prompts of a task.
const maxSamples = 1 << 20

func newPatterns() *cobra.Command {
	var (
		o                             engine.Options
		out, split                    string
		tokens, samples, sink, recent int
		asJSON, replace               bool
	)
	cmd := &cobra.Command{
		Use:   "patterns",
		Short: "Find a model's retrieval heads and write them as a DuoAttention pattern",
		Long: `Find a model's retrieval heads and write them as a DuoAttention pattern.

The model is led through answers that are copied from the prompt: passages and
needles of the synthetic tasks, where it knows their words, and otherwise random
tokens whose sequence begins a second time. A head's number is the attention that
it pays to the places of the prompt where the next token of the answer stands.

--out names the folder to make: full_attention_heads.tsv, one line per layer and one
number per KV head, and config.json. A folder "duoattention" within a model folder is
that model's default; another one is given with --pattern.`,
		Example: `  evict patterns --out out/pattern --replace
  evict patterns --model path/to/llama --out path/to/llama/duoattention --replace`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case out == "" && !asJSON:
				return fmt.Errorf("patterns: --out is missing: the folder to make")
			case samples < 1 || samples > maxSamples:
				return fmt.Errorf("patterns: --samples: got %d, want 1 to %d", samples, maxSamples)
			case sink < 0 || recent < 0:
				return fmt.Errorf("patterns: --sink and --recent: got %d and %d, want at least 0", sink, recent)
			}
			if _, err := os.Lstat(out); out != "" && err == nil && !replace {
				return fmt.Errorf("patterns: --out: %s: %w: write over it with --replace, or name another folder", out, atomicfile.ErrExists)
			}
			which, err := datasets.ParseSplit(split)
			if err != nil {
				return fmt.Errorf("patterns: %w", err)
			}
			m, err := o.OpenModel(cmd.Context(), cmd.ErrOrStderr(), nil)
			if err != nil {
				return err
			}
			defer m.Close()
			n, at, err := evaluation.Retrievals(m, which, tokens, samples, o.Seed)
			if err != nil {
				return fmt.Errorf("patterns: %w", err)
			}
			bar := progress.New(cmd.ErrOrStderr(), "prompts", int64(n))
			p, err := eviction.NewRuntime(m).FindPattern(cmd.Context(), n, func(i int) (eviction.Retrieval, error) {
				bar.Add(1)
				return at(i)
			}, sink, recent)
			bar.Done()
			if err != nil {
				return err
			}
			if out != "" {
				if err := p.Write(out, replace); err != nil {
					return err
				}
			}
			if asJSON {
				return cli.WriteJSON(cmd, struct {
					Schema string      `json:"schema"`
					Heads  [][]float64 `json:"heads"`
				}{"glimpse.pattern/1", p.Heads})
			}
			columns := []tables.Column{{Head: "layer", Right: true}}
			for h := range p.Heads[0] {
				columns = append(columns, tables.Column{Head: fmt.Sprintf("head %d", h), Right: true, Optional: 1})
			}
			t := tables.New(columns...)
			for layer, heads := range p.Heads {
				cells := []string{fmt.Sprint(layer)}
				for _, v := range heads {
					cells = append(cells, fmt.Sprintf("%.3f", v))
				}
				t.Add(cells...)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "retrieval score per KV head")
			return writeAll(cmd.OutOrStdout(), t)
		},
	}
	f := cmd.Flags()
	o.Device = "cpu"
	cli.BindModel(f, &o.Model, &o.Device)
	f.StringVarP(&out, "out", "o", "", "folder to make, with the pattern")
	f.BoolVar(&replace, "replace", false, "replace a folder that has a pattern")
	f.StringVar(&split, "split", "validation", "split of the synthetic tasks that give prompts: train, validation or test")
	f.IntVar(&tokens, "tokens", 512, "length of the prompts in tokens")
	f.IntVar(&samples, "samples", 16, "number of prompts of each kind, passages and needles")
	f.IntVar(&sink, "sink", 128, "first entries that heads without retrieval keep, recorded in the pattern")
	f.IntVar(&recent, "recent", 512, "recent entries that heads without retrieval keep, recorded in the pattern")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the prompts")
	o.S3.Bind(f)
	f.BoolVar(&asJSON, "json", false, "print JSON: an object with heads, a list of layers with a number per KV head")
	cli.Everyday(cmd, "model", "device", "out", "replace", "samples", "tokens", "sink", "recent", "json")
	return cmd
}
