package engine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"glimpse/eviction"
	"glimpse/internal/suggest"
	"glimpse/model"
	"glimpse/model/chat"
	"glimpse/model/tokenizer"
)

// KeepRules say what of a conversation stays in an evicted cache, as a list with commas between says it.
type KeepRules struct {
	System bool // what stands before the first message of a user, and what the system says later
	Tools  bool // what the model is told of tools
	Last   bool // the last message, and the header of the answer
	Cached bool // parts of contents with cache_control
	Fair   bool // what is left of the budget is shared out over the messages
	Strict bool // a budget without room for all of it is refused; else it grows
	// Pattern, where it is set, finds texts that stay in what messages say, or in a prompt without a template.
	Pattern *regexp.Regexp
}

// keepNames are the words of a list of KeepRules.
var keepNames = []struct {
	name string
	of   func(*KeepRules) *bool
}{
	{"system", func(k *KeepRules) *bool { return &k.System }},
	{"tools", func(k *KeepRules) *bool { return &k.Tools }},
	{"last", func(k *KeepRules) *bool { return &k.Last }},
	{"cache_control", func(k *KeepRules) *bool { return &k.Cached }},
	{"fair", func(k *KeepRules) *bool { return &k.Fair }},
	{"strict", func(k *KeepRules) *bool { return &k.Strict }},
}

func knownWords() (known []string) {
	for _, n := range keepNames {
		known = append(known, n.name)
	}
	return known
}

// Names takes the words of a list, in the place of those before; "none" alone is the empty one.
func (k *KeepRules) Names(words []string) error {
	out, known := KeepRules{Pattern: k.Pattern}, knownWords()
	if !slices.Equal(words, []string{"none"}) {
		for _, word := range words {
			i := slices.Index(known, word)
			if i < 0 {
				return suggest.Unknown("keep", word, append(known, "none"))
			}
			*keepNames[i].of(&out) = true
		}
	}
	*k = out
	return nil
}

// Match makes a regular expression (RE2) the pattern; "" is none.
func (k *KeepRules) Match(pattern string) (err error) {
	if k.Pattern = nil; pattern != "" {
		if k.Pattern, err = regexp.Compile(pattern); err != nil {
			return fmt.Errorf("keep pattern: %w", err)
		}
	}
	return nil
}

// Set reads a list with commas between; it makes KeepRules a flag.
func (k *KeepRules) Set(list string) error {
	var words []string
	for word := range strings.SplitSeq(list, ",") {
		if word = strings.TrimSpace(word); word != "" {
			words = append(words, word)
		}
	}
	if words == nil {
		return fmt.Errorf("keep: got nothing, want none or a list of %s", strings.Join(knownWords(), ", "))
	}
	return k.Names(words)
}

// Type is what help calls the flag's value.
func (*KeepRules) Type() string { return "list" }

func (k *KeepRules) String() string {
	var words []string
	for _, n := range keepNames {
		if *n.of(k) {
			words = append(words, n.name)
		}
	}
	return strings.Join(words, ",")
}

// OfChats tells that there is a rule of messages.
func (k *KeepRules) OfChats() bool {
	return k.System || k.Tools || k.Last || k.Cached || k.Fair
}

// Any tells that there is any rule. One may share out the rest alone (Fair).
func (k *KeepRules) Any() bool { return k.OfChats() || k.Pattern != nil }

// KeptPart is a part of a message's content, in bytes. It stays always, or where it is Cached under the rule of that name.
type KeptPart struct {
	Message, From, To int
	Cached            bool
}

// Conversation is a rendered conversation, whose prompt is its tokens.
type Conversation struct {
	Template *chat.Template
	Messages []chat.Message
	Options  chat.Options
	Text     string // as the template writes it
	More     string // behind it: of an answer that has begun
	Parts    []KeptPart
	IDs      []int32 // of Text and More, or of the first bytes that are a Context
	Context  int
}

// Of finds the tokens of a conversation that stay. A token stays if one of its bytes does.
func (k *KeepRules) Of(ctx context.Context, t *tokenizer.Tokenizer, c *Conversation) (keep eviction.Keep, err error) {
	if !k.Any() && len(c.Parts) == 0 {
		return keep, nil
	}
	contents, tools, err := c.Template.Contents(ctx, c.Messages, c.Options, c.Text)
	if err != nil {
		return keep, err
	}
	// With a message goes what the template writes around it: from the end of the content before it to the beginning of the next one.
	wide := func(i int) [2]int {
		out := [2]int{0, len(c.Text) + len(c.More)}
		if i > 0 {
			out[0] = contents[i-1].To
		}
		if i+1 < len(contents) {
			out[1] = contents[i+1].From
		}
		return out
	}
	var parts [][2]int
	if n := len(contents); n > 0 {
		if k.System {
			parts = append(parts, [2]int{0, contents[0].From})
		}
		if k.Last {
			parts = append(parts, wide(n-1))
		}
	}
	for i, m := range c.Messages {
		if k.System && m.Role == "system" {
			parts = append(parts, wide(i))
		}
	}
	if k.Tools {
		parts = append(parts, [2]int{tools.From, tools.To})
	}
	for _, p := range c.Parts {
		if p.Message >= len(contents) || p.Cached && !k.Cached {
			continue
		}
		if r := contents[p.Message]; c.Text[r.From:r.To] == c.Messages[p.Message].Content {
			parts = append(parts, [2]int{r.From + p.From, r.From + p.To})
		} else { // the template writes it in another way
			parts = append(parts, [2]int{r.From, r.To})
		}
	}
	for _, r := range contents {
		parts = append(parts, k.matches(c.Text, r.From, r.To)...)
	}
	var fair [][2]int
	if k.Fair {
		for i, r := range contents {
			if r.To > r.From || i == 0 {
				fair = append(fair, wide(i))
			}
		}
	}
	text := c.Text + c.More
	if c.Context > 0 {
		text = text[:c.Context]
	}
	return locate(t, text, c.IDs, parts, fair)
}

// OfText finds what of a text without a template stays: what the pattern matches.
func (k *KeepRules) OfText(t *tokenizer.Tokenizer, text string, ids []int32) (eviction.Keep, error) {
	return locate(t, text, ids, k.matches(text, 0, len(text)), nil)
}

// matches are the parts of a text [from, to) that the pattern matches.
func (k *KeepRules) matches(text string, from, to int) (parts [][2]int) {
	if k.Pattern == nil {
		return nil
	}
	for _, at := range k.Pattern.FindAllStringIndex(text[from:to], -1) {
		parts = append(parts, [2]int{from + at[0], from + at[1]})
	}
	return parts
}

// locate turns parts of a text, and the messages that share what is left, into ranges of tokens.
func locate(t *tokenizer.Tokenizer, text string, ids []int32, parts, messages [][2]int) (keep eviction.Keep, err error) {
	if len(parts)+len(messages) == 0 {
		return keep, nil
	}
	all := slices.Concat(parts, messages)
	for i, x := range all {
		all[i] = [2]int{min(x[0], len(text)), min(x[1], len(text))}
	}
	found, err := t.Locate(text, ids, all)
	if err != nil {
		return keep, fmt.Errorf("tokenize: %w", err)
	}
	for _, x := range found[:len(parts)] {
		if x[0] < x[1] {
			keep.Spans = append(keep.Spans, eviction.Span{From: x[0], To: x[1]})
		}
	}
	for i, x := range found[len(parts):] {
		if at := messages[i][0]; at < len(text) {
			keep.Fair = append(keep.Fair, x[0])
		}
	}
	return keep, nil
}

// CheckKeep refuses what rules ask of a policy and a budget that cannot be had: fair shares of a policy that ranks nothing, and, where
// rules are strict, a budget that would have to grow for a prompt of so many tokens.
func (k *KeepRules) CheckKeep(p Policy, budget eviction.Budget, tokens int, keep eviction.Keep) error {
	if k.Fair {
		if err := p.CheckFair(); err != nil {
			return err
		}
	}
	if k.Strict {
		return budget.CheckBeside(tokens, keep.Tokens(tokens))
	}
	return nil
}

// OfContext finds what stays of a context: of a text that a user says, after a system prompt where there is one (nil: none), without what
// follows it. ids are [model.Model.EncodeContext]'s.
func (k KeepRules) OfContext(ctx context.Context, m *model.Model, system *string, text string, ids []int32) (eviction.Keep, error) {
	messages := []chat.Message{{Role: "user", Content: text}}
	if system != nil {
		messages = slices.Insert(messages, 0, chat.Message{Role: "system", Content: *system})
	}
	template, o, err := m.ChatTemplate(chat.Options{})
	if err != nil {
		return eviction.Keep{}, err
	}
	before, after, err := template.Around(ctx, messages, o, len(messages)-1, len(text))
	if err != nil {
		return eviction.Keep{}, err
	}
	k.Last = false // that follows
	c := &Conversation{Template: template, Messages: messages, Options: o, Text: before + after, IDs: ids, Context: len(before)}
	return k.Of(ctx, m.Tokenizer, c)
}

// KeepOf is what stays of a conversation that a model's template writes.
func (k *KeepRules) KeepOf(ctx context.Context, m *model.Model, messages []chat.Message, own chat.Options, ids []int32) (eviction.Keep, error) {
	template, o, err := m.ChatTemplate(own)
	if err != nil {
		return eviction.Keep{}, err
	}
	o.AddGenerationPrompt = true
	text, err := template.Render(ctx, messages, o)
	if err != nil {
		return eviction.Keep{}, fmt.Errorf("model %s: %w", m.Name, err)
	}
	return k.Of(ctx, m.Tokenizer, &Conversation{Template: template, Messages: messages, Options: o, Text: text, IDs: ids})
}
