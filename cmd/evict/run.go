package main

import (
	"fmt"

	"glimpse/console"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var (
		a answering
		p promptFlags
	)
	cmd := &cobra.Command{
		Use:   "run " + promptArguments,
		Short: "Answer a prompt with the cache evicted to a budget",
		Long: `Answer a prompt with the cache evicted to a budget.

The answer streams to standard output; what was kept and what it cost follows on
standard error. The text goes into the model's chat template, unless --raw is given. The
built-in model knows 480 words only: --example makes prompts that it can answer.`,
		Annotations: cli.Details(`
--system puts a system prompt before the text. "-" is standard input, without the newline
at its end: the text, or a document before or after it with an empty line between.
--messages answers a whole conversation, a JSON array of messages or an object with
"messages" and "tools"; what the assistant says at its end is left out. A budget larger
than the prompt keeps all of it, and so does the default of a prompt of fewer than 256
tokens.

--keep keeps all tokens of the system prompt, the tools, the last message or parts with
cache_control in every KV head, and --keep-pattern those of texts; the policy has the rest of
the budget, which grows where less than half of it is left, or with "strict" is refused.
"fair" shares what is left out over the messages.

Tokens are sampled as the model's generation_config.json says, unless flags say otherwise;
--sampling greedy takes the best ones. The built-in model is greedy. A budget that is a
share of the prompt is rounded down. rocketkv and hsa divide the budget by --max-new.

` + modelDetails),
		Example: `  evict run --example needle --policy snapkv --budget 32
  evict run --model path/to/llama --adapter adapters/llama --budget 256 "Summarise: ..."
  evict run --model path/to/llama - "What does it say of caches?" <report.txt
  evict run --model path/to/llama --context report.kv "What does it say of caches?"`,
		Args: cli.Args("[PROMPT]", "[-]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := p.arguments(args); err != nil {
				return fmt.Errorf("run: %w", err)
			}
			var prompt *console.Prompt
			var unreadable error // told once the policy is known to be right
			m, policy, err := a.openModel(cmd, func(m *model.Model) (n, stay int, err error) {
				p.Context = a.context.file
				if prompt, unreadable = p.readPrompt(cmd, m); unreadable != nil {
					return 0, 0, nil
				}
				n = len(prompt.IDs)
				return n, prompt.Keep.Tokens(n), nil
			})
			if err != nil {
				return err
			}
			defer m.Close()
			if unreadable != nil {
				return unreadable
			}
			if err := a.chooseSampling(cmd, m.Model); err != nil {
				return err
			}
			return console.Answer(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), m.Model, policy, prompt, a.o)
		},
	}
	f := cmd.Flags()
	a.addFlags(f, "prompt", "the answer")
	p.addFlags(f)
	bindKeep(f, &p.Keep, "")
	a.context.addFlag(f, "the text is asked behind")
	f.BoolVar(&a.o.JSON, "json", false, "print one JSON object instead of text")
	f.BoolVar(&a.o.Compare, "compare", false, "also time prefills with and without eviction, for about 20 s at most")
	cli.Everyday(cmd, "model", "adapter", "device", "example", "tokens", "raw", "context", "policy", "budget", "set", "max-new", "temperature", "json", "compare")
	return cmd
}
