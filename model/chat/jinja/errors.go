package jinja

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"glimpse/internal/printable"
)

// RaisedError is what a template's raise_exception was called with.
type RaisedError struct {
	Message string
}

func (e *RaisedError) Error() string { return printable.Text(e.Message) }

// ErrBudget: a rendering takes more than its budget of work and memory.
var ErrBudget = errors.New("the rendering takes more work or memory than its budget")

// positioned is an error with the line of the template it arose at.
type positioned struct {
	line int
	err  error
}

func (e *positioned) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

func (e *positioned) Unwrap() error { return e.err }

// position adds a line to an error that has none.
func position(at int, err error) error {
	var p *positioned
	var raised *RaisedError
	if err == nil || errors.As(err, &p) || errors.As(err, &raised) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &positioned{at, err}
}

// namedError names the operation of an error that did not arise deeper in the template.
func namedError(what string, err error) error {
	var p *positioned
	var raised *RaisedError
	if err == nil || errors.As(err, &p) || errors.As(err, &raised) {
		return err
	}
	return fmt.Errorf("%s: %w", what, err)
}

// longest is the most that an error quotes of a template or its data.
const longest = 200

// quoted is text in an error: short, and without what a terminal would act on.
func quoted(s string) string {
	if len(s) > longest {
		return strconv.Quote(strings.ToValidUTF8(s[:longest], "")) + "…"
	}
	return strconv.Quote(s)
}

// shortened is a message without what a terminal would act on, and not too long.
func shortened(s string) string {
	if len(s) > 2*longest {
		s = strings.ToValidUTF8(s[:longest], "") + " … " + strings.ToValidUTF8(s[len(s)-longest:], "")
	}
	return strings.ReplaceAll(printable.Text(s), "\n", `\n`)
}
