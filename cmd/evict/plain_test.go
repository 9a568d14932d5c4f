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
		_, _, err := execute(t, args...)
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
	"eval --task section --plot nosuch/a.png", "eval --task section --needle-plot nosuch/a.png", "eval --task section --json-out nosuch/a", "eval --task section --table-out nosuch/a",
	"eval --task section --table-out folder", "eval --task section --out file", "eval --task section --data nosuch", "eval --task section --shard 3/2 --out new", "eval --task section --shard zz --out new",
	"eval --config nosuch", "eval --config file", "eval --config folder", "eval --data file", "eval --data nosuch", "eval --data folder", "eval --adapter nosuch", "eval --adapter file", "eval --task-option x",
	"eval --task niah --task-option niah.lengths=x", "eval --task latency --task-option latency.memory=x", "eval --budget zz", "eval --policy zz", "eval --set zz",
	"run --example section --adapter folder --policy judgeq", "run --example section --pattern nosuch --policy duoattention", "run --token-ids nosuch", "run --token-ids file", "run --device zz x", "run --model file x", "run --model folder x",
	"inspect --example section --tokens 64 --html nosuch/a.html", "inspect --example section --tokens 64 --npz nosuch/a",
	"patterns --out folder", "report nosuch", "report file", "report folder", "judge nosuch --judge http://localhost:1 --judge-model m", "costs --chip flops=x,bandwidth=1", "costs --model nosuch/x/y", "completion ksh", "tasks zz",
}
