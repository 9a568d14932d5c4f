package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"glimpse/datasets"
	"glimpse/evaluation"
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/tokenizer"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newChat() *cobra.Command {
	var (
		s       setup
		policy  string
		example string
		tokens  int
		asJSON  bool
		o       runOptions
	)
	cmd := &cobra.Command{
		Use:   "chat",
		Short: "Talk to a model whose cache is evicted, turn by turn",
		Long: `Talk to a model whose cache is evicted, turn by turn.

Every line of standard input is a message; "/exit" or the end of the input ends the
conversation. Each turn is appended to what the policy kept of the turns before:
most policies evict for good, rocketkv-mt keeps everything and reads some of it. The
answer streams to standard output; what the turn kept, held and read follows on
standard error. Tokens are sampled as the model's generation_config.json says, unless
flags say otherwise. The model needs a chat template. The built-in model knows 384 words
only: --example begins with a prompt that it can answer, and "<copy>" or
"<ask> NAME" go on about the same context.`,
		Example: `  evict chat --example turns --policy rocketkv-mt --budget 64
  echo "<copy>" | evict chat --example turns --policy snapkv --budget 64 --json
  evict chat --model path/to/llama --policy h2o --budget 512`,
		Args: cli.Args(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := eviction.CheckBudget(o.budget); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			if o.maxNew < 1 {
				return fmt.Errorf("chat: --max-new: got %d, want at least 1", o.maxNew)
			}
			if err := o.choice.Check(); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			if _, err := eviction.LookupPolicy(policy); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			s.before = func(m *model.Model) error {
				n := 1 // what will be said is not known
				if example != "" {
					n = max(1, tokens)
				}
				return s.checkMemory(cmd.Context(), m, []string{policy}, eviction.FootprintOptions{Tokens: n, Budget: o.budget, MaxNew: o.maxNew})
			}
			l, err := s.open(cmd.Context(), cmd.ErrOrStderr())
			if err != nil {
				return err
			}
			defer l.Close()
			named, err := l.one(policy)
			if err != nil {
				return err
			}
			if !l.HasChatTemplate() {
				return fmt.Errorf("chat: model %s has no chat template", l.Name)
			}
			if o.sampling, err = o.choice.Resolve(l.Model); err != nil {
				return fmt.Errorf("chat: %w", err)
			}
			o.choice.Report(cmd.ErrOrStderr(), l.Model, o.sampling)
			o.sampling.Seed = s.seed
			c, err := newConversation(cmd, l, named, o)
			if err != nil {
				return err
			}
			c.asJSON = asJSON
			if example != "" {
				p, err := (&promptFlags{example: example, tokens: tokens}).readExample(l.Model, s.seed)
				if err != nil {
					return fmt.Errorf("chat: %w", err)
				}
				if err := c.openWith(cmd.Context(), p); err != nil {
					return err
				}
			}
			return c.loop(cmd.Context(), cmd.InOrStdin())
		},
	}
	f := cmd.Flags()
	s.bind(f)
	s.bindChat(f)
	f.StringVar(&policy, "policy", "lookaheadkv", "eviction policy, see evict policies; FIRST:SECOND reads sparsely what the first keeps, as snapkv:quest")
	f.IntVar(&o.budget, "budget", 128, "key-value pairs kept per KV head and layer")
	f.IntVar(&o.maxNew, "max-new", 256, "most tokens of an answer; rocketkv and hsa divide the budget by it")
	o.choice.From = model.SamplingOfModel
	o.choice.Bind(f)
	f.StringVar(&example, "example", "", "begin with an example's prompt: turns, copy, or any task")
	f.IntVar(&tokens, "tokens", 512, "length of the example's prompt")
	f.BoolVar(&asJSON, "json", false, "print one JSON object per turn instead of text")
	return cmd
}

// conversation is a session and what was said.
type conversation struct {
	*loaded
	contender evaluation.Contender
	o         runOptions
	out, info io.Writer
	asJSON    bool

	tokenizer *tokenizer.Tokenizer
	template  *chat.Template
	options   chat.Options // with the clock of the conversation's start
	runtime   *eviction.Runtime
	session   *eviction.Session
	messages  []chat.Message
	rendered  string // what was said as the template writes it, up to the header of the last answer
	turns     int
}

func newConversation(cmd *cobra.Command, l *loaded, c evaluation.Contender, o runOptions) (*conversation, error) {
	t, err := l.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	template, options, err := l.ChatTemplate()
	if err != nil {
		return nil, err
	}
	options.AddGenerationPrompt = true
	rt := eviction.NewRuntime(l.Model)
	rt.MaxNew = o.maxNew
	session, err := rt.NewSession(c.Named, o.budget)
	if err != nil {
		return nil, err
	}
	return &conversation{
		loaded: l, contender: c, o: o, out: cmd.OutOrStdout(), info: cmd.ErrOrStderr(),
		tokenizer: t, template: template, options: options, runtime: rt, session: session,
	}, nil
}

// maxMessage bounds one line of input.
const maxMessage = 1 << 24

// loop answers line by line. A message that the model cannot read ends the
// conversation unless a person is there to try another.
func (c *conversation) loop(ctx context.Context, in io.Reader) error {
	f, ok := in.(*os.File)
	person := ok && term.IsTerminal(int(f.Fd()))
	lines := bufio.NewScanner(cli.Input(ctx, in))
	lines.Buffer(nil, maxMessage)
	for {
		if person {
			fmt.Fprint(c.info, "> ")
		}
		if !lines.Scan() {
			break
		}
		text := strings.TrimSpace(lines.Text())
		if text == "" {
			continue
		}
		if text == "/exit" {
			return nil
		}
		ids, rendered, err := c.read(ctx, text)
		if err == nil {
			err = c.fits(ids)
		}
		if err != nil && person {
			fmt.Fprintln(c.info, err)
			continue
		}
		if err != nil {
			return err
		}
		if err := c.answer(ctx, text, ids, rendered); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("chat: read a message: %w", err)
	}
	if person {
		fmt.Fprintln(c.info)
	}
	return nil
}

// openWith takes an example's prompt for the first message.
func (c *conversation) openWith(ctx context.Context, p *prompt) error {
	text, err := datasets.Text(p.ids)
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(text, "<user> ")
	body, _, _ = strings.Cut(body, " <eot>")
	ids, rendered, err := c.read(ctx, body)
	if err != nil {
		return err
	}
	if err := showExample(c.info, p); err != nil {
		return err
	}
	return c.answer(ctx, body, ids, rendered)
}

// read renders the conversation with one more message and tokenizes what that adds
// to what the model has run: the end of its answer, the message and the header of
// the next answer.
func (c *conversation) read(ctx context.Context, text string) (ids []int32, rendered string, err error) {
	messages := append(c.messages[:len(c.messages):len(c.messages)], chat.Message{Role: "user", Content: text})
	rendered, err = c.template.Render(ctx, messages, c.options)
	if err != nil {
		return nil, "", fmt.Errorf("model %s: %w", c.Name, err)
	}
	fresh := rendered
	if n := len(c.messages); n > 0 {
		said := c.messages[n-1].Content
		rest, ok := strings.CutPrefix(rendered, c.rendered)
		at := strings.Index(rest, said)
		if !ok || at < 0 {
			return nil, "", fmt.Errorf("chat: the template of model %s rewrites what was said before, which the cache cannot undo", c.Name)
		}
		fresh = rest[at+len(said):]
	}
	ids, err = c.tokenizer.Encode(fresh, false) // the template wrote the special tokens
	if err != nil {
		return nil, "", fmt.Errorf("tokenize: %w", err)
	}
	return ids, rendered, nil
}

// fits refuses a message that leaves no room for an answer. One token may be
// pending from the answer before.
func (c *conversation) fits(ids []int32) error {
	if end := int(c.session.Cache.Next()) + len(ids) + 1; end > c.Config.MaxPositions {
		return fmt.Errorf("chat: message of %d tokens after %d, want at most %d in all: %w", len(ids), c.session.Cache.Next(), c.Config.MaxPositions, model.ErrContext)
	}
	return nil
}

// turnStatistics is what one turn cost.
type turnStatistics struct {
	Turn         int     `json:"turn"`
	Policy       string  `json:"policy"`
	Budget       int     `json:"budget"`
	Answer       string  `json:"answer"`
	Ended        bool    `json:"ended"` // with the end token, not at the limit
	PromptTokens int     `json:"prompt_tokens"`
	AnswerTokens int     `json:"answer_tokens"`
	Position     int     `json:"position"`   // tokens of the conversation that were run
	Pairs        float64 `json:"pairs"`      // held per KV head after the answer, mean
	HeldBytes    int64   `json:"held_bytes"` // after the answer
	FullBytes    int64   `json:"full_bytes"` // the same without eviction
	StepBytes    float64 `json:"traffic_bytes_per_step"`
	TTFTMillis   float64 `json:"ttft_ms"`
	Speed        float64 `json:"decode_tokens_per_s"`
}

// answer runs one turn.
func (c *conversation) answer(ctx context.Context, text string, ids []int32, rendered string) error {
	if err := c.session.Turn(ctx, ids, nil); err != nil {
		return err
	}
	stream, answer := c.tokenizer.NewStream(true), strings.Builder{}
	say := func(text string) error {
		answer.WriteString(text)
		if c.asJSON {
			return nil
		}
		_, err := io.WriteString(c.out, text)
		return err
	}
	start := time.Now()
	room := c.Config.MaxPositions - int(c.session.Cache.Next()) + 1
	tokens, ended, err := c.session.Generate(ctx, model.GenerateOptions{
		MaxNew: min(c.o.maxNew, room), Sampling: c.o.sampling,
		OnToken: func(id int32) error { return say(stream.Push(id)) },
	})
	elapsed := time.Since(start)
	if err == nil {
		err = say(stream.Flush())
	}
	if err != nil {
		return err
	}
	c.turns++
	c.rendered = rendered
	said := strings.TrimSpace(answer.String())
	c.messages = append(c.messages, chat.Message{Role: "user", Content: text}, chat.Message{Role: "assistant", Content: said})
	return c.report(turnStatistics{
		Answer: said, Ended: ended, PromptTokens: len(ids), AnswerTokens: len(tokens),
		Speed: float64(len(tokens)) / elapsed.Seconds(),
	})
}

// report completes and prints the statistics of a turn.
func (c *conversation) report(t turnStatistics) error {
	s := c.session
	heads := s.Cache.Layers() * s.Cache.KVHeads()
	for l := range s.Cache.Layers() {
		for h := range s.Cache.KVHeads() {
			t.Pairs += float64(s.Cache.Entries(l, h)) / float64(heads)
		}
	}
	t.Turn, t.Policy, t.Budget = c.turns, evaluation.Row{Policy: c.contender.Name, Adapter: c.contender.Adapter}.Label(), c.o.budget
	t.Position, t.HeldBytes = int(s.Cache.Next()), s.Bytes()
	t.FullBytes = int64(t.Position*heads) * s.Cache.PairBytes()
	t.StepBytes, t.TTFTMillis = s.Traffic.PerStep(), ms(s.PrefillTime)
	if c.asJSON {
		return json.NewEncoder(c.out).Encode(t)
	}
	fmt.Fprintln(c.out)
	_, err := fmt.Fprintf(c.info, "[turn %d, %s at %d: %d tokens in, first answer token after %.1f ms; %d out at %.0f/s%s; holds %.1f pairs per KV head of %d, %.1f of %.1f KiB]\n",
		t.Turn, t.Policy, t.Budget, t.PromptTokens, t.TTFTMillis, t.AnswerTokens, t.Speed, trafficNote(s.Traffic), t.Pairs, t.Position, kib(t.HeldBytes), kib(t.FullBytes))
	return err
}
