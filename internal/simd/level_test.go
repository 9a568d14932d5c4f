package simd

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"
)

func TestUse(t *testing.T) {
	before := Level()
	for _, name := range Levels() {
		restore, err := Use(name)
		if err != nil || Level() != name {
			t.Errorf("Use(%q): level %q, error %v", name, Level(), err)
		}
		restore()
		if Level() != before {
			t.Errorf("level %q after restore, want %q", Level(), before)
		}
	}
	if _, err := Use("sse"); err == nil || !strings.Contains(err.Error(), `level "sse", want one of ["portable"`) {
		t.Errorf(`Use("sse"): error %v`, err)
	}
	if Level() != before {
		t.Errorf("a failed Use changed the level to %q", Level())
	}
	if !slices.Contains(Levels(), "portable") {
		t.Errorf("levels %q lack portable", Levels())
	}
}

// TestArithmetic: levels whose results differ have other names, and of products in float32 those with the same kernels have one.
func TestArithmetic(t *testing.T) {
	bytes := func(has bool, extension string) string {
		if has {
			return extension
		}
		return ""
	}
	for _, name := range Levels() {
		restore, err := Use(name)
		if err != nil {
			t.Fatal(err)
		}
		defer restore()
		want := map[string][2]string{
			"portable":   {"portable", "exact portable"},
			"avx2":       {"avx2" + bytes(cpu.X86.HasAVXVNNI, "+vnni"), "exact avx2"},
			"avx512":     {"avx512" + bytes(cpu.X86.HasAVX512VNNI, "+vnni"), "exact avx512"},
			"avx512bf16": {"avx512bf16" + bytes(cpu.X86.HasAVX512VNNI, "+vnni"), "exact avx512"},
			"amx":        {"amx" + bytes(cpu.X86.HasAVX512VNNI, "+vnni"), "exact avx512"},
			"neon":       {"neon" + bytes(cpu.ARM64.HasASIMDDP, "+asimddp"), "exact neon"},
		}[name]
		if got := [2]string{Arithmetic(Rounded), Arithmetic(Float32)}; got != want {
			t.Errorf("level %s: arithmetic %q, want %q", name, got, want)
		}
	}
}

// The environment is read when the program starts: this test starts itself again.
func TestEnvironment(t *testing.T) {
	const report = "SIMD_TEST_REPORT"
	if os.Getenv(report) != "" {
		message := "no error"
		if err := EnvError(); err != nil {
			message = err.Error()
		}
		fmt.Println(Level())
		fmt.Println(message)
		return
	}
	usual := Levels()[preferred(best)]
	for _, c := range []struct{ value, level, message string }{
		{"portable", "portable", "no error"},
		{Levels()[best], Levels()[best], "no error"},
		{"", usual, "no error"},
		{"sse", usual, `environment variable GLIMPSE_SIMD: simd: level "sse", want one of`},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), report+"=1", "GLIMPSE_SIMD="+c.value)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("GLIMPSE_SIMD=%q: %v", c.value, err)
		}
		if !strings.HasPrefix(string(out), fmt.Sprintln(c.level)+c.message) {
			t.Errorf("GLIMPSE_SIMD=%q: got %q, want level %q and %q", c.value, out, c.level, c.message)
		}
	}
}
