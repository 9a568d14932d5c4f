package main

import (
	"fmt"
	"slices"

	"glimpse/console"
	"glimpse/internal/stdin"
	"glimpse/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// promptFlags are the ways to give a prompt.
type promptFlags struct {
	console.PromptSource
	text string
}

func (p *promptFlags) addFlags(f *pflag.FlagSet) {
	f.StringVar(&p.text, "prompt", "", "text of the prompt; \"-\" reads it from standard input")
	f.StringVar(&p.Messages, "messages", "", "JSON file with a conversation to answer, an array or an object with \"messages\"; \"-\" is standard input")
	f.Var(systemFlag{&p.System}, "system", "system prompt before the prompt: text, or @FILE")
	f.StringVar(&p.IDs, "token-ids", "", "file with the prompt's token ids, separated by white space or commas; \"-\" is standard input")
	f.StringVar(&p.Example, "example", "", "make a prompt for the built-in model: needle, hops, section, or any task")
	f.Uint64Var(&p.Seed, "example-seed", 1, "which prompt --example makes, as a seed; --seed is for sampling the answer")
	f.IntVar(&p.Tokens, "tokens", 512, "length of the --example prompt in tokens")
	f.BoolVar(&p.Raw, "raw", false, "take the text as it is, without the model's chat template")
}

// promptArguments are the arguments of a command that takes a prompt.
const promptArguments = "[PROMPT] [-]"

// arguments are the prompt that a command has as its arguments, if any: one of them may be standard input.
func (p *promptFlags) arguments(args []string) error {
	switch {
	case len(args) > 0 && p.text != "":
		return fmt.Errorf("prompt: got the argument %.40q and --prompt %.40q, want one of them", args[0], p.text)
	case p.text != "":
		args = []string{p.text}
	case len(args) > 1 && (args[0] == "-") == (args[1] == "-"):
		return fmt.Errorf("prompt: got the arguments %.40q and %.40q, want one text, in quotes, or a text and \"-\" for standard input", args[0], args[1])
	}
	for _, text := range args {
		if err := model.CheckPrompt(text); err != nil {
			return err
		}
	}
	p.Text = args
	return nil
}

// readPrompt reads the prompt that was given. What is piped in beside it is not read, so that a loop of the shell over lines goes on,
// but that is said.
func (p *promptFlags) readPrompt(cmd *cobra.Command, m *model.Model) (*console.Prompt, error) {
	if p.Messages != stdin.Name && p.IDs != stdin.Name && !slices.Contains(p.Text, stdin.Name) && stdin.Waiting(cmd.InOrStdin()) {
		fmt.Fprintf(cmd.ErrOrStderr(), "what is piped in is not read: %s - \"TEXT\" puts it before a text\n", cmd.CommandPath())
	}
	return p.Read(cmd.Context(), m, stdin.NewReader(cmd.Context(), cmd.InOrStdin()))
}

// systemFlag is a system prompt, nil where none is given.
type systemFlag struct{ text **string }

func (f systemFlag) Set(value string) error {
	text, err := console.ReadSystem(value)
	*f.text = &text
	return err
}

func (f systemFlag) String() string {
	if f.text == nil || *f.text == nil {
		return ""
	}
	return **f.text
}

// Type is what help calls the flag's value.
func (systemFlag) Type() string { return "text" }
