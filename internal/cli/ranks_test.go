package cli

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// A command that knows nothing of ranks runs in a process alone; of several processes one says why not.
func TestCommandsThatKnowNothingOfRanks(t *testing.T) {
	root, together, alone := &cobra.Command{Use: "evict"}, OnRanks(&cobra.Command{Use: "eval"}), &cobra.Command{Use: "chat"}
	below := &cobra.Command{Use: "below"}
	root.AddCommand(together, alone)
	together.AddCommand(below)
	root.SetContext(t.Context())
	for _, c := range []*cobra.Command{together, alone, below} {
		c.SetContext(t.Context())
	}
	env := func(text string) func(string) string {
		return func(name string) string {
			for _, pair := range strings.Fields(text) {
				if n, v, _ := strings.Cut(pair, "="); n == name {
					return v
				}
			}
			return ""
		}
	}
	const first, second = "OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=0", "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=1"
	for _, c := range []struct {
		command *cobra.Command
		env     string
		want    string
	}{
		{alone, "", ""},
		{alone, "OMPI_COMM_WORLD_SIZE=1 OMPI_COMM_WORLD_RANK=0", ""},
		{alone, first, "chat: mpirun has started 4 processes, of which each would do the same: start it without mpirun"},
		{alone, second, errSilent.Error()},
		{together, first, ""},
		{below, first, ""},
		{root, first, ""}, // prints its help
	} {
		begin := time.Now()
		err := checkRanks(c.command, env(c.env))
		if c.want == "" && err != nil || c.want != "" && (err == nil || err.Error() != c.want) {
			t.Errorf("%s with %q: error %v, want %q", c.command.Name(), c.env, err, c.want)
		}
		if errors.Is(err, errSilent) && time.Since(begin) < time.Second {
			t.Errorf("%s with %q ends before the other rank has said why", c.command.Name(), c.env)
		}
	}
}
