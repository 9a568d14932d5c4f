package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestInterruptedEvaluation: Ctrl-C at any moment of the work leaves what was measured, on
// standard output and in every file, and names what goes on; that ends as if nothing had been.
func TestInterruptedEvaluation(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	files := []string{"table.md", "rows.json", "plot.svg"}
	program := func(more ...string) *exec.Cmd {
		args := append([]string{"eval", "--policy", "full,snapkv", "--budget", "16", "--task", "section", "--tokens", "128", "--samples", "40",
			"--out", in("run"), "--table-out", in(files[0]), "--json-out", in(files[1]), "--plot", in(files[2])}, more...)
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		return c
	}
	c := program()
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if entries, _ := os.ReadDir(in("run/.work/results")); len(entries) > 1 {
			break
		}
	}
	time.Sleep(rand.N(50 * time.Millisecond))
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := c.Wait()
	if err == nil {
		t.Fatal("it came to its end before the signal")
	}
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 75 {
		t.Errorf("%v, want exit status 75", err)
	}
	if !strings.Contains(out.String(), "snapkv") || !strings.Contains(log.String(), "the same command with --resume --replace goes on") {
		t.Errorf("standard output %q, standard error %q", out.String(), log.String())
	}
	for _, name := range files {
		if data, err := os.ReadFile(in(name)); err != nil || !bytes.Contains(data, []byte("snapkv")) {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
	if out, err := program("--resume", "--replace").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if data, err := os.ReadFile(in(files[0])); err != nil || !bytes.Contains(data, []byte("40 samples each")) {
		t.Errorf("%q, %v", data, err)
	}
}
