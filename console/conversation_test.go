package console

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"

	"glimpse/engine"
	"glimpse/eviction"

	_ "glimpse/gates"
	_ "glimpse/lora" // of the adapters that ship
	_ "glimpse/softtokens"
)

// talk is a conversation of the built-in model whose turns come as JSON.
func talk(t *testing.T, policy string, budget int, out io.Writer) (c *Conversation, info *bytes.Buffer) {
	t.Helper()
	m, err := engine.Open(t.Context(), &engine.Options{Seed: 1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	p, err := m.Policy(policy)
	if err != nil {
		t.Fatal(err)
	}
	info = new(bytes.Buffer)
	if c, err = NewConversation(m, p, Options{Budget: eviction.Pairs(budget), MaxNew: 2000, JSON: true}, out, info); err != nil {
		t.Fatal(err)
	}
	return c, info
}

func example(t *testing.T, c *Conversation, tokens int) *Prompt {
	t.Helper()
	p, err := (&PromptSource{Example: "turns_section", Tokens: tokens, Seed: 3}).ReadExample(c.model.Model)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func turnsOf(t *testing.T, out string) (turns []turnStatistics) {
	t.Helper()
	for line := range strings.Lines(out) {
		var x turnStatistics
		if err := json.Unmarshal([]byte(line), &x); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		turns = append(turns, x)
	}
	return turns
}

// TestCommands: another session that reads what was said again says the same as one that has
// never stopped, and one that is reset as one that begins.
func TestCommands(t *testing.T) {
	var out bytes.Buffer
	c, info := talk(t, "full", 64, &out)
	p := example(t, c, 256)
	const lines = "<copy>\n/policy full\n<copy>\n/stats\n/budget 10%\n/budget\n/policy h2o\n/policy\n/reset\n/stats\n/exit\nnever read\n"
	if err := c.Loop(t.Context(), strings.NewReader(lines), p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"read again with the next message", "\n   3  full ", "10% of the conversation from the next turn", "h2o at 10% of the conversation", "No turns yet."} {
		if !strings.Contains(info.String(), want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
	turns := turnsOf(t, out.String())
	out.Reset()
	whole, _ := talk(t, "full", 64, &out)
	if err := whole.Loop(t.Context(), strings.NewReader("<copy>\n<copy>\n"), p); err != nil {
		t.Fatal(err)
	}
	want := turnsOf(t, out.String())
	if len(turns) != 3 || len(want) != 3 {
		t.Fatalf("%d and %d turns, want 3", len(turns), len(want))
	}
	for i := range turns {
		if got := turns[i]; got.Answer != want[i].Answer || got.Position != want[i].Position || got.Stop != engine.End {
			t.Errorf("turn %d: %+v, without a stop %+v", i+1, got, want[i])
		}
	}
	// The last token of the answer before was not run.
	if got := turns[2].PromptTokens; got <= want[1].Position || got > want[1].Position+want[2].PromptTokens+1 {
		t.Errorf("%d tokens were read again, after %d and with %d more", got, want[1].Position, want[2].PromptTokens)
	}
}

// TestKeep: what rules say stays of every turn is found among the tokens of all turns, and is in every head.
func TestKeep(t *testing.T) {
	var out bytes.Buffer
	c, info := talk(t, "snapkv", 64, &out)
	if err := c.o.Keep.Match("<chain>.*"); err != nil {
		t.Fatal(err)
	}
	stays := func() (texts []string) {
		for _, x := range c.session.Keep.Spans {
			text, err := c.model.Tokenizer.Decode(c.session.Conversation()[x.From:x.To], false)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, text)
		}
		return texts
	}
	if err := c.Loop(t.Context(), strings.NewReader(""), example(t, c, 256)); err != nil {
		t.Fatal(err)
	}
	first := stays()
	if len(first) != 1 || !strings.HasPrefix(first[0], "<chain>") {
		t.Fatalf("%q stay, want what was asked", first)
	}
	for _, heads := range c.session.Kept() {
		for _, kept := range heads {
			for at := c.session.Keep.Spans[0].From; at < c.session.Keep.Spans[0].To; at++ {
				if !slices.Contains(kept, int32(at)) {
					t.Fatalf("token %d has gone", at)
				}
			}
		}
	}
	if err := c.Loop(t.Context(), strings.NewReader("/keep last\n<copy>\n/keep sistem\n"), nil); err == nil || !strings.Contains(err.Error(), `did you mean "system"`) {
		t.Errorf("/keep sistem: got %v, want what was meant", err)
	}
	if got := stays(); len(got) != 2 || got[0] != first[0] && got[1] != first[0] || !strings.Contains(strings.Join(got, "|"), "<copy>") {
		t.Errorf("%q stay, want %q and the last message", got, first)
	}
	if !strings.Contains(info.String(), "tokens stay") || !strings.Contains(info.String(), "Kept: last.") {
		t.Errorf("got %q, want what stays", info)
	}
	for _, o := range []Options{{Keep: engine.KeepRules{System: true}, Context: new(eviction.Context)}, {Keep: engine.KeepRules{Fair: true}}} {
		p, err := c.model.Policy("streamingllm")
		if err != nil {
			t.Fatal(err)
		}
		o.Budget = eviction.Pairs(64)
		if _, err := NewConversation(c.model, p, o, io.Discard, io.Discard); err == nil {
			t.Errorf("%v is taken, with a context %v", o.Keep.String(), o.Context != nil)
		}
	}
	// Read again, they are the same tokens.
	before := stays()
	if err := c.Loop(t.Context(), strings.NewReader("/policy h2o\n<copy>\n"), nil); err != nil {
		t.Fatal(err)
	}
	if got := stays(); len(got) != 2 || got[0] != before[0] {
		t.Errorf("%q stay after all was read again, before %q", got, before)
	}
}

// interruptAfter interrupts a conversation after so many writes.
type interruptAfter struct {
	io.Writer
	c    *Conversation
	left int
}

func (w *interruptAfter) Write(p []byte) (int, error) {
	if w.left--; w.left == 0 && !w.c.stop.takeInterrupt() {
		panic("not the first interrupt")
	}
	return w.Writer.Write(p)
}

// TestInterruptedAnswer: an answer ends at the token that was said, and the conversation goes on.
func TestInterruptedAnswer(t *testing.T) {
	var out bytes.Buffer
	w := &interruptAfter{Writer: &out, left: 5}
	c, info := talk(t, "random", 8, w)
	w.c, c.o.JSON = c, false
	if err := c.Loop(t.Context(), strings.NewReader("<copy>\n"), example(t, c, 128)); err != nil {
		t.Fatal(err)
	}
	if got := c.turns[0]; got.Stop != engine.Interrupted || got.AnswerTokens != 5 || got.Ended || strings.Count(info.String(), "[interrupted]") != 1 {
		t.Errorf("%+v; said\n%s", got, info)
	}
	if len(c.turns) != 2 || c.turns[1].Position <= c.turns[0].Position || len(c.messages) != 4 || c.messages[1].Content != c.turns[0].Answer {
		t.Errorf("turns %+v", c.turns)
	}
}

// TestInterruptedPrompt: a prompt that is interrupted was never said.
func TestInterruptedPrompt(t *testing.T) {
	var out bytes.Buffer
	c, info := talk(t, "full", 8, &out)
	p := example(t, c, 512)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c.stop.mu.Lock()
			begun := c.stop.cancel != nil
			c.stop.mu.Unlock()
			if begun {
				c.stop.takeInterrupt()
				return
			}
		}
	}()
	if err := c.openExample(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	<-done
	if len(c.messages) != 0 || len(c.turns) != 0 || !strings.Contains(info.String(), "the message is dropped") {
		t.Fatalf("%d messages, %d turns; said\n%s", len(c.messages), len(c.turns), info)
	}
	if err := c.openExample(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	want, err := c.model.Tokenizer.Decode(p.Answer, true)
	if err != nil {
		t.Fatal(err)
	}
	if got := turnsOf(t, out.String()); len(got) != 1 || got[0].Answer != want {
		t.Errorf("%+v, want %q", got, want)
	}
}

// TestFullContext: an answer that the context cuts short says so, and so does the next message.
func TestFullContext(t *testing.T) {
	var out bytes.Buffer
	c, _ := talk(t, "random", 8, &out)
	c.model.Config.EOS = nil // answers have no end
	err := c.Loop(t.Context(), strings.NewReader("<copy>\n"), example(t, c, 4000))
	if err == nil || !strings.Contains(err.Error(), "longer than the model's context") {
		t.Errorf("error %v", err)
	}
	turns := turnsOf(t, out.String())
	if len(turns) != 1 || turns[0].Stop != engine.Context || turns[0].Position != c.model.Config.MaxPositions {
		t.Fatalf("%+v", turns)
	}
	if advice := (&refusal{err}).advice(); !strings.Contains(advice, "/reset begins anew") {
		t.Errorf("advice %q", advice)
	}
}

// TestComplete: the tab key finds commands, and policies after /policy.
func TestComplete(t *testing.T) {
	var c *Conversation
	if got := c.completeCommand("/p"); !slices.Contains(got, "/policy ") || slices.Contains(got, "/policy snapkv") {
		t.Errorf("%q", got)
	}
	if got := c.completeCommand("/policy sn"); !slices.Contains(got, "/policy snapkv") {
		t.Errorf("%q", got)
	}
}
