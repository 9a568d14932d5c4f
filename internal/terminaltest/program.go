//go:build unix

package terminaltest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/term"
)

// Program runs on a pseudo-terminal of its own.
type Program struct {
	t           *testing.T
	cmd         *exec.Cmd
	master, tty *os.File
	before      *term.State

	mu     sync.Mutex
	more   chan struct{} // closed with the next output
	screen Screen
	output []byte
	seen   int // of output, by Wait
	done   chan struct{}

	ended chan struct{} // closed with the end of the program
	err   error         // of that
}

// patience is for what a program says or ends with: long, since the race detector on a busy
// machine is slow.
const patience = time.Minute

// Start starts a program on a terminal of so many columns. The test is skipped where there
// are no pseudo-terminals.
func Start(t *testing.T, columns int, cmd *exec.Cmd) *Program {
	t.Helper()
	master, tty := Open(t, columns)
	p := &Program{t: t, cmd: cmd, master: master, tty: tty, more: make(chan struct{}), done: make(chan struct{}), ended: make(chan struct{}), screen: Screen{Columns: columns, Reflow: true}}
	var err error
	if p.before, err = term.GetState(int(tty.Fd())); err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // so that Ctrl-C is a signal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.read()
	go func() {
		defer close(p.ended)
		p.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		tty.Close()
		master.Close()
		<-p.done
	})
	return p
}

func (p *Program) read() {
	defer close(p.done)
	buffer := make([]byte, 4096)
	for {
		n, err := p.master.Read(buffer)
		p.mu.Lock()
		p.screen.Write(buffer[:n])
		p.output = append(p.output, buffer[:n]...)
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Resize changes the width of the window, and the program is told.
func (p *Program) Resize(columns int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.screen.Resize(columns)
	resize(p.t, p.tty, columns)
}

// Type presses keys.
func (p *Program) Type(keys string) {
	p.t.Helper()
	if _, err := p.master.WriteString(keys); err != nil {
		p.t.Fatal(err)
	}
}

// Wait waits for text in what comes after the text that was waited for before.
func (p *Program) Wait(text string) {
	p.t.Helper()
	late, ended := time.After(patience), p.ended
	for {
		p.mu.Lock()
		at, more := bytes.Index(p.output[p.seen:], []byte(text)), p.more
		if at >= 0 {
			p.seen += at + len(text)
		}
		p.mu.Unlock()
		if at >= 0 {
			return
		}
		select {
		case <-more:
		case <-p.done:
			p.t.Fatalf("the terminal ended without %q:\n%s", text, p.Screen())
		case <-ended: // what it wrote may be on its way
			late, ended = time.After(patience/6), nil
		case <-late:
			if ended == nil {
				p.t.Fatalf("the program ended (%v) without %q:\n%s", p.cmd.ProcessState, text, p.Screen())
			}
			p.t.Fatalf("%q did not come:\n%s\n%s", text, p.Screen(), p.stuck())
		}
	}
}

// Screen is what is shown now.
func (p *Program) Screen() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.String()
}

// Output is all that was written, with the sequences that the terminal obeyed.
func (p *Program) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return string(p.output)
}

// stuck says where the program is: what the system knows of its process, and what all its
// goroutines do; asking for it ends the program.
func (p *Program) stuck() string {
	var says strings.Builder
	for _, file := range []string{"status", "wchan", "stack"} {
		// Where there are such files, and they may be read.
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p.cmd.Process.Pid, file)); err == nil {
			fmt.Fprintf(&says, "%s of the process:\n%s\n", file, text)
		}
	}
	before := len(p.Output())
	if err := p.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		fmt.Fprintln(&says, err)
		return says.String()
	}
	for size := -1; size != len(p.Output()); time.Sleep(2 * time.Second) {
		size = len(p.Output())
	}
	fmt.Fprintf(&says, "after SIGQUIT it writes:\n%s", p.Output()[before:])
	return says.String()
}

// Kill ends the program at once; nothing is said about how it leaves the terminal.
func (p *Program) Kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// Column is the column of the cursor, from 0.
func (p *Program) Column() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.column()
}

// Lines are the lines shown, each as a whole even where the window is too narrow for it.
func (p *Program) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	for _, l := range p.screen.lines {
		lines = append(lines, shown(l))
	}
	return lines
}

// Exit waits for the program's end and returns its exit code, -1 after a signal. It is an
// error where the terminal is left in another mode than before, in the middle of a line, or
// with a sequence on it that the Screen does not know.
func (p *Program) Exit() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the program does not end:\n%s\n%s", p.Screen(), p.stuck())
	}
	if exit := (*exec.ExitError)(nil); p.err != nil && !errors.As(p.err, &exit) {
		p.t.Fatal(p.err)
	}
	if after, err := term.GetState(int(p.tty.Fd())); err != nil || *after != *p.before {
		p.t.Errorf("the terminal is left in another mode (%v)", err)
	}
	const mark = "\u2404" // comes after all output
	if _, err := p.tty.WriteString(mark); err != nil {
		p.t.Fatal(err)
	}
	p.Wait(mark)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.screen.column() != 1 || p.screen.Err() != nil {
		p.t.Errorf("the screen is left in the middle of a line (%v):\n%s", p.screen.Err(), &p.screen)
	}
	return p.cmd.ProcessState.ExitCode()
}
