package progress

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// Messages of other goroutines come as whole lines between those of a bar.
func TestOutputIsShared(t *testing.T) {
	var text strings.Builder // which "go test -race" finds two writers of
	out := NewOutput(&text)
	if NewOutput(out) != out {
		t.Error("an Output was wrapped again")
	}
	bar := New(out, "steps", 200)
	var all sync.WaitGroup
	all.Go(func() {
		for range 200 {
			bar.Add(1)
		}
	})
	all.Go(func() {
		for i := range 200 {
			fmt.Fprintf(out, "message %d\n", i)
		}
	})
	all.Wait()
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	for _, line := range lines {
		if !strings.HasPrefix(line, "message ") && !strings.Contains(line, "steps") {
			t.Fatalf("line %q is neither a message nor the bar's", line)
		}
	}
	if len(lines) != 209 { // the bar shows nine tenths
		t.Errorf("%d lines, want 209", len(lines))
	}
}

// On a terminal a message replaces the bar's line, which the next one draws again.
func TestMessageOverBar(t *testing.T) {
	var text strings.Builder
	out := NewOutput(&text)
	out.drawBar("bar 1", false)
	fmt.Fprintln(out, "message")
	out.drawBar("bar 2", true)
	fmt.Fprintln(out, "after")
	const want = "\rbar 1\x1b[J\r" + "\r\x1b[J" + "message\n" + "\rbar 2\x1b[J\n" + "after\n"
	if text.String() != want {
		t.Errorf("got %q, want %q", text.String(), want)
	}
}

// Messages and a bar's line hand nothing on that a terminal would obey.
func TestOutputIsPrintable(t *testing.T) {
	var text strings.Builder
	out := NewOutput(&text)
	fmt.Fprintf(out, "%s: 3 pairs\n", "a\x1b[2J\u202e")
	bar := New(out, "steps", 1)
	bar.SetText("loss of b\x1b[31m\u2066")
	bar.Done()
	bar = New(out, "steps", 1, ofWidth(200))
	bar.SetText("c\u202e")
	bar.Done()
	got := text.String()
	for _, want := range []string{"a\\x1b[2J\\u202e: 3 pairs\n", `loss of b [31m\u2066`, `c\u202e`} {
		if !strings.Contains(got, want) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
	got = strings.ReplaceAll(got, "\x1b[J", "") // the bar's own
	if strings.ContainsAny(got, "\x1b\u202e\u2066") {
		t.Errorf("a terminal obeys %q", got)
	}
}
