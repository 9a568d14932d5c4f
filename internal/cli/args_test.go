package cli

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestArgs(t *testing.T) {
	cmd := &cobra.Command{Use: "export"}
	for _, c := range []struct {
		names, args []string
		want        string // "" is none
	}{
		{nil, nil, ""},
		{nil, []string{"hello"}, `export: got the argument "hello", want none, only flags; see "export --help"`},
		{[]string{"RUN", "TARGET"}, []string{"a", "b"}, ""},
		{[]string{"RUN", "TARGET"}, []string{"a"}, `export: got the argument "a", want RUN TARGET; see "export --help"`},
		{[]string{"RUN"}, nil, `export: got no argument, want RUN; see "export --help"`},
		{[]string{"[CONFIG]"}, nil, ""},
		{[]string{"[CONFIG]"}, []string{"a", "b\x1b"}, `export: got the arguments "a" "b\x1b", want [CONFIG]; see "export --help"`},
	} {
		err := Args(c.names...)(cmd, c.args)
		if got := ""; err != nil {
			if got = err.Error(); got != c.want {
				t.Errorf("%v of %v: error %q, want %q", c.args, c.names, got, c.want)
			}
		} else if c.want != "" {
			t.Errorf("%v of %v: no error, want %q", c.args, c.names, c.want)
		}
	}
}
