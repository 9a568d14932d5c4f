// Package cli is what both binaries share: running a cobra command with signals
// and exit codes.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"glimpse/internal/parallel"
	"glimpse/internal/printable"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	ExitError       = 1
	ExitInterrupted = 130 // stopped by a signal
	// ExitResumable: stopped by a signal with the work so far saved. It is
	// EX_TEMPFAIL of sysexits.h, by which job schedulers know what to start again.
	ExitResumable = 75
)

// resumable marks an error after which the same command goes on.
type resumable struct{ error }

func (r resumable) Unwrap() error { return r.error }

// Resumable marks the error of a command that a signal has ended with its work saved,
// so that Main exits with ExitResumable.
func Resumable(err error) error { return resumable{err} }

// Main runs the command and exits: 0 on success only. The first SIGINT, SIGTERM or
// SIGHUP ends the command's context, so that it stops cleanly; a second one kills it.
func Main(root *cobra.Command) {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // under nohup the end of the terminal ends nothing
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // the second one has its usual effect
	root.SilenceErrors, root.SilenceUsage = true, true
	err := root.ExecuteContext(ctx)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case interrupted && errors.Is(err, context.Canceled):
		fmt.Fprintf(os.Stderr, "%s: stopped by a signal: %s\n", root.Name(), printable.Text(err.Error()))
		if errors.As(err, new(resumable)) {
			os.Exit(ExitResumable)
		}
		os.Exit(ExitInterrupted)
	default:
		// Errors of the package train begin with its name, which is also the command's.
		fmt.Fprintf(os.Stderr, "%s: %s\n", root.Name(), printable.Text(strings.TrimPrefix(err.Error(), root.Name()+": ")))
		os.Exit(ExitError)
	}
}

// SetThreads bounds the threads of the CPU backend; 0 keeps all cores.
func SetThreads(n int) error {
	if n < 0 || n > 4096 {
		return fmt.Errorf("threads: got %d, want 0 (all cores) to 4096", n)
	}
	if n > 0 {
		parallel.SetThreads(n)
	}
	return nil
}
