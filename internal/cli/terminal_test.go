package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestSetOut: what a command prints is data, byte for byte, but on a terminal, which
// would obey some of it.
func TestSetOut(t *testing.T) {
	const text = "an answer\x1b[2J\x9b\n"
	for terminal, want := range map[bool]string{false: text, true: "an answer\\x1b[2J\\x9b\n"} {
		var out strings.Builder
		cmd := &cobra.Command{Run: func(cmd *cobra.Command, _ []string) { cmd.OutOrStdout().Write([]byte(text)) }}
		cmd.SetArgs(nil)
		flush := setOut(cmd, &out, terminal)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		if err := flush(); err != nil {
			t.Fatal(err)
		}
		if out.String() != want {
			t.Errorf("terminal %v: %q, want %q", terminal, out.String(), want)
		}
	}
}
