package main

import (
	"fmt"

	"glimpse/console"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var (
		s      setup
		p      promptFlags
		policy string
		o      console.Options
	)
	cmd := &cobra.Command{
		Use:   "run [PROMPT]",
		Short: "Answer a prompt with the cache evicted to a budget",
		Long: `Answer a prompt with the cache evicted to a budget.

The answer streams to standard output; what was kept and what it cost follows on
standard error. The text goes into the model's chat template, if it has one, unless
--raw is given. The built-in model knows 480 words only: --example makes prompts that it
can answer.`,
		Annotations: cli.Details(`
--system puts a system prompt before the text. "-" reads the text from standard input,
without the newline at its end. --messages answers a whole conversation, a JSON
array of messages or an object with "messages" and "tools"; what the assistant says at its
end is left out. A budget larger than the prompt keeps all of it.

Tokens are sampled as the model's generation_config.json says, unless flags say otherwise;
--sampling greedy takes the best ones. The built-in model is greedy. A budget that is a
share of the prompt is rounded down. rocketkv and hsa divide the budget by --max-new.

` + modelDetails),
		Example: `  evict run --example needle --policy snapkv --budget 32
  evict run --example section --policy lookaheadkv --budget 128
  evict run --model path/to/llama --adapter adapters/llama --budget 256 "Summarise: ..."
  evict run --model path/to/llama --system @system.txt --messages conversation.json`,
		Args: cli.Args("[PROMPT]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.argument(args); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			if o.MaxNew < 1 {
				return fmt.Errorf("run: --max-new: got %d, want at least 1", o.MaxNew)
			}
			if err := o.Choice.Check(); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			var prompt *console.Prompt
			var unreadable error // told once the policy is known to be right
			l, err := s.open(cmd, &policy, func(m *model.Model) error {
				if prompt, unreadable = p.Read(cmd.Context(), m, cli.Input(cmd.Context(), cmd.InOrStdin()), p.exampleSeed); unreadable != nil {
					return nil
				}
				return s.CheckMemory(cmd.Context(), m, []string{policy}, eviction.FootprintOptions{Tokens: len(prompt.IDs), Budget: o.Budget.Of(len(prompt.IDs)), MaxNew: o.MaxNew})
			})
			if err != nil {
				return err
			}
			defer l.Close()
			c, err := l.One(policy)
			if err != nil {
				return err
			}
			if unreadable != nil {
				return unreadable
			}
			if o.Sampling, err = o.Choice.Resolve(l.Model); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			o.Choice.Report(cmd.ErrOrStderr(), l.Model, o.Sampling)
			o.Sampling.Seed = s.Seed
			o.Label = label(c)
			return console.Answer(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), l.Model, c.Configured, prompt, o)
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindChat(f)
	p.bind(f)
	bindPolicy(f, &policy, ", or FIRST:SECOND for two stages, as snapkv:quest")
	bindBudget(f, &o.Budget, "prompt")
	f.IntVar(&o.MaxNew, "max-new", 256, "most tokens of the answer")
	o.Choice.From = model.SamplingOfModel
	o.Choice.Bind(f)
	f.BoolVar(&o.JSON, "json", false, "print one JSON object instead of text")
	f.BoolVar(&o.Compare, "compare", false, "also time prefills with and without eviction, for about 20 s at most")
	cli.Everyday(cmd, "model", "adapter", "device", "example", "tokens", "raw", "policy", "budget", "set", "max-new", "temperature", "json", "compare")
	return cmd
}
