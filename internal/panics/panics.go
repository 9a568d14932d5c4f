// Package panics makes errors of panics, where one is to fail a piece of work and nothing else.
package panics

import (
	"fmt"
	"runtime/debug"
)

// Error is a panic as an error.
type Error struct {
	Value any
	Stack []byte // of the goroutine that panicked
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap is the error that the panic was with, if it was one.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// New makes an error of a value that recover has returned in a deferred function.
func New(value any) *Error { return &Error{value, debug.Stack()} }

// Catch is deferred where a piece of work begins: a panic of it becomes its error.
func Catch(err *error) {
	if v := recover(); v != nil {
		*err = New(v)
	}
}
