package main

import (
	"fmt"
	"strings"

	"glimpse/serving"

	"github.com/spf13/pflag"
)

// promptFlags are the ways to give a prompt.
type promptFlags struct {
	serving.PromptSource
	exampleSeed uint64
}

func (p *promptFlags) bind(f *pflag.FlagSet) {
	f.StringVar(&p.Text, "prompt", "", "prompt text; \"-\" reads it from standard input")
	f.StringVar(&p.IDs, "token-ids", "", "file of token ids, separated by white space or commas; \"-\" reads them from standard input")
	f.StringVar(&p.Example, "example", "", "make a prompt that the built-in model can answer: needle, hops, section, or any task")
	f.Uint64Var(&p.exampleSeed, "example-seed", 1, "which of the examples; --seed is of what draws, the answer's tokens")
	f.IntVar(&p.Tokens, "tokens", 512, "length of the example's prompt")
	f.BoolVar(&p.Raw, "raw", false, "take the text as it is, without the model's chat template")
}

// argument is the prompt that a command has as its argument, if any.
func (p *promptFlags) argument(args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case p.Text != "":
		return fmt.Errorf("the prompt is given twice")
	case strings.TrimSpace(args[0]) == "":
		return fmt.Errorf("prompt: empty, want at least one token")
	}
	p.Text = args[0]
	return nil
}
