package main

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// asProgram has the test binary be the program.
const asProgram = "GLIMPSE_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Setenv("GLIMPSE_HISTORY", "off") // what tests type is not kept for a person
	os.Exit(m.Run())
}

// TestKilledEvaluation: an evaluation that is killed at 20 moments and goes on each time
// ends with the bytes of one that was never disturbed, and never loses more than the
// samples that were in work.
func TestKilledEvaluation(t *testing.T) {
	const workers = 2
	kills := 20
	if testing.Short() {
		kills = 4
	}
	program := func(dir string, more ...string) *exec.Cmd {
		args := append([]string{"--threads", "2", "eval", "--policy", "full,snapkv,h2o,quest,d2o", "--budget", "16,10%", "--task", "section,needle", "--tokens", "256",
			"--samples", "12", "--out", dir}, more...)
		c := exec.Command(os.Args[0], args...)
		c.Env = append(os.Environ(), asProgram+"=1")
		return c
	}
	whole, dir := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "run")
	begin := time.Now()
	if out, err := program(whole).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	took := time.Since(begin)
	measured := func() int {
		entries, err := os.ReadDir(filepath.Join(dir, ".work", "results"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := 0
	for range kills {
		if _, err := os.Stat(filepath.Join(dir, "metrics.json")); err == nil {
			os.RemoveAll(dir) // it came to its end: it begins anew
			before = 0
		}
		c := program(dir, "--resume")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(rand.N(took / 4))
		c.Process.Kill()
		c.Wait()
		if n := measured(); n != 0 && n < before-workers {
			t.Errorf("%d samples after a kill, %d before it", n, before)
		} else {
			before = n
		}
	}
	if out, err := program(dir, "--resume").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, name := range []string{"metrics.json", "predictions.jsonl"} {
		want, err := os.ReadFile(filepath.Join(whole, name))
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s differs from that of the undisturbed run (%v)", name, err)
		}
	}
}
