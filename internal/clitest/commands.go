package clitest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"glimpse/internal/commands"

	"github.com/spf13/cobra"
)

// RunCommands runs every command of the program that messages print, in a folder of its own, with stand-ins for what is the
// reader's by the name of its place, and with further arguments by the command, which shorten it.
func RunCommands(t *testing.T, program string, places map[string]string, more map[string][]string, run func(args []string) error) {
	t.Chdir(t.TempDir())
	for _, line := range commands.All(program) {
		var values []string
		for _, name := range line.Places() {
			value, ok := places[name]
			if !ok {
				t.Errorf("%s: no stand-in for %q", line.With(), name)
			}
			values = append(values, name, value)
		}
		args := strings.Fields(line.With(values...))[1:]
		if err := run(append(args, more[args[0]]...)); err != nil {
			t.Errorf("%s %s: %v", program, strings.Join(args, " "), err)
		}
	}
}

// CheckMentions reads the texts of all sources for the program's commands: those that are named exist, with their flags, and none is
// written out, which package commands is for. What help texts have as examples is left out: scripts/check_readme.sh runs those.
func CheckMentions(t *testing.T, root *cobra.Command) {
	top, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`\b` + root.Name() + ` ([a-z]+)((?: --?[a-z][a-z-]*)?)`)
	written := regexp.MustCompile(`^ --?[a-z][a-z-]*[ =](?:$|%|[A-Z{]|[^ ]+ --?[a-z])`)
	files, mentions := 0, 0
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || slices.Contains([]string{"testdata", "out", "bin"}, name)) {
				return filepath.SkipDir
			}
			if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil && path != top { // another module
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), filepath.Join("internal", "commands")) {
			return nil
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files++
		examples := map[ast.Node]bool{}
		ast.Inspect(file, func(n ast.Node) bool {
			if kv, ok := n.(*ast.KeyValueExpr); ok {
				if key, ok := kv.Key.(*ast.Ident); ok && strings.EqualFold(key.Name, "example") {
					examples[kv.Value] = true
				}
			}
			if examples[n] {
				return false
			}
			literal, ok := n.(*ast.BasicLit)
			if !ok || literal.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(literal.Value)
			if err != nil {
				return true
			}
			end := ""
			if strings.HasSuffix(text, " ") { // a value follows
				end = " "
			}
			text = strings.Join(strings.Fields(text), " ") + end
			for _, at := range named.FindAllStringSubmatchIndex(text, -1) {
				name, flag := text[at[2]:at[3]], strings.TrimSpace(text[at[4]:at[5]])
				place := fset.Position(n.Pos())
				c, _, err := root.Find([]string{name})
				if err != nil || c == root {
					if flag != "" {
						t.Errorf("%s: %q: %s has no command %s", place, text[at[0]:at[1]], root.Name(), name)
					}
					continue // a sentence
				}
				mentions++
				if flag != "" && c.Flags().Lookup(strings.TrimLeft(flag, "-")) == nil && c.Flags().ShorthandLookup(strings.TrimLeft(flag, "-")[:1]) == nil {
					t.Errorf("%s: %q: %s %s has no flag %s", place, text[at[0]:at[1]], root.Name(), name, flag)
				}
				if written.MatchString(text[at[3]:]) {
					t.Errorf("%s: %q: want a line of package commands, which is run by a test", place, text[at[0]:min(len(text), at[1]+40)])
				}
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 100 || mentions < 3 {
		t.Errorf("%d files with %d commands were read: the walk does not see the repository", files, mentions)
	}
}
