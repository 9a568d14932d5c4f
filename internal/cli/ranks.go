package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"glimpse/internal/collective"

	"github.com/spf13/cobra"
)

const onRanks = "ranks" // annotation of commands

// OnRanks marks a command as one that several processes of a launcher may run, and returns it: they work together,
// or each says what it has to.
func OnRanks(c *cobra.Command) *cobra.Command {
	if c.Annotations == nil {
		c.Annotations = make(map[string]string)
	}
	c.Annotations[onRanks] = "true"
	return c
}

// errSilent is the error of a command that has nothing to say, since another rank says it.
var errSilent = errors.New("another rank says why")

// checkRanks is an error where a launcher has started several processes of a command that knows nothing of
// ranks: it would do everything once for each of them.
func checkRanks(c *cobra.Command, env func(string) string) error {
	by, rank, size := collective.Launched(env)
	if size == 1 || c.Annotations[onRanks] != "" || c.Parent() != nil && c.Parent().Annotations[onRanks] != "" || !c.HasParent() {
		return nil
	}
	return launchedError(c, by, rank, size, "")
}

// ShareOutput is an error where a launcher has started several processes of a command that share their work through
// its output, and there is none.
func ShareOutput(c *cobra.Command, out string) error {
	if by, rank, size := collective.Launched(os.Getenv); size > 1 && out == "" {
		return launchedError(c, by, rank, size, ", or with --out, through which they share the work")
	}
	return nil
}

func launchedError(c *cobra.Command, by string, rank, size int, or string) error {
	if rank > 0 { // a launcher ends all ranks when the first has ended
		ctx, cancel := context.WithTimeout(c.Context(), 2*time.Second)
		defer cancel()
		<-ctx.Done()
		return errSilent
	}
	return fmt.Errorf("%s: %s has started %d processes, of which each would do the same: start it without %s%s", c.Name(), by, size, by, or)
}
