package cli

import (
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"

	"glimpse/internal/suggest"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagError says in plain words what is wrong with a command line.
func flagError(c *cobra.Command, err error) error {
	var (
		missing *pflag.NotExistError
		bare    *pflag.ValueRequiredError
		invalid *pflag.InvalidValueError
		syntax  *pflag.InvalidSyntaxError
	)
	help := fmt.Sprintf("see \"%s --help\"", c.CommandPath())
	switch {
	case errors.As(err, &missing):
		written, dashes := missing.GetSpecifiedName(), "--"
		if short := missing.GetSpecifiedShortnames(); short != "" {
			written, dashes = short, "-"
		}
		if name, ok := suggest.Nearest(written, flagNames(c)); ok {
			return fmt.Errorf("%s: unknown flag %s%s; did you mean --%s? %s", c.Name(), dashes, written, name, help)
		}
		return fmt.Errorf("%s: unknown flag %s%s; %s", c.Name(), dashes, written, help)
	case errors.As(err, &bare):
		f := bare.GetFlag()
		_, does := pflag.UnquoteUsage(f)
		return fmt.Errorf("%s: --%s: got no value, want %s: %s; %s", c.Name(), f.Name, wanted(f), does, help)
	case errors.As(err, &invalid):
		f := invalid.GetFlag()
		want := wanted(f)
		if want == "one" { // a type of ours, which says itself what it takes
			return fmt.Errorf("%s: --%s: %s", c.Name(), f.Name, strings.TrimPrefix(invalid.Unwrap().Error(), f.Name+": "))
		}
		if tooLarge(f, invalid.GetValue()) {
			return fmt.Errorf("%s: --%s: got %.40q, which is too large a number", c.Name(), f.Name, invalid.GetValue())
		}
		return fmt.Errorf("%s: --%s: got %.40q, want %s", c.Name(), f.Name, invalid.GetValue(), want)
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: got %.40q, want a flag as --NAME or --NAME=VALUE; %s", c.Name(), syntax.GetSpecifiedFlag(), help)
	}
	return fmt.Errorf("%s: %w", c.Name(), err)
}

// flagNames are the names of all flags that the command takes.
func flagNames(c *cobra.Command) []string {
	var names []string
	c.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	})
	return names
}

// tooLarge tells that a flag would take the value if the number were smaller.
func tooLarge(f *pflag.Flag, value string) bool {
	switch f.Value.Type() {
	case "bool":
		return false
	case "float", "float64":
		_, err := strconv.ParseFloat(value, 64)
		return errors.Is(err, strconv.ErrRange)
	}
	n, ok := new(big.Int).SetString(value, 0)
	return ok && !n.IsInt64() && (n.Sign() > 0 || f.Value.Type() != "uint64")
}

// wanted is what a flag of a type of pflag takes.
func wanted(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int", "int64":
		return "a whole number"
	case "uint64":
		return "a whole number, 0 or more"
	case "float", "float64":
		return "a number"
	case "bool":
		return "true or false"
	case "intSlice":
		return "whole numbers, comma-separated"
	}
	return "one"
}
