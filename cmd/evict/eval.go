package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/internal/progress"
	"glimpse/model"

	"github.com/spf13/cobra"
)

// maxSamples bounds the prompts per task of an evaluation, whose results are in memory.
const maxSamples = 1 << 20

func newEval() *cobra.Command {
	var (
		s                               setup
		policies, budgets, tasks, split string
		plotPath, tablePath, jsonPath   string
		needlePath                      string
		tokens, samples                 int
		asJSON, timings                 bool
		files                           cli.Outputs
	)
	cmd := &cobra.Command{
		Use:   "eval",
		Short: "Measure policies on the synthetic tasks: accuracy, hit rate, memory, speed",
		Long: `Measure policies on the synthetic long-context tasks, against the full cache and
the oracle: exact answers, critical-KV hit rate, bytes kept, time to first token and
decoding speed. Responses are greedy, whatever the model's generation_config.json says.

A learned policy is measured once per adapter of its kind. Policies share one
prefill per prompt; times are measured separately. Budgets are key-value pairs per
KV head and layer. "full" is reported once, at budget 0. "snapkv:quest" is two
policies as rocketkv's two stages: the first keeps part of the prompt, the second
reads as much as the budget of it.`,
		Example: `  evict eval --policy full,snapkv,lookaheadkv --budget 32,128 --samples 16
  evict eval --policy all --budget 64 --task copy,chain --samples 8 --json`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := evaluation.Options{Tokens: tokens, Samples: samples, Seed: s.Seed, Timings: timings}
			var err error
			if o.Budgets, err = parseBudgets(budgets); err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			if o.Tasks, err = datasets.ParseTasks(tasks); err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			if o.Split, err = datasets.ParseSplit(split); err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			if samples < 1 || samples > maxSamples {
				return fmt.Errorf("eval: --samples: got %d, want 1 to %d", samples, maxSamples)
			}
			defer files.Close()
			jsonOut, tableOut := files.Open("--json-out", jsonPath), files.Open("--table-out", tablePath)
			plotOut, needleOut := files.Open("--plot", plotPath), files.Open("--needle-plot", needlePath)
			if err := files.Err(); err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			s.Before = func(m *model.Model) error {
				return s.CheckMemory(cmd.Context(), m, strings.Split(policies, ","),
					eviction.FootprintOptions{Tokens: tokens, Budget: slices.Max(o.Budgets), MaxNew: 64, Study: true})
			}
			l, err := s.Open(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer l.Close()
			if o.Contenders, err = l.Contenders(policies); err != nil {
				return fmt.Errorf("eval: %w", err)
			}
			bar := progress.New(cmd.ErrOrStderr(), "prompts", int64(len(o.Tasks)*samples))
			o.OnSample = func() { bar.Add(1) }
			rows, err := evaluation.Run(cmd.Context(), l.Model, o)
			bar.Done()
			if err != nil {
				return err
			}
			// What was measured is printed whatever becomes of the files.
			failed := errors.Join(
				jsonOut.Write(func(w io.Writer) error { return evaluation.WriteJSON(w, rows) }),
				tableOut.Write(func(w io.Writer) error {
					return evaluation.WriteTable(w, rows, evaluation.TableOptions{Markdown: strings.HasSuffix(tablePath, ".md")})
				}),
				plotOut.Write(func(w io.Writer) error { return evaluation.PlotAccuracy(w, rows) }),
			)
			if asJSON {
				err = evaluation.WriteJSON(cmd.OutOrStdout(), rows)
			} else {
				err = evaluation.WriteTable(cmd.OutOrStdout(), rows, evaluation.TableOptions{})
			}
			if failed = errors.Join(failed, err); failed != nil || !needleOut.Wanted() {
				return failed
			}
			cells, err := evaluation.Needle(cmd.Context(), l.Model, o)
			if err != nil {
				return err
			}
			return needleOut.Write(func(w io.Writer) error { return evaluation.PlotNeedle(w, cells) })
		},
	}
	f := cmd.Flags()
	s.bind(f)
	f.StringVar(&policies, "policy", "full,streamingllm,h2o,snapkv,pyramidkv,dapq,laq,judgeq,lookaheadkv,oracle", "policies, comma-separated, or all")
	f.StringVar(&budgets, "budget", "32,64,96,128", "budgets, comma-separated")
	f.StringVar(&tasks, "task", "default", "tasks, comma-separated, or default, or all")
	f.StringVar(&split, "split", "test", "split of the tasks: train, validation or test")
	f.IntVar(&tokens, "tokens", 512, "prompt length")
	f.IntVar(&samples, "samples", 32, "prompts per task")
	f.BoolVar(&timings, "timings", true, "also measure times to first token and decoding speed")
	f.BoolVar(&asJSON, "json", false, "print JSON: a list of objects with policy, budget, task, accuracy, hit_rate, kept_bytes, samples, …")
	files.Bind(f)
	f.StringVar(&jsonPath, "json-out", "", "file for the JSON")
	f.StringVar(&tablePath, "table-out", "", "file for the table; Markdown if it ends in .md")
	f.StringVar(&plotPath, "plot", "", "PNG file for a plot of accuracy against budget")
	f.StringVar(&needlePath, "needle-plot", "", "PNG file for a heat map of needles found, by depth and prompt length, at the smallest budget")
	return cmd
}

func parseBudgets(list string) ([]int, error) {
	var out []int
	for field := range strings.SplitSeq(list, ",") {
		b, err := strconv.Atoi(strings.TrimSpace(field))
		if err != nil {
			return nil, fmt.Errorf("budget: got %q, want a whole number", field)
		}
		if err := eviction.CheckBudget(b); err != nil {
			return nil, err
		}
		for _, other := range out {
			if other == b {
				return nil, fmt.Errorf("budget: %d twice", b)
			}
		}
		out = append(out, b)
	}
	return out, nil
}
