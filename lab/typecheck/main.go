// Typecheck reports what of a module, tests included, does not compile for another processor:
//
//	go -C lab run ./typecheck -arch arm64 ..
//
// Everything is read from its sources and nothing is compiled, in a tenth of the time that
// "go vet" takes where nothing has been compiled for it yet. It exits with 1 where
// something is wrong.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	arch := flag.String("arch", runtime.GOARCH, "GOARCH of the processor")
	flag.Parse()
	if flag.NArg() != 1 {
		fail(fmt.Errorf("got %q, want the folder of a module", flag.Args()))
	}
	here, err := filepath.Abs(flag.Arg(0))
	if err != nil {
		fail(err)
	}
	all, err := packages.Load(&packages.Config{
		Mode:  packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps | packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo,
		Tests: true,
		Dir:   here,
		Env:   append(os.Environ(), "GOOS=linux", "GOARCH="+*arch),
		ParseFile: func(set *token.FileSet, name string, source []byte) (*ast.File, error) {
			file, err := parser.ParseFile(set, name, source, parser.SkipObjectResolution)
			// Generated programs of tests are in Go's cache, under other names.
			if file != nil && strings.HasSuffix(name, ".go") && !strings.HasPrefix(name, here+string(filepath.Separator)) {
				dropBodies(file)
			}
			return file, err
		},
	}, "./...")
	if err != nil {
		fail(err)
	}
	if len(all) == 0 {
		fail(fmt.Errorf("no packages in %s", here))
	}
	wrong := 0
	for _, p := range all {
		for _, e := range p.Errors {
			fmt.Fprintln(os.Stderr, e)
			wrong++
		}
	}
	if wrong > 0 {
		os.Exit(1)
	}
	fmt.Printf("%d packages and tests are of sound types\n", len(all))
}

// dropBodies leaves of the functions of other modules what others see of them.
func dropBodies(file *ast.File) {
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			f.Body = nil
		}
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "typecheck:", err)
	os.Exit(1)
}
