package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/tables"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/runner"
)

// Conversation is a session and what was said.
type Conversation struct {
	model     *engine.Model
	policy    engine.Policy
	o         Options
	out, info io.Writer
	columns   int // of the terminal of a person who reads info; 0: there is none

	runtime  *eviction.Runtime
	engine   *engine.Engine
	session  *eviction.Session
	messages []chat.Message
	again    bool // the session has run none of the messages: they are read again with the next one
	rewrites bool // the template rewrites what was said before, which was told
	turns    []turnStatistics
	stop     interrupts
}

// NewConversation starts a conversation with a policy.
func NewConversation(m *engine.Model, policy engine.Policy, o Options, out, info io.Writer) (*Conversation, error) {
	if _, _, err := m.ChatTemplate(chat.Options{}); err != nil {
		return nil, err
	}
	rt := eviction.NewRuntime(m.Model)
	e, err := engine.New(rt, 1)
	if err != nil {
		return nil, err
	}
	e.More = func(int) bool { return false } // one unit between two steps
	c := &Conversation{
		model: m, policy: policy, o: o, out: out, info: info,
		runtime: rt, engine: e,
	}
	if o.System != nil {
		if err := c.takesSystem(*o.System); err != nil {
			return nil, err
		}
	}
	if o.Context != nil && o.Keep.Any() {
		return nil, errBehindContext
	}
	return c, c.beginSession()
}

// takesSystem is the error of a chat template that takes no system prompt.
func (c *Conversation) takesSystem(text string) error {
	template, o, err := c.model.ChatTemplate(chat.Options{})
	if err == nil {
		_, err = template.Render(context.Background(), []chat.Message{{Role: "system", Content: text}, {Role: "user", Content: "x"}}, o)
	}
	if err != nil {
		return fmt.Errorf("system prompt: model %s: %w", c.model.Name, err)
	}
	return nil
}

// beginSession begins a session, which reads what was said so far with the next message.
func (c *Conversation) beginSession() error {
	session, err := c.runtime.NewSession(c.policy.Configured, c.o.Budget)
	if err == nil && c.o.Keep.Fair {
		err = c.policy.CheckFair()
	}
	if err != nil {
		return err
	}
	c.session, c.again = session, len(c.messages) > 0
	session.Context = c.o.Context
	return nil
}

// openExample takes an example's prompt for the first message.
func (c *Conversation) openExample(ctx context.Context, p *Prompt) error {
	text, err := datasets.WordsText(p.IDs)
	if err != nil {
		return err
	}
	_, body, _ := strings.Cut(text, "<user> ")
	body, _, _ = strings.Cut(body, " <eot>")
	ids, whole, err := c.readMessage(ctx, body)
	if err != nil {
		return err
	}
	note, err := exampleNote(p)
	if err != nil {
		return err
	}
	c.say(note)
	return c.runTurn(ctx, body, ids, whole)
}

// readMessage tokenizes what one more message adds to what the session has run, or the whole
// conversation, for which there is room. What stays of it is told to the session.
func (c *Conversation) readMessage(ctx context.Context, text string) (ids []int32, whole bool, err error) {
	var messages []chat.Message
	if c.o.System != nil {
		messages = append(messages, chat.Message{Role: "system", Content: *c.o.System})
	}
	messages = append(append(messages, c.messages...), chat.Message{Role: "user", Content: text})
	switch {
	case c.o.Context != nil:
		ids, whole, err = c.readBehind(ctx, messages)
	case c.again:
		whole = true
		ids, err = c.model.EncodeChat(ctx, messages, chat.Options{})
	default:
		ids, whole, err = c.model.EncodeTurn(ctx, messages, chat.Options{})
	}
	if err == nil {
		err = c.checkRoom(ids, whole)
	}
	if err == nil && c.o.Keep.Any() {
		err = c.keep(ctx, messages, ids, whole)
	}
	return ids, whole, err
}

// keep finds what stays when the messages are evicted, whose last one's tokens follow those that were run, or are all.
func (c *Conversation) keep(ctx context.Context, messages []chat.Message, ids []int32, whole bool) error {
	if !whole {
		ids = slices.Concat(c.session.Conversation(), ids)
	}
	stays, err := c.o.Keep.KeepOf(ctx, c.model.Model, messages, chat.Options{}, ids)
	if err != nil {
		return err
	}
	return (&Prompt{IDs: ids, Keep: stays, rules: c.o.Keep}).CheckKeep(c.info, c.policy, c.session.Budget, c.session)
}

// readBehind is readMessage of a conversation that begins with a context.
func (c *Conversation) readBehind(ctx context.Context, messages []chat.Message) (ids []int32, whole bool, err error) {
	if len(messages) > 1 && !c.again {
		if ids, whole, err = c.model.EncodeTurn(ctx, messages, chat.Options{}); err != nil || !whole {
			return ids, false, err
		}
	}
	ids, err = encodeBehind(ctx, c.model.Model, c.o.ContextFile, messages)
	return ids, true, err
}

// checkRoom refuses a message that leaves no room for an answer. One token may be
// pending from the answer before.
func (c *Conversation) checkRoom(ids []int32, whole bool) error {
	have, room := int(c.session.Cache.Next()), c.model.Config.MaxPositions
	if whole {
		have = 0
	}
	if have+len(ids)+1 > room {
		return fmt.Errorf("chat: message of %d tokens after %d, want at most %d in all: %w", len(ids), have, room, model.ErrContext)
	}
	return nil
}

// rewind is what the session must run of the whole conversation.
func (c *Conversation) rewind(ids []int32) ([]int32, error) {
	before := int(c.session.Cache.Next())
	kept, err := c.session.Rewind(ids)
	if err == nil && before > 0 && !c.rewrites {
		c.rewrites = true
		c.say(fmt.Sprintf("[the chat template rewrites what was said before: %d of the %d tokens in the cache still stand, and the rest is read again]", kept, before))
	}
	return ids[kept:], err
}

// TurnSchema and AnswerSchema are the versions of the objects of a turn and of one answer.
const (
	TurnSchema   = "glimpse.turn/1"
	AnswerSchema = "glimpse.answer/1"
)

// turnStatistics is what one turn cost.
type turnStatistics struct {
	Schema       string        `json:"schema"`
	Turn         int           `json:"turn,omitempty"` // of a conversation, from 1
	Device       string        `json:"device"`         // on a processor with the arithmetic
	Policy       string        `json:"policy"`
	Budget       int           `json:"budget"`                 // pairs per KV head and layer of this turn
	BudgetShare  float64       `json:"budget_share,omitempty"` // of the conversation up to the prompt's end, where it was given so
	Answer       string        `json:"answer"`
	Ended        bool          `json:"ended"` // with the end token, not at the limit
	Stop         engine.Reason `json:"stop"`  // why it ended
	PromptTokens int           `json:"prompt_tokens"`
	AnswerTokens int           `json:"answer_tokens"`
	Position     int           `json:"position"`   // tokens of the conversation that were run
	Pairs        float64       `json:"pairs"`      // held per KV head after the answer, mean
	HeldBytes    int64         `json:"held_bytes"` // after the answer: the cache, and what a sparse policy keeps beside it
	FullBytes    int64         `json:"full_bytes"` // of the cache without eviction, with the same spare room
	StepBytes    float64       `json:"traffic_bytes_per_step"`
	TTFTMillis   float64       `json:"ttft_ms"`
	Speed        float64       `json:"decode_tokens_per_s"`

	cacheBytes int64 // the part of HeldBytes that FullBytes is the whole of
}

// request asks the session to go on with tokens.
func (c *Conversation) request(ids []int32) engine.Request {
	return engine.Request{
		Session: c.session, Prompt: ids, Generate: runner.GenerateOptions{MaxNew: c.o.MaxNew, Sampling: c.o.Sampling},
		Progress: ShowPrefill(c.info), Begun: func() { c.again = false },
	}
}

// runTurn runs one turn. An interrupt ends the answer, and before the answer the turn: the
// session is lost then, and a new one reads what was said before again.
func (c *Conversation) runTurn(ctx context.Context, text string, ids []int32, whole bool) error {
	if whole {
		var err error
		if ids, err = c.rewind(ids); err != nil {
			return err
		}
	}
	turn, cancel := context.WithCancel(ctx)
	defer cancel()
	c.stop.beginTurn(cancel)
	defer c.stop.endTurn()
	shown := tables.NewWrapper(c.out, tables.Columns(c.out))
	show := io.Writer(shown)
	if c.o.JSON {
		show = nil
	}
	a, err := ask(turn, c.engine, c.request(ids), show)
	if errors.Is(err, context.Canceled) && turn.Err() != nil && ctx.Err() == nil {
		c.say("[interrupted before the answer: the message is dropped]")
		return c.beginSession()
	}
	if err == nil {
		err = cmp.Or(ctx.Err(), shown.Flush())
	}
	if err != nil {
		return err
	}
	c.messages = append(c.messages, chat.Message{Role: "user", Content: text}, chat.Message{Role: "assistant", Content: a.text})
	return c.report(a.statistics(TurnSchema, c.policy))
}

// report completes and prints the statistics of a turn.
func (c *Conversation) report(t turnStatistics) error {
	s := c.session
	t.Pairs = float64(s.Cache.Pairs()) / float64(s.Cache.Heads())
	t.Turn, t.BudgetShare, t.HeldBytes, t.cacheBytes = len(c.turns)+1, s.Budget.Share(), s.Bytes(), s.Cache.Bytes()
	t.FullBytes = t.cacheBytes
	for l, heads := range s.Cache.Lengths() {
		for _, n := range heads {
			t.FullBytes += int64(t.Position-n) * s.Cache.LayerPairBytes(l)
		}
	}
	c.turns = append(c.turns, t)
	if c.o.JSON {
		return json.NewEncoder(c.out).Encode(t)
	}
	fmt.Fprintln(c.out)
	switch t.Stop {
	case engine.MaxNew:
		c.say(fmt.Sprintf("[cut short at %d tokens, the most of an answer: --max-new]", t.AnswerTokens))
	case engine.Context:
		c.say(fmt.Sprintf("[cut short: the context of %d tokens is full; /reset begins anew]", c.model.Config.MaxPositions))
	case engine.Interrupted:
		c.say("[interrupted]")
	}
	if c.columns > 0 {
		c.say(fmt.Sprintf("[%d tokens at %.0f/s, first after %.1f ms; cache %.1f of %.1f KiB%s]",
			t.AnswerTokens, t.Speed, t.TTFTMillis, kib(t.cacheBytes), kib(t.FullBytes), besideNote(t.HeldBytes-t.cacheBytes)))
		return nil
	}
	_, err := fmt.Fprintf(c.info, "[turn %d, %s at %s: %d tokens in, first answer token after %.1f ms; %d out at %.0f/s%s; holds %s, %.1f of %.1f KiB%s]\n",
		t.Turn, t.Policy, s.Budget.Describe(s.Prompt.From+len(s.Prompt.Tokens)), t.PromptTokens, t.TTFTMillis, t.AnswerTokens, t.Speed, trafficNote(s.Traffic), holdingsNote(s, "%.1f of %d", t.Position), kib(t.cacheBytes), kib(t.FullBytes), besideNote(t.HeldBytes-t.cacheBytes))
	return err
}

// say tells a person something, in lines of their terminal's width.
func (c *Conversation) say(text string) { fmt.Fprintln(c.info, tables.Wrap(text, c.columns)) }
