package simd

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
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

// The environment is read when the program starts: this test starts itself again.
func TestEnvironment(t *testing.T) {
	const report = "SIMD_TEST_REPORT"
	if os.Getenv(report) != "" {
		message := "no error"
		if err := EnvError(); err != nil {
			message = err.Error()
		}
		fmt.Println(Level(), !exact)
		fmt.Println(message)
		return
	}
	usual := Levels()[preferred(best)]
	for _, c := range []struct {
		value, rounding, level string
		rounds                 bool
		message                string
	}{
		{"portable", "on", "portable", true, "no error"},
		{Levels()[best], "", Levels()[best], true, "no error"},
		{"", "off", usual, false, "no error"},
		{"sse", "", usual, true, `environment variable GLIMPSE_SIMD: simd: level "sse", want one of`},
		{"", "bf16", usual, true, `environment variable GLIMPSE_ROUNDING: got "bf16", want on or off`},
	} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEnvironment$")
		cmd.Env = append(os.Environ(), report+"=1", "GLIMPSE_SIMD="+c.value, "GLIMPSE_ROUNDING="+c.rounding)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("GLIMPSE_SIMD=%q: %v", c.value, err)
		}
		if !strings.HasPrefix(string(out), fmt.Sprintln(c.level, c.rounds)+c.message) {
			t.Errorf("GLIMPSE_SIMD=%q GLIMPSE_ROUNDING=%q: got %q, want level %q, rounding %v and %q", c.value, c.rounding, out, c.level, c.rounds, c.message)
		}
	}
}
