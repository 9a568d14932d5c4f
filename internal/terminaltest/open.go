//go:build unix

package terminaltest

import (
	"os"
	"testing"

	"github.com/containerd/console"
	"golang.org/x/sys/unix"
)

// Open opens a pseudo-terminal of so many columns, 0: it does not tell its size. What is
// written to tty, the end of programs, is read from master, and the other way round. Both
// are closed at the end of the test, which is skipped where there are no pseudo-terminals.
func Open(t *testing.T, columns int) (master, tty *os.File) {
	t.Helper()
	opened, path, err := console.NewPty()
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer opened.Close()
	if master, err = pollable(opened); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if tty, err = os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	if columns > 0 {
		resize(t, tty, columns)
	}
	return master, tty
}

// pollable is a file of its own for the same end of a terminal, whose Close ends a Read: those
// of a file that blocks can wait for ever.
func pollable(f console.Console) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// resize takes the end of programs: asking the other one for its descriptor would make it block.
func resize(t *testing.T, tty *os.File, columns int) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 40, Col: uint16(columns)}); err != nil {
		t.Fatalf("set the size of a terminal: %v", err)
	}
}
