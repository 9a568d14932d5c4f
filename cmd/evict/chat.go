package main

import (
	"fmt"

	"glimpse/console"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
)

func newChat() *cobra.Command {
	var (
		s       setup
		policy  string
		example string
		tokens  int
		asJSON  bool
		o       console.Options
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
Tokens are sampled as the model's generation_config.json says, unless flags say otherwise.

` + modelDetails),
		Example: `  evict chat --example turns_section --policy lookaheadkv --budget 64
  echo "<copy>" | evict chat --example turns_section --policy snapkv --budget 64 --json
  evict chat --model path/to/llama --policy h2o --budget 512`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.MaxNew < 1 {
				return fmt.Errorf("chat: --max-new: got %d, want at least 1", o.MaxNew)
			}
			if err := o.Choice.Check(); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			l, err := s.open(cmd, &policy, func(m *model.Model) error {
				n := 1 // what will be said is not known
				if example != "" {
					n = max(1, tokens)
				}
				return s.CheckMemory(cmd.Context(), m, []string{policy}, eviction.FootprintOptions{Tokens: n, Budget: o.Budget.Of(n), MaxNew: o.MaxNew})
			})
			if err != nil {
				return err
			}
			defer l.Close()
			named, err := l.One(policy)
			if err != nil {
				return err
			}
			if !l.HasChatTemplate() {
				return fmt.Errorf("chat: model %s has no chat template", l.Name)
			}
			if o.Sampling, err = o.Choice.Resolve(l.Model); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			o.Choice.Report(cmd.ErrOrStderr(), l.Model, o.Sampling)
			o.Sampling.Seed = s.Seed
			c, err := console.NewConversation(l.Model, named.Configured, label(named), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			c.JSON = asJSON
			c.Policy = func(name string) (*eviction.Configured, string, error) {
				other, err := l.Another(name)
				if err != nil {
					return nil, "", err
				}
				return other.Configured, label(other), nil
			}
			var opening *console.Prompt
			if example != "" {
				if opening, err = (&console.PromptSource{Example: example, Tokens: tokens}).ReadExample(l.Model, s.Seed); err != nil {
					return fmt.Errorf("chat: %w", err)
				}
			}
			return c.Loop(cmd.Context(), cmd.InOrStdin(), opening)
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindChat(f)
	bindPolicy(f, &policy, ", or FIRST:SECOND for two stages, as snapkv:quest")
	bindBudget(f, &o.Budget, "conversation up to a turn's prompt")
	f.IntVar(&o.MaxNew, "max-new", 256, "most tokens of an answer")
	f.Var(systemFlag{&o.System}, "system", "system prompt: text, or @FILE")
	o.Choice.From = model.SamplingOfModel
	o.Choice.Bind(f)
	f.StringVar(&example, "example", "", "begin with a prompt for the built-in model: turns_section, section, or any task")
	f.IntVar(&tokens, "tokens", 512, "length of the --example prompt in tokens")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per turn instead of text")
	cli.Everyday(cmd, "model", "adapter", "device", "example", "tokens", "policy", "budget", "set", "max-new", "temperature", "json")
	return cmd
}

// label is what a policy is reported by.
func label(c evaluation.Contender) string {
	return evaluation.Row{Policy: c.Name, Adapter: c.Adapter}.Label()
}
