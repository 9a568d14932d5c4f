//go:build unix

package terminaltest

import "syscall"

// controlling has standard input be the controlling terminal, so that Ctrl-C is a signal.
func controlling() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setsid: true, Setctty: true}
}
