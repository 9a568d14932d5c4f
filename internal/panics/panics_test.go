package panics

import (
	"errors"
	"io"
	"strings"
	"testing"
)

// TestCatch: a panic is the error of the work, with the stack that it came from; an error that is panicked with stays one, and
// work that does not panic has its own.
func TestCatch(t *testing.T) {
	work := func(f func() error) (err error) {
		defer Catch(&err)
		return f()
	}
	err := work(func() error { panic("fault") })
	var p *Error
	if !errors.As(err, &p) || p.Error() != "panic: fault" || !strings.Contains(string(p.Stack), "TestCatch") {
		t.Errorf("%v, want a fault with its stack", err)
	}
	if err := work(func() error { panic(io.EOF) }); !errors.Is(err, io.EOF) {
		t.Errorf("%v is not what it panicked with", err)
	}
	if err := work(func() error { return io.EOF }); err != io.EOF {
		t.Errorf("%v, want the error of the work", err)
	}
}
