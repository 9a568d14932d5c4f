package progress

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A bar on a real (pseudo-)terminal finds out by itself what it is and how wide.
func TestRecognisesATerminal(t *testing.T) {
	master, slave := openTerminal(t)
	if err := unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 30}); err != nil {
		t.Fatalf("set the terminal's size: %v", err)
	}
	b := New(slave, "steps", 10)
	b.Add(5)
	b.Done()
	buf := make([]byte, 4096)
	n, err := master.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(buf[:n]), "\x1b[K")
	if want := "\r[==========>         ]  5/10 "; first != want { // 29 characters
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
	if strings.ContainsAny(string(got), "\r\x1b") || strings.Count(string(got), "\n") != 1 {
		t.Errorf("a file got %q, want one plain line", got)
	}
}

func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatalf("unlock the terminal: %v", err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatalf("the terminal's number: %v", err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
