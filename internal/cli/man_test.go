package cli

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/spf13/cobra"
)

// TestManPages: every command has a page with its flags, and the same commands give the same
// bytes.
func TestManPages(t *testing.T) {
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	write := func() string {
		root := &cobra.Command{Use: "tool", Short: "Do things", SilenceErrors: true, SilenceUsage: true}
		sub := &cobra.Command{Use: "work FILE", Short: "Work on a file", Annotations: Details("Files have rows."), Args: Args("FILE"), RunE: func(*cobra.Command, []string) error { return nil }}
		sub.Flags().Int("rows", 4, "rows of it")
		root.AddCommand(sub)
		Setup(root, nil)
		dir := filepath.Join(t.TempDir(), "man", "man1")
		root.SetOut(io.Discard)
		root.SetArgs([]string{"man", dir})
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	first, second := write(), write()
	for name, want := range map[string]string{"tool.1": "tool-work(1)", "tool-work.1": `\fB--rows\fP=4`, "./tool-work.1": "Files have rows", "tool-completion.1": "completion script"} {
		a, err := os.ReadFile(filepath.Join(first, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(a, []byte(want)) {
			t.Errorf("%s says no %q:\n%s", name, want, a)
		}
		if b, err := os.ReadFile(filepath.Join(second, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is not the same twice: %v", name, err)
		}
	}
	if _, err := os.Stat(filepath.Join(first, "tool-man.1")); err == nil {
		t.Error("the hidden command has a page")
	}
}
