package cli

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestHelpAll: --help has the everyday flags, --help-all every flag and the details, whatever else the command
// line lacks; a flag that nobody has marked is in the second only.
func TestHelpAll(t *testing.T) {
	run := func(args ...string) string {
		t.Helper()
		root := &cobra.Command{Use: "tool", Short: "Do things", SilenceErrors: true, SilenceUsage: true}
		sub := &cobra.Command{Use: "work FILE", Long: "Work on a file.", Annotations: Details("Files have rows."), Args: Args("FILE"), RunE: func(*cobra.Command, []string) error { return nil }}
		sub.Flags().Int("rows", 4, "rows of the file")
		sub.Flags().Bool("deep", true, "work on folders, too")
		sub.Flags().String("key", "", "key of the file")
		if err := sub.MarkFlagRequired("key"); err != nil {
			t.Fatal(err)
		}
		Everyday(sub, "rows")
		root.AddCommand(sub)
		Setup(root, nil)
		var out strings.Builder
		root.SetOut(&out)
		root.SetArgs(args)
		if err := root.Execute(); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return out.String()
	}
	for _, x := range []struct {
		line     string
		has, not []string
	}{
		{"work --help", []string{"--rows int   rows of the file (default 4)", "\n\"tool work --help-all\" shows 9 more flags and the details.\n"}, []string{"--deep", "--key", "--threads", "Files have rows", "Defaults are"}},
		{"work --help-all", []string{"--rows int", "--deep                work on folders, too (default true)", "--threads int", "--help-all ", "Work on a file.\n\nFiles have rows.\n", "Defaults are also"}, []string{"more flags"}},
		{"work --help-all --rows 3 a b c", []string{"--deep"}, nil},
		{"help work", []string{"--rows int"}, []string{"--deep"}},
		{"help work --help-all", []string{"--deep"}, []string{"more flags"}},
		{"--help-all", []string{"--threads int"}, []string{"more flags"}},
	} {
		out := run(strings.Fields(x.line)...)
		for _, want := range x.has {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in\n%s", x.line, want, out)
			}
		}
		for _, not := range x.not {
			if strings.Contains(out, not) {
				t.Errorf("%s: %q in\n%s", x.line, not, out)
			}
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("a flag that does not exist was marked")
		}
	}()
	Everyday(&cobra.Command{}, "nosuch")
}
