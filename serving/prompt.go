package serving

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/internal/regularfile"
	"glimpse/internal/suggest"
	"glimpse/model"
	"glimpse/model/chat"
)

// Prompt is a prompt as token ids.
type Prompt struct {
	IDs    []int32
	Answer []int32 // of an example
	Task   string
}

// PromptSource are the ways to give a prompt, of which one is taken.
type PromptSource struct {
	Text    string // "-" is standard input
	IDs     string // file of token ids, separated by white space or commas; "-" is standard input
	Example string // of a synthetic task, for the built-in model
	Raw     bool   // the text does not go into the chat template
	Tokens  int    // length of the example
}

// Read reads the one prompt that was given.
func (p *PromptSource) Read(ctx context.Context, m *model.Model, in io.Reader, seed uint64) (*Prompt, error) {
	var given []string
	for _, s := range [][2]string{{p.Text, "a text"}, {p.IDs, "--token-ids"}, {p.Example, "--example"}} {
		if s[0] != "" {
			given = append(given, s[1])
		}
	}
	if len(given) != 1 {
		return nil, fmt.Errorf("prompt: got %s, want one of a text, --token-ids and --example", cmp.Or(strings.Join(given, " and "), "none"))
	}
	if m.ChatVariables() && (p.Text == "" || p.Raw || !m.HasChatTemplate()) {
		return nil, fmt.Errorf("prompt: --chat-option: the prompt does not go into a chat template")
	}
	var out *Prompt
	var err error
	switch {
	case p.Example != "":
		out, err = p.ReadExample(m, seed)
	case p.IDs != "":
		out, err = openIDs(p.IDs, in)
	default:
		out, err = p.readText(ctx, m, in)
	}
	if err != nil {
		return nil, err
	}
	if len(out.IDs) == 0 {
		return nil, fmt.Errorf("prompt: empty, want at least one token")
	}
	return out, nil
}

// ExampleNames are the names that Example takes.
func ExampleNames() []string { return datasets.Tasks.Names() }

// ReadExample makes the prompt of a synthetic task.
func (p *PromptSource) ReadExample(m *model.Model, seed uint64) (*Prompt, error) {
	if !datasets.Knows(m.Config.Vocab) {
		return nil, fmt.Errorf("example: model %s does not know the words of the synthetic tasks", m.Name)
	}
	if !slices.Contains(ExampleNames(), p.Example) {
		return nil, suggest.Unknown("example", p.Example, ExampleNames())
	}
	s, err := datasets.NewStream([]string{p.Example}, datasets.Test, p.Tokens, seed)
	if err != nil {
		return nil, err
	}
	e, err := s.At(0)
	return &Prompt{IDs: e.Prompt, Answer: e.Answer, Task: p.Example}, err
}

func (p *PromptSource) readText(ctx context.Context, m *model.Model, in io.Reader) (*Prompt, error) {
	text := p.Text
	if text == "-" {
		raw, err := io.ReadAll(io.LimitReader(in, datasets.MaxLine+1))
		if err != nil {
			return nil, fmt.Errorf("prompt: %w", err)
		}
		if len(raw) > datasets.MaxLine {
			return nil, fmt.Errorf("prompt: more than %d bytes, want at most as many", datasets.MaxLine)
		}
		text = string(raw)
	}
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("prompt: empty, want at least one token")
	}
	var ids []int32
	var err error
	if p.Raw || !m.HasChatTemplate() {
		ids, err = m.Encode(text)
	} else {
		ids, err = m.EncodeChat(ctx, []chat.Message{{Role: "user", Content: text}}, nil)
	}
	return &Prompt{IDs: ids}, err
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
