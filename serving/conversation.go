package serving

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
	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/tokenizer"

	"golang.org/x/term"
)

// Conversation is a session and what was said.
type Conversation struct {
	// JSON prints one object per turn instead of text.
	JSON bool

	model     *model.Model
	label     string // of the policy
	o         Options
	out, info io.Writer

	tokenizer *tokenizer.Tokenizer
	runtime   *eviction.Runtime
	session   *eviction.Session
	messages  []chat.Message
	turns     int
}

// NewConversation starts a conversation with a policy, which is reported by its label.
func NewConversation(m *model.Model, policy *eviction.Configured, label string, o Options, out, info io.Writer) (*Conversation, error) {
	t, err := m.NeedTokenizer()
	if err != nil {
		return nil, err
	}
	if _, _, err := m.ChatTemplate(); err != nil {
		return nil, err
	}
	rt := eviction.NewRuntime(m)
	rt.MaxNew = o.MaxNew
	session, err := rt.NewSession(policy, o.Budget)
	if err != nil {
		return nil, err
	}
	return &Conversation{
		model: m, label: label, o: o, out: out, info: info,
		tokenizer: t, runtime: rt, session: session,
	}, nil
}

// maxMessage bounds one line of input.
const maxMessage = 1 << 24

// Loop answers line by line. A message that the model cannot read ends the
// conversation unless a person is there to try another.
func (c *Conversation) Loop(ctx context.Context, in io.Reader) error {
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
		ids, err := c.read(ctx, text)
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
		if err := c.answer(ctx, text, ids); err != nil {
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

// OpenWith takes an example's prompt for the first message.
func (c *Conversation) OpenWith(ctx context.Context, p *Prompt) error {
	text, err := datasets.Text(p.IDs)
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(text, "<user> ")
	body, _, _ = strings.Cut(body, " <eot>")
	ids, err := c.read(ctx, body)
	if err != nil {
		return err
	}
	if err := ShowExample(c.info, p); err != nil {
		return err
	}
	return c.answer(ctx, body, ids)
}

// read tokenizes what one more message adds to what the model has run.
func (c *Conversation) read(ctx context.Context, text string) ([]int32, error) {
	return c.model.EncodeTurn(ctx, append(c.messages[:len(c.messages):len(c.messages)], chat.Message{Role: "user", Content: text}))
}

// fits refuses a message that leaves no room for an answer. One token may be
// pending from the answer before.
func (c *Conversation) fits(ids []int32) error {
	if end := int(c.session.Cache.Next()) + len(ids) + 1; end > c.model.Config.MaxPositions {
		return fmt.Errorf("chat: message of %d tokens after %d, want at most %d in all: %w", len(ids), c.session.Cache.Next(), c.model.Config.MaxPositions, model.ErrContext)
	}
	return nil
}

// turnStatistics is what one turn cost.
type turnStatistics struct {
	Turn         int     `json:"turn"`
	Policy       string  `json:"policy"`
	Budget       int     `json:"budget"`                 // pairs per KV head and layer of this turn
	BudgetShare  float64 `json:"budget_share,omitempty"` // of the conversation up to the prompt's end, where it was given so
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
func (c *Conversation) answer(ctx context.Context, text string, ids []int32) error {
	if err := c.session.Turn(ctx, ids, nil); err != nil {
		return err
	}
	stream, answer := c.tokenizer.NewStream(true), strings.Builder{}
	say := func(text string) error {
		answer.WriteString(text)
		if c.JSON {
			return nil
		}
		_, err := io.WriteString(c.out, text)
		return err
	}
	start := time.Now()
	room := c.model.Config.MaxPositions - int(c.session.Cache.Next()) + 1
	tokens, ended, err := c.session.Generate(ctx, model.GenerateOptions{
		MaxNew: min(c.o.MaxNew, room), Sampling: c.o.Sampling,
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
	said := strings.TrimSpace(answer.String())
	c.messages = append(c.messages, chat.Message{Role: "user", Content: text}, chat.Message{Role: "assistant", Content: said})
	return c.report(turnStatistics{
		Answer: said, Ended: ended, PromptTokens: len(ids), AnswerTokens: len(tokens),
		Speed: float64(len(tokens)) / elapsed.Seconds(),
	})
}

// report completes and prints the statistics of a turn.
func (c *Conversation) report(t turnStatistics) error {
	s := c.session
	heads := s.Cache.Layers() * s.Cache.KVHeads()
	for l := range s.Cache.Layers() {
		for h := range s.Cache.KVHeads() {
			t.Pairs += float64(s.Cache.Entries(l, h)) / float64(heads)
		}
	}
	t.Turn, t.Policy, t.Budget, t.BudgetShare = c.turns, c.label, s.Prompt.Budget, s.Budget.Share()
	t.Position, t.HeldBytes = int(s.Cache.Next()), s.Bytes()
	t.FullBytes = int64(t.Position*heads) * s.Cache.PairBytes()
	t.StepBytes, t.TTFTMillis = s.Traffic.PerStep(), ms(s.PrefillTime)
	if c.JSON {
		return json.NewEncoder(c.out).Encode(t)
	}
	fmt.Fprintln(c.out)
	_, err := fmt.Fprintf(c.info, "[turn %d, %s at %s: %d tokens in, first answer token after %.1f ms; %d out at %.0f/s%s; holds %.1f pairs per KV head of %d, %.1f of %.1f KiB]\n",
		t.Turn, t.Policy, s.Budget.Describe(s.Prompt.From+len(s.Prompt.Tokens)), t.PromptTokens, t.TTFTMillis, t.AnswerTokens, t.Speed, trafficNote(s.Traffic), t.Pairs, t.Position, kib(t.HeldBytes), kib(t.FullBytes))
	return err
}
