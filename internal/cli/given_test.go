package cli

import (
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// TestGivenKnowsTheFlags: the name of a flag that the command does not have is a mistake and not "no".
func TestGivenKnowsTheFlags(t *testing.T) {
	f := pflag.NewFlagSet("x", pflag.ContinueOnError)
	f.Int("steps", 1, "")
	f.Int("rows", 1, "")
	if err := f.Parse([]string{"--rows", "3"}); err != nil {
		t.Fatal(err)
	}
	given := GivenFlags(f)
	if given.Given("steps") || !given.Given("rows") {
		t.Error("want --rows alone to be given")
	}
	defer func() {
		if text, _ := recover().(string); !strings.Contains(text, "flag --stesp") {
			t.Errorf("got %q, want a panic that names the flag", text)
		}
	}()
	given.Given("stesp")
}

// TestCommandsAskGiven: the programs ask Given alone whether a flag was given, which knows whether there
// is such a flag.
func TestCommandsAskGiven(t *testing.T) {
	unchecked := regexp.MustCompile(`\.Changed\(|\bLookup\("[a-z0-9-]+"\)\.Changed`)
	files := 0
	err := fs.WalkDir(os.DirFS("../.."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || !strings.HasPrefix(path, "cmd/") {
			return err
		}
		files++
		text, err := os.ReadFile("../../" + path)
		if where := unchecked.FindIndex(text); where != nil {
			t.Errorf("%s:%d: asks pflag whether a flag was given, want cli.GivenFlags", path, 1+strings.Count(string(text[:where[0]]), "\n"))
		}
		return err
	})
	if err != nil || files < 20 {
		t.Errorf("read %d files: %v", files, err)
	}
}
