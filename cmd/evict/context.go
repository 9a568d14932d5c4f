package main

import (
	"fmt"

	"glimpse/eviction"
	"glimpse/internal/cli"
	"glimpse/model"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// contextFlag is a file of "evict compress" that a prompt begins with.
type contextFlag struct {
	path string
	file *eviction.ContextFile // nil: none was given
}

func (c *contextFlag) addFlag(f *pflag.FlagSet, what string) {
	f.StringVar(&c.path, "context", "", "file of evict compress that "+what)
}

// openFile opens the file that was given, for s: what was decided when it was made cannot be asked for.
func (c *contextFlag) openFile(cmd *cobra.Command, s *setup) (err error) {
	if c.path == "" {
		return nil
	}
	given := cli.GivenFlags(cmd.Flags())
	for _, flag := range []string{"policy", "budget", "adapter", "heads", "set", "draft", "pattern", "compare"} {
		if cmd.Flags().Lookup(flag) != nil && given.Given(flag) {
			return fmt.Errorf("%s: --%s: the context was evicted when it was made, and nothing that follows is", cmd.Name(), flag)
		}
	}
	if c.file, err = eviction.OpenContext(c.path); err != nil {
		return fmt.Errorf("%s: --context: %w", cmd.Name(), err)
	}
	if s.Policies = "full"; !given.Given("cache-dtype") {
		s.CacheDType = c.file.CacheDType
	}
	return nil
}

// read is the context in a model's memory; nil where none was given. The file is closed.
func (c *contextFlag) read(cmd *cobra.Command, m *model.Model) (*eviction.Context, error) {
	if c.file == nil {
		return nil, nil
	}
	defer c.file.Close()
	read, err := c.file.Read(cmd.Context(), m)
	if err != nil {
		return nil, fmt.Errorf("%s: --context %s: %w", cmd.Name(), c.path, err)
	}
	return read, nil
}
