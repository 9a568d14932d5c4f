package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// TestImportDirection checks this repository.
func TestImportDirection(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatalf("the module's root: %v", err)
	}
	module := regexp.MustCompile(`(?m)^module\s+"?([^\s"]+)`).FindSubmatch(mod)
	if module == nil {
		t.Fatalf("%s/go.mod names no module", root)
	}
	files, violations := check(os.DirFS(root), string(module[1]))
	for _, v := range violations {
		t.Error(v)
	}
	if files < 3 { // this package alone has three
		t.Errorf("read %d Go files under %s: the walk does not see the repository", files, root)
	}
}

// A violation is planted in an otherwise clean tree and must be reported.
func TestCheckerFindsViolations(t *testing.T) {
	imports := func(pkg string, paths ...string) string {
		return "package " + pkg + "\n\nimport (\n\t\"" + strings.Join(paths, "\"\n\t\"") + "\"\n)\n"
	}
	clean := map[string]string{
		"cmd/evict/main.go":                imports("main", "fmt", "m/evaluation", "m/generation", "m/internal/registry"),
		"cmd/evict/flags/flags.go":         imports("flags", "m/eviction"),
		"cmd/evict/serve.go":               imports("main", "m/cmd/evict/flags"),
		"scripts/demo/main.go":             imports("main", "m/model"),
		"evaluation/table.go":              imports("evaluation", "m/eviction", "m/lora", "m/internal/stats"),
		"training/train.go":                imports("training", "m/autodiff", "m/losses", "m/training/hooks"),
		"eviction/snapkv.go":               imports("eviction", "m/model", "m/model/chat", "m/kernels"),
		"model/llama.go":                   imports("model", "m/model/tokenizer", "m/checkpoints"),
		"evaluation/tasks/niah.go":         imports("tasks", "m/evaluation/scoring"),
		"autodiff/graph.go":                imports("autodiff", "gorgonia.org/gorgonia", "gorgonia.org/tensor", "github.com/chewxy/hm", "m/kernels"),
		"autodiff/ops/ops.go":              imports("ops", "gorgonia.org/gorgonia", "m/autodiff"),
		"kernels/gpu.go":                   imports("kernels", "gorgonia.org/cu", "m/internal/registry"),
		"internal/stats/rank_test.go":      imports("stats_test", "m/internal/compare", "m/internal/stats"),
		"internal/registry/registry.go":    "package registry\n",
		"eviction/testdata/wrong.go":       imports("wrong", "m/cmd/evict"),
		".cache/wrong.go":                  imports("wrong", "m/cmd/evict"),
		"lab/go.mod":                       "module m/lab\n",
		"lab/bench/main.go":                imports("main", "m/training", "gorgonia.org/gorgonia"),
		"_old/wrong.go":                    imports("wrong", "m/cmd/evict"),
		"unrelated/notes.txt":              "no Go here",
		"kernels/tensor/gorgonia_names.go": imports("tensor", "gorgonia.org/tensorial", "mm/evaluation"),
	}
	cases := []struct {
		name   string
		file   string
		source string
		want   []string // substrings of the one violation; none: clean
	}{
		{name: "clean tree", file: "datasets/jsonl.go", source: imports("datasets", "os")},
		{name: "upwards", file: "model/bad.go", source: imports("model", "m/eviction"),
			want: []string{"model/bad.go:4", "imports m/eviction", "eviction is on a line above model"}},
		{name: "upwards from a sub-package", file: "model/chat/bad.go", source: imports("chat", "os", "m/lora"),
			want: []string{"model/chat/bad.go:5", "lora is on a line above model"}},
		{name: "sideways", file: "lora/bad.go", source: imports("lora", "m/eviction"),
			want: []string{"lora and eviction are siblings"}},
		{name: "sideways into a sub-package", file: "autodiff/bad.go", source: imports("autodiff", "m/model/chat"),
			want: []string{"imports m/model/chat", "autodiff and model are siblings"}},
		{name: "training and evaluation are siblings", file: "training/bad.go", source: imports("training", "m/evaluation"),
			want: []string{"training and evaluation are siblings"}},
		{name: "training and generation are siblings", file: "generation/bad.go", source: imports("generation", "m/training"),
			want: []string{"generation and training are siblings"}},
		{name: "a leaf imports the trainer", file: "internal/stats/bad.go", source: imports("stats", "m/training"),
			want: []string{"internal/stats is a leaf"}},
		{name: "a leaf imports a lower folder", file: "internal/stats/bad.go", source: imports("stats", "m/kernels"),
			want: []string{"internal/stats is a leaf"}},
		{name: "one command imports another", file: "cmd/train/bad.go", source: imports("main", "m/cmd/evict/flags"),
			want: []string{"cmd/evict is a program"}},
		{name: "a library imports a command", file: "evaluation/bad.go", source: imports("evaluation", "m/cmd/train"),
			want: []string{"cmd/train is a program"}},
		{name: "a library imports a script", file: "evaluation/bad.go", source: imports("evaluation", "m/scripts/demo"),
			want: []string{"scripts/demo is a program"}},
		{name: "a room below imports one above", file: "kernels/cpu/bad.go", source: imports("cpu", "m/kernels/cuda"),
			want: []string{"kernels/cuda is no room below kernels/cpu"}},
		{name: "a room that is not in the table", file: "kernels/fpga/bad.go", source: imports("fpga", "m/kernels"),
			want: []string{"kernels/fpga is not in the table of rooms"}},
		{name: "a room of the model imports one above", file: "model/kvcache/bad.go", source: imports("kvcache", "m/model/runner"),
			want: []string{"model/runner is no room below model/kvcache"}},
		{name: "a test of a leaf against its judge", file: "internal/simd/good_test.go", source: imports("simd_test", "m/kernels/formats")},
		{name: "a leaf's judge outside its tests", file: "internal/simd/bad.go", source: imports("simd", "m/kernels/formats"),
			want: []string{"internal/simd/bad.go", "internal/simd is a leaf, which imports only leaves"}},
		{name: "a test of a room", file: "kernels/cpu/good_test.go", source: imports("cpu_test", "m/kernels/kernelstest")},
		{name: "a room imports one below", file: "kernels/cuda/good.go", source: imports("cuda", "m/kernels/reference")},
		{name: "the evictor imports the trainer", file: "cmd/evict/bad.go", source: imports("main", "m/training"),
			want: []string{"training is imported by cmd/train only"}},
		{name: "a library imports what commands share", file: "evaluation/bad.go", source: imports("evaluation", "m/internal/cli"),
			want: []string{"internal/cli is imported by cmd/train and cmd/evict and internal/clitest only"}},
		{name: "a leaf imports what commands share", file: "internal/stats/bad.go", source: imports("stats", "m/internal/cli"),
			want: []string{"internal/cli is imported by"}},
		{name: "a command imports what commands share", file: "cmd/evict/good.go", source: imports("main", "m/internal/cli")},
		{name: "an adapter imports the graph", file: "lora/bad.go", source: imports("lora", "m/autodiff"),
			want: []string{"autodiff is imported by training only"}},
		{name: "gorgonia", file: "losses/bad.go", source: imports("losses", "gorgonia.org/gorgonia"),
			want: []string{"losses/bad.go:4", "imports gorgonia.org/gorgonia", "only autodiff"}},
		{name: "a package of gorgonia", file: "model/bad.go", source: imports("model", "gorgonia.org/gorgonia/ops/nn"),
			want: []string{"only autodiff"}},
		{name: "gorgonia's tensor in a command", file: "cmd/train/bad.go", source: imports("main", "gorgonia.org/tensor"),
			want: []string{"only autodiff"}},
		{name: "type system of gorgonia", file: "kernels/bad.go", source: imports("kernels", "github.com/chewxy/hm"),
			want: []string{"only autodiff"}},
		{name: "named and blank imports", file: "model/bad.go", source: "package model\n\nimport e \"m/eviction\"\n",
			want: []string{"model/bad.go:3", "eviction is on a line above model"}},
		{name: "behind a build tag", file: "kernels/bad.go", source: "//go:build gpu && never\n\n" + imports("kernels", "m/model"),
			want: []string{"kernels/bad.go:6", "model is on a line above kernels"}},
		{name: "ignored by the build", file: "kernels/generate.go", source: "//go:build ignore\n\n" + imports("main", "m/model"),
			want: []string{"kernels/generate.go"}},
		{name: "for another system", file: "kernels/bad_windows.go", source: imports("kernels", "m/model"),
			want: []string{"kernels/bad_windows.go"}},
		{name: "external test", file: "model/bad_test.go", source: imports("model_test", "m/evaluation"),
			want: []string{"model/bad_test.go:4", "evaluation is on a line above model"}},
		{name: "unknown folder", file: "extras/x.go", source: "package extras\n",
			want: []string{"extras/x.go: folder extras is not in the table"}},
		{name: "import of an unknown folder", file: "model/bad.go", source: imports("model", "m/extras"),
			want: []string{"model/bad.go", "extras is not in the table"}},
		{name: "package in the root", file: "x.go", source: "package glimpse\n",
			want: []string{"x.go: folder . is not in the table"}},
		{name: "import of the root", file: "model/bad.go", source: imports("model", "m"),
			want: []string{"root holds no package"}},
		{name: "file directly in cmd", file: "cmd/x.go", source: "package main\n",
			want: []string{"folder cmd is not in the table"}},
		{name: "file that does not parse", file: "model/bad.go", source: "package model\nimport 7\n",
			want: []string{"model/bad.go:2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			tree := fstest.MapFS{c.file: {Data: []byte(c.source)}}
			for name, source := range clean {
				if _, planted := tree[name]; !planted {
					tree[name] = &fstest.MapFile{Data: []byte(source)}
				}
			}
			files, violations := check(tree, "m")
			if want := 16; files != want {
				t.Errorf("read %d files, want %d", files, want)
			}
			if len(c.want) == 0 {
				if len(violations) != 0 {
					t.Errorf("clean tree: %q", violations)
				}
				return
			}
			if len(violations) != 1 {
				t.Fatalf("violations %q, want one", violations)
			}
			for _, s := range c.want {
				if !strings.Contains(violations[0], s) {
					t.Errorf("violation %q does not contain %q", violations[0], s)
				}
			}
		})
	}
}

// An unknown folder with many files is one message, not one per file.
func TestUnknownFolderIsReportedOnce(t *testing.T) {
	tree := fstest.MapFS{"a/x.go": {Data: []byte("package a")}, "a/y.go": {Data: []byte("package a")}, "b/x.go": {Data: []byte("package b")}}
	_, violations := check(tree, "m")
	slices.Sort(violations)
	want := []string{"a/x.go: folder a is not in the table of layers", "b/x.go: folder b is not in the table of layers"}
	if !slices.Equal(violations, want) {
		t.Errorf("violations %q, want %q", violations, want)
	}
}
