package main

import (
	"fmt"
	"os"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/judging"
	reports "glimpse/evaluation/report"
	"glimpse/evaluation/runs"
	"glimpse/internal/cli"

	"github.com/spf13/cobra"
)

func newJudge() *cobra.Command {
	var o runs.Judging
	var keyEnv string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "judge RUN",
		Short: "Let a language model rate the answers of a run",
		Long: `Let a language model rate the answers of a run: of the task mtbench, whose two questions
a judge rates from 1 to 10 by the prompts and the rule of MT-Bench (Zheng et al. 2023,
arXiv:2306.05685). Scores are a tenth of the rating.

The judge is any server with OpenAI's chat completions, as vLLM, llama.cpp and hosted
models have. Its key, if it wants one, is taken from an environment variable, goes to the
address of --judge alone, and is masked where the server repeats it: a redirect to another
server, port or scheme ends the command.

Judgements are kept in RUN/judgements.jsonl one by one, and equal answers are judged once:
the same command goes on where it stopped. When all are there, they are the scores in
RUN/predictions.jsonl and RUN/metrics.json.`,
		Example: `  evict eval --model path/to/llama --task mtbench --data path/to/mt_bench -o path/to/mt --resume
  evict judge path/to/mt --judge http://localhost:8000/v1 --judge-model qwen3-235b`,
		Args: cli.Args("RUN"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Judge.URL == "" || o.Judge.Model == "" {
				return fmt.Errorf("judge: got --judge %q and --judge-model %q, want both", o.Judge.URL, o.Judge.Model)
			}
			o.Judge.Key = strings.TrimSpace(os.Getenv(keyEnv))
			out, err := runs.JudgeRun(cmd.Context(), args[0], o, cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			rows := evaluation.Overall(out.Rows)
			if asJSON {
				return evaluation.WriteJSON(cmd.OutOrStdout(), rows)
			}
			return writeTables(cmd.OutOrStdout(), rows, reports.TableOptions{})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Judge.URL, "judge", "", "address of the judge's server, up to /v1")
	f.StringVar(&o.Judge.Model, "judge-model", "", "name of the model that judges")
	f.StringVar(&keyEnv, "judge-key-env", "OPENAI_API_KEY", "environment variable with the judge's API key")
	f.StringVar(&o.Data, "data", "", "questions and reference answers; empty is where the run had them")
	f.DurationVar(&o.Judge.Timeout, "timeout", judging.DefaultTimeout, "time limit of one request to the judge")
	f.IntVar(&o.Judge.Attempts, "attempts", judging.DefaultAttempts, "requests for a judgement before it counts as failed")
	f.IntVar(&o.Judge.MaxTokens, "max-tokens", judging.DefaultMaxTokens, "most tokens of a judgement; reasoning models need more")
	f.IntVar(&o.Concurrency, "concurrency", 4, "judgements requested at the same time")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	cli.Everyday(cmd, "judge", "judge-model", "judge-key-env", "data", "json")
	return cmd
}
