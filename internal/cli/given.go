package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Given are the flags that the user set, with their values, so that they can be said again
// over a preset and a file.
type Given []givenFlag

type givenFlag struct {
	flag   *pflag.Flag
	values []string
}

// GivenFlags notes what the command line says.
func GivenFlags(f *pflag.FlagSet) Given {
	var out Given
	f.Visit(func(x *pflag.Flag) {
		g := givenFlag{flag: x, values: []string{x.Value.String()}}
		if list, ok := x.Value.(pflag.SliceValue); ok {
			g.values = list.GetSlice()
		}
		out = append(out, g)
	})
	return out
}

// Repeat sets them again.
func (all Given) Repeat() error {
	for _, g := range all {
		if list, ok := g.flag.Value.(pflag.SliceValue); ok {
			if err := list.Replace(g.values); err != nil {
				return err
			}
			continue
		}
		if err := g.flag.Value.Set(g.values[0]); err != nil {
			return fmt.Errorf("--%s: %w", g.flag.Name, err)
		}
	}
	return nil
}

// Given tells that the command line has the flag.
func (all Given) Given(name string) bool {
	return slices.ContainsFunc(all, func(g givenFlag) bool { return g.flag.Name == name })
}
