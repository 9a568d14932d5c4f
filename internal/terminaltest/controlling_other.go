//go:build !unix

package terminaltest

import "syscall"

func controlling() *syscall.SysProcAttr { return nil }
