package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/pflag"
)

// Given are the flags that the user set, with their values, so that they can be said again
// over a preset and a file.
type Given struct {
	of    *pflag.FlagSet
	flags []givenFlag
}

type givenFlag struct {
	flag   *pflag.Flag
	values []string
}

// GivenFlags notes what the command line says.
func GivenFlags(f *pflag.FlagSet) Given {
	out := Given{of: f}
	f.Visit(func(x *pflag.Flag) {
		g := givenFlag{flag: x, values: []string{x.Value.String()}}
		if list, ok := x.Value.(pflag.SliceValue); ok {
			g.values = list.GetSlice()
		}
		out.flags = append(out.flags, g)
	})
	return out
}

// Repeat sets them again.
func (all Given) Repeat() error {
	for _, g := range all.flags {
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

// Given tells that the command line has one of the command's flags. It panics where the command has no
// flag of that name, whose setting would be passed over in silence.
func (all Given) Given(name string) bool {
	if all.of.Lookup(name) == nil {
		panic(fmt.Sprintf("flag --%s: the command has none", name))
	}
	return slices.ContainsFunc(all.flags, func(g givenFlag) bool { return g.flag.Name == name })
}
