package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noPlainWord are words of libraries, and of files that nobody asked for.
var noPlainWord = regexp.MustCompile(`strconv|context canceled|accepts \d|invalid syntax|\.tmp-|\.lock\b|unmarshal|cannot parse|(^| )json: |(^| )yaml: |time: invalid|nil pointer|goroutine|pflag|already exists: file|stat \.:`)

// TestPlainErrors: whatever is wrong with a command line is said without such words, by every
// command and every flag.
func TestPlainErrors(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("file", []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("folder", 0o755); err != nil {
		t.Fatal(err)
	}
	check := func(args ...string) {
		t.Helper()
		_, _, err := execute(t, t.Context(), args...)
		if err == nil {
			t.Errorf("%q: no error", args)
		} else if at := noPlainWord.FindString(err.Error()); at != "" {
			t.Errorf("%q: %q in %q", args, at, err)
		}
	}
	for _, c := range newRoot().Commands() {
		if c.Hidden || c.Name() == "help" {
			continue
		}
		check(c.Name(), "--nosuch")
		if c.Name() != "report" { // which takes any number
			check(c.Name(), "a", "b", "c")
		}
		c.Flags().VisitAll(func(f *pflag.Flag) { checkFlag(c, f, check) })
	}
	for _, line := range plainLines {
		check(strings.Fields(line)...)
	}
	if left, _ := filepath.Glob(".*"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func checkFlag(c *cobra.Command, f *pflag.Flag, check func(args ...string)) {
	switch f.Value.Type() {
	case "string", "stringArray", "strings", "stringSlice":
		check(c.Name(), "--"+f.Name) // without a value
	case "float", "float64":
		check(c.Name(), "--"+f.Name+"=zz")
	default:
		for _, value := range []string{"zz", "99999999999999999999999", ""} {
			check(c.Name(), "--"+f.Name+"="+value)
		}
	}
}

// plainLines are wrong in what their values name.
var plainLines = []string{
	"run nosuch", "run file", "run folder", "sweep file", "plan nosuch", "plan file", "generate nosuch", "generate file",
	"generate --out nosuch/a --samples 1", "generate --out folder --samples 1", "generate --out a --prompts nosuch", "generate --out a --prompts file", "generate --out a --shard 3/2", "generate --out a --field zz --prompts file",
	"judgeq --data nosuch -o new", "judgeq --data file -o new", "judgeq --data folder -o new", "judgeq -o folder", "judgeq --steps 1 -o new --log nosuch/a", "judgeq --init-token x -o new",
	"lookahead --modules zz -o new", "lookahead --model folder -o new", "lookahead --device zz -o new", "export nosuch new", "export file new", "export folder new", "completion ksh",
}
