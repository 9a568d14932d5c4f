package main

import (
	"fmt"

	"glimpse/console"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
)

func newChat() *cobra.Command {
	var (
		a       answering
		example console.PromptSource
	)
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk to a model whose cache is evicted, turn by turn",
		Long: `Talk to a model whose cache is evicted, turn by turn.

Every line of standard input is a message; one that begins with a slash is a command:
/help lists them, /policy and /budget change what is evicted, /system changes the system
prompt, /reset forgets what was said, /stats tells what it took, and /exit or the end of
the input ends the conversation. The model needs a chat template. The built-in model
knows 480 words only: --example begins with a prompt that it can answer, and "<copy>" or
"<ask> NAME" go on about the same context.`,
		Annotations: cli.Details(`
At a terminal lines are edited as in a shell, Ctrl-C ends an answer, and a second one or
Ctrl-D leaves; lines are kept for the next chat in the user's folder of states, unless
$GLIMPSE_HISTORY names a file or is "off".

Each turn is appended to what the policy kept of the turns before: most policies evict for
good, rocketkv-mt keeps everything and reads some of it. The answer streams to standard
output; what the turn kept, held and read follows on standard error. A budget given as a
share is of the whole conversation up to the end of the turn's prompt, what was evicted
included, so it grows from turn to turn. rocketkv and hsa divide the budget by --max-new.
--keep and --keep-pattern keep tokens of all turns, as those of run do; what an earlier turn
has evicted does not come back.
Tokens are sampled as the model's generation_config.json says, unless flags say otherwise.

` + modelDetails),
		Example: `  evict chat --example turns_section --policy lookaheadkv --budget 64
  echo "<copy>" | evict chat --example turns_section --policy snapkv --budget 64 --json
  evict chat --model path/to/llama --policy h2o --budget 512`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			m, policy, err := a.openModel(cmd, func(m *model.Model) (n, stay int, err error) {
				if err := m.NeedChatTemplate(); err != nil {
					return 0, 0, fmt.Errorf("chat: %w", err)
				}
				if f := a.context.file; f != nil {
					return len(f.Tokens), 0, nil
				}
				if example.Example == "" {
					return 1, 0, nil // what will be said is not known
				}
				return max(1, example.Tokens), 0, nil
			})
			if err != nil {
				return err
			}
			defer m.Close()
			if err := a.chooseSampling(cmd, m.Model); err != nil {
				return err
			}
			c, err := console.NewConversation(m, policy, a.o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			var opening *console.Prompt
			if example.Example != "" {
				example.Seed = a.Seed
				if opening, err = example.ReadExample(m.Model); err != nil {
					return fmt.Errorf("chat: %w", err)
				}
			}
			return c.Loop(cmd.Context(), cmd.InOrStdin(), opening)
		},
	}
	f := cmd.Flags()
	a.addFlags(f, "conversation up to a turn's prompt", "an answer")
	bindKeep(f, &a.o.Keep, "")
	f.Var(systemFlag{&a.o.System}, "system", "system prompt: text, or @FILE")
	f.StringVar(&example.Example, "example", "", "begin with a prompt for the built-in model: turns_section, section, or any task")
	f.IntVar(&example.Tokens, "tokens", 512, "length of the --example prompt in tokens")
	a.context.addFlag(f, "the conversation is about")
	f.BoolVar(&a.o.JSON, "json", false, "print one JSON object per turn instead of text")
	cli.Everyday(cmd, "model", "adapter", "device", "example", "tokens", "context", "policy", "budget", "set", "max-new", "temperature", "json")
	return cmd
}
