//go:build unix

package terminaltest

import (
	"os"
	"syscall"
)

// controlling has standard input be the controlling terminal, so that Ctrl-C is a signal.
func controlling() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true}
}

// pollable is a file for the same end of a terminal, whose Close ends a Read: those of a file
// that blocks can wait for ever. The given file is closed.
func pollable(f *os.File) (*os.File, error) {
	defer f.Close()
	syscall.ForkLock.RLock()
	fd, err := syscall.Dup(int(f.Fd()))
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, os.NewSyscallError("dup", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

// quit has a Go program write what its goroutines do, and end.
func quit(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }
