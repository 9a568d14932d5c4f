package terminal_test

import (
	"os"
	"testing"

	"glimpse/internal/terminal"
	"glimpse/internal/terminaltest"
)

// A rank has no terminal, since its launcher may write to a file what it gets from one.
func TestRanksHaveNoTerminal(t *testing.T) {
	_, tty := terminaltest.Open(t, 101)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	defer write.Close()
	for _, c := range []struct {
		ranks   string
		f       *os.File
		is      bool
		columns int
	}{
		{"", tty, true, 101},
		{"1", tty, true, 101},
		{"2", tty, false, 0},
		{"", write, false, 0},
		{"", nil, false, 0},
	} {
		t.Setenv("OMPI_COMM_WORLD_SIZE", c.ranks)
		t.Setenv("OMPI_COMM_WORLD_RANK", "0")
		if is, columns := terminal.Is(c.f), terminal.Columns(c.f); is != c.is || columns != c.columns {
			t.Errorf("of %q ranks, %v: a terminal %v of %d columns, want %v of %d", c.ranks, c.f, is, columns, c.is, c.columns)
		}
	}
	_, tty = terminaltest.Open(t, 0)
	t.Setenv("OMPI_COMM_WORLD_SIZE", "")
	if got := terminal.Columns(tty); got != 80 {
		t.Errorf("a terminal that does not tell its width has %d columns, want 80", got)
	}
}
