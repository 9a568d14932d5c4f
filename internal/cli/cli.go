// Package cli is what both binaries share: running a cobra command with signals
// and exit codes.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"glimpse/internal/parallel"
	"glimpse/internal/printable"
	"glimpse/internal/progress"
	"glimpse/internal/signals"
	"glimpse/internal/stdin"
	"glimpse/internal/terminal"

	"github.com/spf13/cobra"
)

// Main runs the command and exits: 0 on success only. The first SIGINT, SIGTERM or
// SIGHUP ends the command's context, so that it stops cleanly; a second one kills it. A
// command may take interrupts for itself with signals.OnInterrupt.
//
// Standard error shows what a terminal would obey instead of handing it on, into a log
// as on a terminal. Standard output is data: it does so on a terminal only.
func Main(root *cobra.Command) {
	ctx, stop := signals.Notify(context.Background())
	root.SilenceErrors, root.SilenceUsage = true, true
	root.SetErr(progress.Stderr)
	flush := setOut(root, os.Stdout, terminal.Is(os.Stdout))
	err := errors.Join(root.ExecuteContext(ctx), flush())
	stdin.Standard.Remove()
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errSilent):
		os.Exit(1)
	case interrupted && errors.Is(err, context.Canceled):
		progress.Stderr.Error(root.Name() + ": stopped by a signal" + besidesCancelled(err))
		os.Exit(signals.ExitCode(err))
	default:
		// Errors of the package train begin with its name, which is also the command's.
		progress.Stderr.Error(root.Name() + ": " + strings.TrimPrefix(err.Error(), root.Name()+": "))
		os.Exit(1)
	}
}

// besidesCancelled is what an error says but for what the signal did, with a colon before it.
func besidesCancelled(err error) string {
	var lines []string
	for line := range strings.SplitSeq(err.Error(), "\n") {
		line = strings.TrimSuffix(strings.TrimSuffix(line, context.Canceled.Error()), ": ")
		if line != "" {
			lines = append(lines, line)
		}
	}
	if lines == nil {
		return ""
	}
	return ": " + strings.Join(lines, "\n")
}

// setOut sets the command's standard output; flush ends it.
func setOut(root *cobra.Command, out io.Writer, terminal bool) (flush func() error) {
	if !terminal {
		root.SetOut(out)
		return func() error { return nil }
	}
	shown := printable.NewWriter(out)
	root.SetOut(shown)
	return shown.Flush
}

// WriteJSON writes a value to a command's output.
func WriteJSON(cmd *cobra.Command, v any) error {
	e := json.NewEncoder(cmd.OutOrStdout())
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// SetThreads bounds the threads of the CPU backend; 0 keeps GOMAXPROCS, which follows the limits of control groups.
func SetThreads(n int) error {
	if n < 0 || n > 4096 {
		return fmt.Errorf("threads: got %d, want 0 (all processors that may be used) to 4096", n)
	}
	if n > 0 {
		parallel.SetThreads(n)
	}
	return nil
}
