package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/model"
	"glimpse/model/chat"

	"github.com/spf13/pflag"
)

// promptFlags are the ways to give a prompt.
type promptFlags struct {
	text, ids, example string
	raw                bool
	tokens             int
}

func (p *promptFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&p.text, "prompt", "", "prompt text; \"-\" reads it from standard input")
	f.StringVar(&p.ids, "token-ids", "", "file of token ids, separated by white space or commas")
	f.StringVar(&p.example, "example", "", "make a prompt that the built-in model can answer: needle, chain, copy, or any task")
	f.IntVar(&p.tokens, "tokens", 512, "length of the example's prompt")
	f.BoolVar(&p.raw, "raw", false, "take the text as it is, without the model's chat template")
}

// take takes the prompt that a command has as its argument, if any.
func (p *promptFlags) take(args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case p.text != "":
		return fmt.Errorf("the prompt is given twice")
	case strings.TrimSpace(args[0]) == "":
		return fmt.Errorf("prompt: empty, want at least one token")
	}
	p.text = args[0]
	return nil
}

// prompt is a prompt as token ids.
type prompt struct {
	ids    []int32
	answer []int32 // of an example
	task   string
}

// read settles the one prompt that was given.
func (p *promptFlags) read(ctx context.Context, m *model.Model, in io.Reader, seed uint64) (*prompt, error) {
	given := 0
	for _, s := range []string{p.text, p.ids, p.example} {
		if s != "" {
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("prompt: got %d, want exactly one of a text, --token-ids and --example", given)
	}
	if m.ChatVariables() && (p.text == "" || p.raw || !m.HasChatTemplate()) {
		return nil, fmt.Errorf("prompt: --chat-option: the prompt does not go into a chat template")
	}
	var out *prompt
	var err error
	switch {
	case p.example != "":
		out, err = p.readExample(m, seed)
	case p.ids != "":
		out, err = readIDs(p.ids)
	default:
		out, err = p.readText(ctx, m, in)
	}
	if err != nil {
		return nil, err
	}
	if len(out.ids) == 0 {
		return nil, fmt.Errorf("prompt: empty, want at least one token")
	}
	return out, nil
}

// exampleTasks are friendlier names of tasks.
var exampleTasks = map[string]string{"needle": "single"}

func (p *promptFlags) readExample(m *model.Model, seed uint64) (*prompt, error) {
	if m.Config.Vocab != len(datasets.Vocabulary()) {
		return nil, fmt.Errorf("example: model %s does not know the words of the synthetic tasks", m.Name)
	}
	task := p.example
	if t, ok := exampleTasks[task]; ok {
		task = t
	}
	if !slices.Contains(datasets.Tasks.Names(), task) {
		_, err := datasets.Tasks.Lookup(task)
		return nil, fmt.Errorf("example: %w, needle", err)
	}
	s, err := datasets.NewStream([]string{task}, datasets.Test, p.tokens, seed)
	if err != nil {
		return nil, err
	}
	e, err := s.At(0)
	return &prompt{ids: e.Prompt, answer: e.Answer, task: task}, err
}

func (p *promptFlags) readText(ctx context.Context, m *model.Model, in io.Reader) (*prompt, error) {
	text := p.text
	if text == "-" {
		raw, err := io.ReadAll(io.LimitReader(in, 1<<28))
		if err != nil {
			return nil, fmt.Errorf("prompt: %w", err)
		}
		text = string(raw)
	}
	if strings.TrimSpace(text) == "" {
		return nil, fmt.Errorf("prompt: empty, want at least one token")
	}
	var ids []int32
	var err error
	if p.raw || !m.HasChatTemplate() {
		ids, err = m.Encode(text)
	} else {
		ids, err = m.EncodeChat(ctx, []chat.Message{{Role: "user", Content: text}})
	}
	return &prompt{ids: ids}, err
}

// readIDs reads a file of numbers.
func readIDs(path string) (*prompt, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := &prompt{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	for line := 1; scan.Scan(); line++ {
		fields := strings.FieldsFunc(scan.Text(), func(r rune) bool { return strings.ContainsRune(" \t\r,[]", r) })
		for _, field := range fields {
			id, err := strconv.ParseInt(field, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("%s: line %d: got %q, want a token id", path, line, field)
			}
			out.ids = append(out.ids, int32(id))
		}
	}
	if err := scan.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}
