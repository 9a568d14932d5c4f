package printable

import (
	"os"
	"strings"
	"testing"

	"glimpse/internal/terminaltest"
)

// TestHeading: each line of a heading is bold by itself on a terminal with colours, what a
// terminal would obey in it is shown there, and elsewhere nothing is added.
func TestHeading(t *testing.T) {
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	master, tty := terminaltest.Open(t, 80)
	read := func() string {
		buffer := make([]byte, 256)
		n, err := master.Read(buffer)
		if err != nil {
			t.Fatal(err)
		}
		return strings.ReplaceAll(string(buffer[:n]), "\r\n", "\n")
	}
	const text, want = "POLICY\n\nRULE \x1b[2J\n", "\x1b[1mPOLICY\x1b[0m\n\n\x1b[1mRULE \\x1b[2J\x1b[0m\n"
	if err := Heading(tty, text); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != want {
		t.Errorf("file: %q, want %q", got, want)
	}
	if err := Heading(NewWriter(tty), text); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != want {
		t.Errorf("writer: %q, want %q", got, want)
	}
	var plain strings.Builder
	Heading(&plain, text)
	Heading(NewWriter(&plain), text)
	if want := text + Text(text); plain.String() != want {
		t.Errorf("no terminal: %q, want %q", plain.String(), want)
	}
	for _, off := range []string{"NO_COLOR=1", "TERM=dumb", "TERM="} {
		name, value, _ := strings.Cut(off, "=")
		before := os.Getenv(name)
		os.Setenv(name, value)
		if Coloured(tty) {
			t.Errorf("%s: coloured", off)
		}
		os.Setenv(name, before)
	}
	if !Coloured(tty) || Coloured(nil) {
		t.Error("want colours on a terminal, and on nothing else")
	}
}
