package console

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/engine"
	"glimpse/eviction"
	"glimpse/internal/regularfile"
	"glimpse/internal/suggest"
	"glimpse/model"
	"glimpse/model/chat"
)

// Prompt is a prompt as token ids.
type Prompt struct {
	IDs    []int32
	Answer []int32 // of an example
	Keep   eviction.Keep
	rules  engine.KeepRules // that it comes from
	Task   string
}

// PromptSource are the ways to give a prompt; one of them is taken.
type PromptSource struct {
	Text     []string         // parts with an empty line between them; "-" is standard input
	Messages string           // file that ParseMessages reads; "-" is standard input
	IDs      string           // file of token ids, separated by white space or commas; "-" is standard input
	Example  string           // of a synthetic task, for the built-in model
	System   *string          // system prompt before the text or the messages; nil: none
	Raw      bool             // the text does not go into the chat template
	Tokens   int              // length of the example
	Seed     uint64           // which example
	Keep     engine.KeepRules // what of it stays
	// Context (may be nil) is what the text is asked behind. The prompt begins with its tokens.
	Context *eviction.ContextFile
}

// Read reads the one prompt that was given.
func (p *PromptSource) Read(ctx context.Context, m *model.Model, in io.Reader) (*Prompt, error) {
	var given []string
	for _, s := range [][2]string{{strings.Join(p.Text, ""), "a text"}, {p.Messages, "--messages"}, {p.IDs, "--token-ids"}, {p.Example, "--example"}} {
		if s[0] != "" {
			given = append(given, s[1])
		}
	}
	if len(given) != 1 {
		return nil, fmt.Errorf("prompt: got %s, want one of a text, --messages, --token-ids and --example", cmp.Or(strings.Join(given, " and "), "none"))
	}
	if p.Context != nil && len(p.Text) == 0 {
		return nil, fmt.Errorf("prompt: got %s, want a text behind --context", given[0])
	}
	chats := (len(p.Text) > 0 || p.Messages != "") && !p.Raw && m.HasChatTemplate()
	if err := p.checkFlags(m, chats, given[0]); err != nil {
		return nil, err
	}
	var out *Prompt
	var err error
	switch {
	case p.Context != nil:
		out, err = p.readBehind(ctx, m, in)
	case p.Example != "":
		out, err = p.ReadExample(m)
	case p.IDs != "":
		out, err = openIDs(p.IDs, in)
	case chats:
		out, err = p.readChat(ctx, m, in)
	default:
		var text string
		if text, err = p.readText(in); err == nil {
			out = new(Prompt)
			if out.IDs, err = m.Encode(text); err == nil {
				out.Keep, err = p.Keep.OfText(m.Tokenizer, text, out.IDs)
			}
		}
	}
	if err != nil {
		return nil, err
	}
	if len(out.IDs) == 0 {
		return nil, fmt.Errorf("prompt: empty, want at least one token")
	}
	out.rules = p.Keep
	return out, nil
}

// checkFlags refuses flags of a chat template for a prompt that does not go into one, and a pattern for one that is no text.
func (p *PromptSource) checkFlags(m *model.Model, chats bool, given string) error {
	for _, flag := range []struct {
		name  string
		given bool
	}{{"--chat-option", m.ChatVariables()}, {"--system", p.System != nil}, {"--messages", p.Messages != ""}, {"--keep " + p.Keep.String(), p.Keep.OfChats()}} {
		if err := m.NeedChatTemplate(); flag.given && !p.Raw && err != nil && (len(p.Text) > 0 || p.Messages != "") {
			return fmt.Errorf("prompt: %s: %w", flag.name, err)
		}
		if flag.given && !chats {
			return fmt.Errorf("prompt: %s: the prompt does not go into a chat template", flag.name)
		}
	}
	if p.Keep.Pattern != nil && len(p.Text) == 0 && p.Messages == "" {
		return fmt.Errorf("prompt: --keep-pattern: got %s, want a text or --messages", given)
	}
	return nil
}

var errBehindContext = errors.New("--keep and --keep-pattern: nothing is evicted behind a context")

// readBehind reads a text behind the context.
func (p *PromptSource) readBehind(ctx context.Context, m *model.Model, in io.Reader) (*Prompt, error) {
	if p.System != nil || p.Raw {
		return nil, errors.New("prompt: --system and --raw: the context has them, from when it was made")
	}
	if p.Keep.Any() {
		return nil, errBehindContext
	}
	text, err := p.readText(in)
	if err != nil {
		return nil, err
	}
	ids, err := encodeBehind(ctx, m, p.Context, []chat.Message{{Role: "user", Content: text}})
	return &Prompt{IDs: ids}, err
}

// encodeBehind is a context's tokens with what follows them: messages whose first is the user's.
func encodeBehind(ctx context.Context, m *model.Model, f *eviction.ContextFile, messages []chat.Message) (ids []int32, err error) {
	if f.Chat {
		ids, err = m.EncodeBehind(ctx, messages)
	} else {
		ids, err = m.Tokenizer.Encode(messages[0].Content, false)
	}
	return slices.Concat(f.Tokens, ids), err
}

// ReadContext reads a text, "-" from in, as a context that questions follow: of the chat template's message of a user, where there is one,
// with an empty line behind it.
func (p *PromptSource) ReadContext(ctx context.Context, m *model.Model, path string, in io.Reader) (out *Prompt, inChat bool, err error) {
	raw, err := readFile(path, in)
	if err != nil {
		return nil, false, fmt.Errorf("context: %w", err)
	}
	text := withoutNewline(string(raw))
	if err := model.CheckPrompt(text); err != nil {
		return nil, false, fmt.Errorf("context: %s: %w", path, err)
	}
	inChat = !p.Raw && m.HasChatTemplate()
	out = &Prompt{rules: p.Keep}
	switch text += "\n\n"; {
	case inChat:
		if out.IDs, err = m.EncodeContext(ctx, p.System, text); err == nil {
			out.Keep, err = p.Keep.OfContext(ctx, m, p.System, text, out.IDs)
		}
	case p.System != nil || p.Keep.OfChats():
		err = errors.New("--system and --keep: the context does not go into a chat template")
	default:
		if out.IDs, err = m.Encode(text); err == nil {
			out.Keep, err = p.Keep.OfText(m.Tokenizer, text, out.IDs)
		}
	}
	if err != nil {
		err = fmt.Errorf("context: %w", err)
	}
	return out, inChat, err
}

// ExampleNames are the names that Example takes.
func ExampleNames() []string { return datasets.Tasks.Names() }

// ReadExample makes the prompt of a synthetic task.
func (p *PromptSource) ReadExample(m *model.Model) (*Prompt, error) {
	if !datasets.Knows(m.Config.Vocab) {
		return nil, fmt.Errorf("example: model %s does not know the words of the synthetic tasks", m.Name)
	}
	if !slices.Contains(ExampleNames(), p.Example) {
		return nil, suggest.Unknown("example", p.Example, ExampleNames())
	}
	s, err := datasets.NewStream([]string{p.Example}, datasets.Test, p.Tokens, p.Seed)
	if err != nil {
		return nil, err
	}
	e, err := s.At(0)
	return &Prompt{IDs: e.Prompt, Answer: e.Answer, Task: p.Example}, err
}

func (p *PromptSource) readText(in io.Reader) (string, error) {
	parts := slices.Clone(p.Text)
	if i := slices.Index(parts, "-"); i >= 0 {
		raw, err := readFile("-", in)
		if err != nil {
			return "", fmt.Errorf("prompt: %w", err)
		}
		parts[i] = withoutNewline(string(raw))
	}
	return strings.Join(parts, "\n\n"), nil
}

// readChat reads what goes into the chat template.
func (p *PromptSource) readChat(ctx context.Context, m *model.Model, in io.Reader) (*Prompt, error) {
	var messages []chat.Message
	var tools []any
	if p.Messages == "" {
		text, err := p.readText(in)
		if err != nil {
			return nil, err
		}
		messages = []chat.Message{{Role: "user", Content: text}}
	} else {
		data, err := readFile(p.Messages, in)
		if err == nil {
			messages, tools, err = ParseMessages(data)
		}
		if err != nil {
			return nil, fmt.Errorf("prompt: --messages %s: %w", p.Messages, err)
		}
	}
	if p.System != nil {
		if messages[0].Role == "system" {
			return nil, fmt.Errorf("prompt: --system: the messages have a system prompt of their own")
		}
		messages = slices.Insert(messages, 0, chat.Message{Role: "system", Content: *p.System})
	}
	own := chat.Options{Tools: tools}
	if template, o, err := m.ChatTemplate(own); err == nil {
		if role, ok := template.Dropped(ctx, messages, o); ok {
			return nil, fmt.Errorf("prompt: the chat template of model %s does not tell the model what the role %q says", m.Name, role)
		}
	}
	out := new(Prompt)
	var err error
	if out.IDs, err = m.EncodeChat(ctx, messages, own); err == nil {
		out.Keep, err = p.Keep.KeepOf(ctx, m, messages, own, out.IDs)
	}
	return out, err
}

// ParseMessages reads a conversation from JSON: an array of messages, each with a role, a
// content and what else the chat template reads, or an object with "messages" and, if there are
// any, "tools". What an assistant says at the end is left out: it is what is asked for.
func ParseMessages(data []byte) (messages []chat.Message, tools []any, err error) {
	var body struct {
		Messages []json.RawMessage `json:"messages"`
		Tools    json.RawMessage   `json:"tools"`
	}
	to := any(&body)
	if data = bytes.TrimSpace(bytes.TrimPrefix(data, []byte("\ufeff"))); bytes.HasPrefix(data, []byte("[")) {
		to = &body.Messages
	}
	if err := json.Unmarshal(data, to); err != nil {
		return nil, nil, fmt.Errorf("%w, want a JSON array of messages, or an object with \"messages\"", err)
	}
	for i, raw := range body.Messages {
		var m chat.Message
		if err := m.UnmarshalJSON(raw); err != nil {
			return nil, nil, fmt.Errorf("messages[%d]: %w", i, err)
		}
		messages = append(messages, m)
	}
	for n := len(messages); n > 0 && messages[n-1].Role == "assistant"; n-- {
		messages = messages[:n-1]
	}
	if len(messages) == 0 {
		return nil, nil, errors.New("got no message to answer, want at least one")
	}
	if body.Tools != nil {
		v, err := chat.ParseJSON(body.Tools)
		list, ok := v.([]any)
		if err != nil || !ok && v != nil {
			return nil, nil, fmt.Errorf("tools: got %.60s, want an array of JSON schemas", body.Tools)
		}
		tools = list
	}
	return messages, tools, nil
}

// ReadSystem is a system prompt as it is given: text, or @FILE.
func ReadSystem(value string) (string, error) {
	path, ok := strings.CutPrefix(value, "@")
	if !ok {
		return value, nil
	}
	data, err := readFile(path, nil)
	if err != nil {
		return "", fmt.Errorf("system prompt: %w", err)
	}
	return withoutNewline(string(data)), nil
}

// maxPromptBytes bounds what is read for a prompt.
const maxPromptBytes = 1 << 28

// readFile reads a file, or in for "-".
func readFile(path string, in io.Reader) ([]byte, error) {
	if path != "-" || in == nil {
		return regularfile.Read(path, maxPromptBytes)
	}
	data, err := io.ReadAll(io.LimitReader(in, maxPromptBytes+1))
	if err == nil && len(data) > maxPromptBytes {
		err = fmt.Errorf("%s: got more than %d bytes", path, maxPromptBytes)
	}
	return data, err
}

// withoutNewline is text without the one newline, \n or \r\n, that a pipe or an editor puts
// at its end.
func withoutNewline(text string) string {
	rest, ok := strings.CutSuffix(text, "\n")
	if !ok {
		return text
	}
	return strings.TrimSuffix(rest, "\r")
}

// openIDs reads a file of numbers, or in for "-".
func openIDs(path string, in io.Reader) (*Prompt, error) {
	if path == "-" {
		return readIDs("standard input", in)
	}
	f, err := regularfile.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readIDs(path, f)
}

// maxIDLine bounds a line of a file of token ids, in bytes.
const maxIDLine = 1 << 20

func readIDs(path string, in io.Reader) (*Prompt, error) {
	out := &Prompt{}
	scan := bufio.NewScanner(in)
	scan.Buffer(nil, maxIDLine)
	line := 1
	for ; scan.Scan(); line++ {
		fields := strings.FieldsFunc(scan.Text(), func(r rune) bool { return strings.ContainsRune(" \t\r,[]", r) })
		for _, field := range fields {
			id, err := strconv.ParseInt(field, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: line %d: got %q, want a token id", path, line, field)
			}
			out.IDs = append(out.IDs, int32(id))
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, fmt.Errorf("%s: line %d: more than %d bytes, want token ids on shorter lines", path, line, maxIDLine)
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
