package archtest

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// lines is the table of the package comment, highest first, without the leaves
// and the programs, which are known by their prefix.
var lines = [][]string{
	{"console", "serving", "evaluation", "training", "generation"},
	{"engine", "jobs"},
	{"adapters", "labels"},
	{"eviction", "gates", "lora", "softtokens", "losses"},
	{"autodiff", "model"},
	{"checkpoints"},
	{"kernels", "datasets"},
}

// rooms are the packages of some units, highest first, as lines are.
var rooms = map[string][][]string{
	"kernels": {
		{"kernels/kernelstest"},
		{"kernels/backends", "kernels/memcount"},
		{"kernels/cuda"},
		{"kernels/cpu", "kernels/reference"},
		{"kernels/internal/host", "kernels/cudadriver", "kernels/fatbin"},
		{"kernels"},
		{"kernels/formats"},
	},
	"model": {
		{"model/modeltest"},
		{"model/runner", "model/hub"},
		{"model/kvcache", "model/hub/hubtest"},
		{"model"},
		{"model/builtin", "model/catalog", "model/chat", "model/gguf"},
		{"model/chat/jinja", "model/tokenizer"},
		{"model/tokenizer/onig"},
	},
}

// roomRule returns the rule that an import between two rooms of a unit breaks, or "".
// Kernels of cuda are checked against the reference, and counted by memcount. Tests, which
// are held against cases of all rooms, are no part of them.
func roomRule(from, to string) string {
	unit, _ := locate(from)
	if toUnit, _ := locate(to); toUnit != unit || rooms[unit] == nil {
		return ""
	}
	line := func(dir string) int {
		return slices.IndexFunc(rooms[unit], func(line []string) bool { return slices.Contains(line, dir) })
	}
	switch f, t := line(from), line(to); {
	case f < 0:
		return fmt.Sprintf("%s is not in the table of rooms", from)
	case t < 0:
		return fmt.Sprintf("%s is not in the table of rooms", to)
	case f < t || from == to:
		return ""
	}
	return fmt.Sprintf("%s is no room below %s", to, from)
}

// users are the only units that import a unit: so evict, which trains nothing, links no
// graph, and libraries know of no command.
var users = map[string][]string{
	"autodiff":     {"training"},
	"training":     {"cmd/train"},
	"internal/cli": {"cmd/train", "cmd/evict", "internal/clitest"},
}

// judges are the packages whose numbers the tests of leaves are held against.
var judges = map[string]string{"internal/simd": "kernels/formats"}

const (
	programs = -1 // the line above all others
	unknown  = -2
)

// graphModules may be imported under autodiff only.
var graphModules = []string{"gorgonia.org/gorgonia", "gorgonia.org/tensor", "github.com/chewxy/hm"}

// locate returns the unit that a package folder belongs to (model for
// model/chat, cmd/train for cmd/train) and the unit's line.
func locate(dir string) (unit string, line int) {
	parts := strings.Split(dir, "/")
	unit = parts[0]
	switch unit {
	case "cmd", "scripts", "internal":
		if len(parts) < 2 {
			return dir, unknown
		}
		unit += "/" + parts[1]
		if parts[0] != "internal" {
			return unit, programs
		}
	}
	for i, line := range lines {
		if slices.Contains(line, unit) {
			return unit, i
		}
	}
	if parts[0] == "internal" {
		return unit, len(lines) // a leaf
	}
	return unit, unknown
}

// rule returns the rule that an import of folder to by folder from breaks, or "".
func rule(from, to string) string {
	fromUnit, fromLine := locate(from)
	toUnit, toLine := locate(to)
	leaves := len(lines)
	switch {
	case fromUnit == toUnit:
		return ""
	case (fromLine < toLine || toLine == leaves) && users[toUnit] != nil && !slices.Contains(users[toUnit], fromUnit):
		return fmt.Sprintf("%s is imported by %s only", toUnit, strings.Join(users[toUnit], " and "))
	case toLine == unknown:
		return fmt.Sprintf("%s is not in the table of layers", toUnit)
	case toLine == programs:
		return fmt.Sprintf("%s is a program, which no other package imports", toUnit)
	case fromLine < toLine, fromLine == leaves && toLine == leaves:
		return ""
	case fromLine == leaves:
		return fmt.Sprintf("%s is a leaf, which imports only leaves", fromUnit)
	case fromLine == toLine:
		return fmt.Sprintf("%s and %s are siblings on one line, which never import each other", fromUnit, toUnit)
	}
	return fmt.Sprintf("%s is on a line above %s, and a package imports only from lower lines", toUnit, fromUnit)
}

// check reads the imports of every Go file under root, the root of the module
// named module, and returns how many files it read and one message per violation.
// Like the go command it passes over testdata, modules of their own and folders that start with a dot or
// an underscore.
func check(root fs.FS, module string) (files int, violations []string) {
	var strangers []string // unknown folders, reported once each
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	err := fs.WalkDir(root, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			if name != "." && (base == "testdata" || base[0] == '.' || base[0] == '_') {
				return fs.SkipDir
			}
			if _, err := fs.Stat(root, path.Join(name, "go.mod")); err == nil && name != "." {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		files++
		dir := path.Dir(name)
		if _, line := locate(dir); line == unknown {
			if !slices.Contains(strangers, dir) {
				strangers = append(strangers, dir)
				report("%s: folder %s is not in the table of layers", name, dir)
			}
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, name, source, parser.ImportsOnly)
		if err != nil {
			report("%v", err) // the parser's errors name the file
			return nil
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
			}
			at := fmt.Sprintf("%s:%d: imports %s", name, fset.Position(spec.Pos()).Line, imported)
			if imported == module {
				report("%s: the module's root holds no package", at)
			} else if to, ok := strings.CutPrefix(imported, module+"/"); ok {
				broken, test := rule(dir, to), strings.HasSuffix(name, "_test.go")
				switch {
				case test && judges[dir] == to:
					broken = ""
				case broken == "" && !test:
					broken = roomRule(dir, to)
				}
				if broken != "" {
					report("%s: %s", at, broken)
				}
			} else if unit, _ := locate(dir); unit != "autodiff" && slices.ContainsFunc(graphModules, within(imported)) {
				report("%s: only autodiff imports gorgonia and its companion modules", at)
			}
		}
		return nil
	})
	if err != nil {
		report("%v", err)
	}
	return files, violations
}

// within tells whether the imported path is a module or one of its packages.
func within(imported string) func(module string) bool {
	return func(module string) bool {
		return imported == module || strings.HasPrefix(imported, module+"/")
	}
}
