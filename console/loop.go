package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"glimpse/console/lineedit"
	"glimpse/datasets"
	"glimpse/internal/progress"
	"glimpse/internal/signals"
	"glimpse/internal/stdin"
	"glimpse/internal/tables"
	"glimpse/model"
	"glimpse/model/tokenizer"

	"golang.org/x/term"
)

// maxMessage bounds one line of input.
const maxMessage = 1 << 24

// errLeave ends the conversation.
var errLeave = errors.New("leave")

// Loop answers an example's prompt, if there is one, and then line by line. A line that
// begins with a slash is a command. A message that the model cannot read ends the
// conversation unless a person is there to try another.
func (c *Conversation) Loop(ctx context.Context, in io.Reader, example *Prompt) error {
	next, person := c.lines(ctx, in)
	if person {
		defer signals.OnInterrupt(ctx, c.stop.signal)() // before it is told of Ctrl-C
		c.banner()
	}
	if example != nil {
		if err := c.openExample(ctx, example); err != nil {
			return err
		}
	}
	for {
		line, err := next()
		switch {
		case errors.Is(err, lineedit.ErrInterrupt):
			if !c.stop.takeInterrupt() {
				return nil
			}
			c.say("Ctrl-C again, or Ctrl-D, leaves.")
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("chat: read a message: %w", err)
		}
		text := strings.TrimSpace(line)
		if text == "" {
			continue
		}
		c.stop.beginTurn(nil) // who says something does not leave
		err = c.takeLine(ctx, text)
		var wrong *refusal
		switch {
		case errors.Is(err, errLeave):
			return nil
		case person && errors.As(err, &wrong):
			c.say(wrong.advice())
		case err != nil:
			return err
		}
	}
}

// lines reads from in: with an editor where a person sits at a terminal.
func (c *Conversation) lines(ctx context.Context, in io.Reader) (next func() (string, error), person bool) {
	f, ok := in.(*os.File)
	person = ok && term.IsTerminal(int(f.Fd()))
	const prompt = "> "
	if shown, ok := c.info.(*progress.Output); ok {
		if e := lineedit.Open(ctx, in, shown.Terminal()); e != nil {
			e.Complete = c.completeCommand
			c.stop.keys = true
			c.columns = tables.Columns(shown)
			if path := historyFile(); path != "" {
				switch err := e.Remember(path); {
				case errors.Is(err, lineedit.ErrForeign): // which the user has named, and can mend
					fmt.Fprintf(shown, "history is not kept: %v\n", err)
				case err != nil:
					shown.Detail("history is not kept: %v", err)
				}
			}
			return func() (string, error) {
				line, err := e.ReadLine(prompt)
				c.columns = tables.Columns(shown) // of a window that has changed
				return line, err
			}, true
		}
	}
	lines := bufio.NewScanner(stdin.NewReader(ctx, in))
	lines.Buffer(nil, maxMessage)
	return func() (string, error) {
		if person {
			fmt.Fprint(c.info, prompt)
		}
		if lines.Scan() {
			return lines.Text(), nil
		}
		if err := lines.Err(); err != nil {
			return "", err
		}
		if person {
			fmt.Fprintln(c.info)
		}
		return "", io.EOF
	}, person
}

// banner says who is there and what can be done.
func (c *Conversation) banner() {
	c.say(fmt.Sprintf("Model %s, context of %d tokens; policy %s.", c.model.Name, c.model.Config.MaxPositions, c.described()))
	if datasets.Knows(c.model.Config.Vocab) {
		c.say(fmt.Sprintf("It knows %d words; begin with --example turns_section, then try <copy>.", c.model.Config.Vocab))
	}
	c.say("/help lists the commands, Ctrl-C ends an answer, Ctrl-D leaves.")
}

// takeLine does what a line says.
func (c *Conversation) takeLine(ctx context.Context, text string) error {
	if name, rest, ok := asCommand(text); ok {
		return c.command(name, rest)
	}
	ids, whole, err := c.readMessage(ctx, text)
	if err != nil {
		return &refusal{err}
	}
	return c.runTurn(ctx, text, ids, whole)
}

// refusal is an error of a line that has changed nothing.
type refusal struct{ error }

func (r *refusal) Unwrap() error { return r.error }

// advice is the error for a person, who may try another line.
func (r *refusal) advice() string {
	var word *tokenizer.UnknownWordError
	switch {
	case errors.As(r, &word):
		try := ""
		if len(word.Nearest) > 0 {
			try = "; try " + strings.Join(word.Nearest, ", ")
		}
		return fmt.Sprintf("%q is not one of the %d words that the model knows%s", word.Word, word.Words, try)
	case errors.Is(r, model.ErrContext):
		return strings.TrimPrefix(r.Error(), "chat: ") + "; /reset begins anew"
	}
	return r.Error()
}
