package progress

import (
	"os"
	"strings"
	"testing"

	"glimpse/internal/terminaltest"
)

// A bar on a real (pseudo-)terminal finds out by itself what it is and how wide.
func TestRecognisesATerminal(t *testing.T) {
	master, tty := terminaltest.Open(t, 30)
	b := New(tty, "steps", 10)
	b.Add(5)
	b.Done()
	buf := make([]byte, 4096)
	n, err := master.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(buf[:n]), "\x1b[J")
	if want := "\r 5/10 steps   50%  "; !strings.HasPrefix(first, want) || len(first) > 1+29 {
		t.Errorf("first line on a terminal of 30 columns %q, want %q", first, want)
	}
}

// A file is not a terminal.
func TestRecognisesAFile(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := New(f, "steps", 10)
	b.Add(5)
	b.Done()
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(string(got), "\r\x1b") || strings.Count(string(got), "\n") != 2 {
		t.Errorf("a file got %q, want two plain lines", got)
	}
}
