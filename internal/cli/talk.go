package cli

import (
	"fmt"

	"glimpse/internal/progress"
	"glimpse/internal/suggest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var logFormats = []string{"text", "json"}

// talkFlags say what goes to standard error beside errors.
type talkFlags struct {
	quiet, verbose, noProgress bool
	format                     string
}

func (t *talkFlags) bindTalk(f *pflag.FlagSet) {
	f.BoolVarP(&t.quiet, "quiet", "q", false, "print results and errors only")
	f.BoolVarP(&t.verbose, "verbose", "v", false, "also print details, such as the defaults in force")
	f.BoolVar(&t.noProgress, "no-progress", false, "show no progress bars")
	f.StringVar(&t.format, "log-format", "text", "format of standard error: text, or json for one object per line")
}

// applyTalk sets what the command says from now on.
func (t *talkFlags) applyTalk(c *cobra.Command) error {
	talk := progress.Talk{Quiet: t.quiet, Verbose: t.verbose, NoBars: t.noProgress, JSON: t.format == "json"}
	switch {
	case t.quiet && t.verbose:
		return fmt.Errorf("got --quiet and --verbose, want one of them")
	case !talk.JSON && t.format != "text":
		return fmt.Errorf("--log-format: %w", suggest.Unknown("format", t.format, logFormats))
	case talk == progress.Talk{}:
		return nil
	}
	out := progress.NewOutput(c.ErrOrStderr())
	out.SetTalk(talk)
	c.Root().SetErr(out)
	return nil
}
