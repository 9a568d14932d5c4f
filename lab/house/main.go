// House counts the house: lines of the product, tests and scripts, words of the documents, names that several
// functions bear, comment lines that hang, functions of many branches.
//
//	go -C lab run ./house [FOLDER]
//
// FOLDER is a checkout, by default the one around this module. Test helpers (packages whose names end in "test") count as
// tests; generated files (https://go.dev/s/generatedcode) and the lab do not count as the product.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// hanging are words on which a second sentence hangs.
var hanging = regexp.MustCompile(`\b(of which|those of|of what|by which|by what)\b`)

// heart are the folders that the product exists for.
var heart = []string{"eviction", "lora", "softtokens", "losses", "autodiff", "training", "model/runner", "model/kvcache"}

type counts struct {
	product, heart, tests, generated, lab int // lines of Go
	comments, hang                        int // comment lines of the product
	files, functions, branchy             int
	attends                               []string
	bearers                               map[string]int // how many functions and methods bear a name, outside tests
	worst                                 []string
}

func main() {
	root := ".."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	if err := run(root); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	names, err := tracked(root)
	if err != nil {
		return err
	}
	c := counts{bearers: map[string]int{}}
	var scripts, scriptFiles, words, configs int
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		switch ext := path.Ext(name); {
		case ext == ".go":
			if err := c.read(name, data); err != nil {
				return err
			}
		case strings.HasPrefix(name, "scripts/") && !bytes.ContainsRune(data, 0):
			scripts += lines(data)
		case ext == ".md" && strings.HasPrefix(name, "docs/"):
			words += len(bytes.Fields(data))
		case ext == ".yaml" && (strings.HasPrefix(name, "configs/") || strings.HasPrefix(name, "lab/")):
			configs++
		}
		if strings.HasPrefix(name, "scripts/") {
			scriptFiles++
		}
	}
	var five []string
	for name, n := range c.bearers {
		if n >= 5 {
			five = append(five, fmt.Sprintf("%s ×%d", name, n))
		}
	}
	slices.SortFunc(five, func(a, b string) int { return count(b) - count(a) })
	fmt.Printf("Go of the product         %7d lines in %d files; the heart %d\n", c.product, c.files, c.heart)
	fmt.Printf("Go of tests               %7d lines\n", c.tests)
	fmt.Printf("Go, generated             %7d lines\n", c.generated)
	fmt.Printf("Go of the lab             %7d lines\n", c.lab)
	fmt.Printf("scripts/                  %7d lines in %d files\n", scripts, scriptFiles)
	fmt.Printf("docs/                     %7d words\n", words)
	fmt.Printf("configurations            %7d files of YAML\n", configs)
	fmt.Printf("functions                 %7d, %d of more than 25 branches: %s\n", c.functions, c.branchy, strings.Join(c.worst, ", "))
	fmt.Printf("names of 5 or more        %7d: %s …\n", len(five), strings.Join(five[:min(8, len(five))], ", "))
	fmt.Printf("comment lines that hang   %7d of %d, %.1f%%\n", c.hang, c.comments, 100*float64(c.hang)/float64(max(1, c.comments)))
	fmt.Printf("Attend                    %7d: %s\n", len(c.attends), strings.Join(c.attends, ", "))
	return nil
}

func count(s string) (n int) {
	fmt.Sscanf(s[strings.LastIndex(s, "×")+len("×"):], "%d", &n)
	return n
}

// tracked lists the files that git tracks.
func tracked(root string) ([]string, error) {
	out, err := exec.Command("git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files in %s: %w", root, err)
	}
	var names []string
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		if info, err := os.Stat(filepath.Join(root, name)); err == nil && info.Mode().IsRegular() {
			names = append(names, name)
		}
	}
	return names, nil
}

func lines(data []byte) int { return bytes.Count(data, []byte("\n")) }

// read counts one file of Go.
func (c *counts) read(name string, data []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, name, data, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	n, dir := lines(data), path.Dir(name)
	switch {
	case strings.HasPrefix(name, "lab/"):
		c.lab += n
		return nil
	case ast.IsGenerated(file):
		c.generated += n
		return nil
	case strings.HasSuffix(name, "_test.go") || strings.HasSuffix(file.Name.Name, "test") || strings.Contains(name, "testdata/"):
		c.tests += n
		return nil
	}
	c.product += n
	c.files++
	if slices.ContainsFunc(heart, func(h string) bool { return dir == h || strings.HasPrefix(dir, h+"/") }) {
		c.heart += n
	}
	for _, group := range file.Comments {
		scanner := bufio.NewScanner(strings.NewReader(group.Text()))
		for scanner.Scan() {
			if strings.TrimSpace(scanner.Text()) == "" {
				continue
			}
			c.comments++
			if hanging.MatchString(scanner.Text()) {
				c.hang++
			}
		}
	}
	for _, decl := range file.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok {
			continue
		}
		c.functions++
		if f.Name.Name != "main" && f.Name.Name != "init" && f.Name.Name != "_" {
			c.bearers[f.Name.Name]++
		}
		if f.Name.Name == "Attend" && f.Body != nil && f.Recv != nil {
			c.attends = append(c.attends, dir+"."+receiver(f.Recv.List[0].Type))
		}
		if b := branches(f); b > 25 {
			c.branchy++
			c.worst = append(c.worst, fmt.Sprintf("%s.%s %d", path.Base(dir), f.Name.Name, b))
		}
	}
	return nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// branches is the cyclomatic number of a function: one, and one for every if, loop, case that is no default, && and ||.
func branches(f *ast.FuncDecl) int {
	n := 1
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
			n++
		case *ast.CaseClause:
			if node.List != nil {
				n++
			}
		case *ast.CommClause:
			if node.Comm != nil {
				n++
			}
		case *ast.BinaryExpr:
			if node.Op == token.LAND || node.Op == token.LOR {
				n++
			}
		}
		return true
	})
	return n
}
