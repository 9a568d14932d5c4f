package stdin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

// Whatever comes is passed on, and a read that waits ends with the context.
func TestReader(t *testing.T) {
	text := strings.Repeat("a line of text\n", 5000)
	if got, err := io.ReadAll(NewReader(t.Context(), strings.NewReader(text))); err != nil || string(got) != text {
		t.Fatalf("%d bytes (%v), want %d", len(got), err, len(text))
	}
	pipe, end := io.Pipe()
	defer end.Close()
	ctx, cancel := context.WithCancel(t.Context())
	in := bufio.NewScanner(NewReader(ctx, pipe))
	go end.Write([]byte("first\n"))
	if !in.Scan() || in.Text() != "first" {
		t.Fatalf("got %q (%v), want the first line", in.Text(), in.Err())
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	begin := time.Now()
	if in.Scan() || !errors.Is(in.Err(), context.Canceled) {
		t.Fatalf("got %q (%v), want a cancelled read", in.Text(), in.Err())
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the read ended after %v", took)
	}
}
