//go:build !unix

package terminaltest

import (
	"os"
	"syscall"
)

func controlling() *syscall.SysProcAttr { return nil }

func pollable(f *os.File) (*os.File, error) { return f, nil }

func quit(p *os.Process) error { return p.Kill() }
