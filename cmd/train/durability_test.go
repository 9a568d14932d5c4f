//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	ossignal "os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"glimpse/checkpoints"
	"glimpse/checkpoints/objectstore"
	"glimpse/checkpoints/objectstore/storetest"
	"glimpse/internal/outputs"
	"glimpse/internal/signals"
)

const (
	// asProgram makes the test binary the program itself.
	asProgram = "GLIMPSE_TEST_AS_PROGRAM"
	// fullVariable asks for the whole of the tests that repeat something many times.
	fullVariable = "GLIMPSE_DURABILITY"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// program is a run of the program in a process of its own.
type program struct {
	*exec.Cmd
	output bytes.Buffer
}

// asCommand is the train command in a process of its own, which is not begun.
func asCommand(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asProgram+"=1")
	return c
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{Cmd: asCommand(args...)}
	p.Stdout, p.Stderr = &p.output, &p.output
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	return p
}

// finish waits for the end and returns the exit code, -1 for a kill.
func (p *program) finish() int {
	p.Wait()
	return p.ProcessState.ExitCode()
}

// appeared waits until a file whose name starts so is in the folder, or the program
// has ended.
func (p *program) appeared(dir, prefix string) bool {
	ended := make(chan struct{})
	go func() { // without reaping the process
		for p.Process.Signal(syscall.Signal(0)) == nil && !zombie(p.Process.Pid) {
			time.Sleep(5 * time.Millisecond)
		}
		close(ended)
	}()
	for {
		if has(dir, prefix) {
			return true
		}
		select {
		case <-ended:
			return false
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
}

func zombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false // where there is no /proc
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

func has(dir, prefix string) bool {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			return true
		}
	}
	return false
}

// longRun are the flags of a run whose state, of 7 MB, takes a while to write.
func longRun(dir string, steps int) []string {
	return []string{"lookahead", "--steps", fmt.Sprint(steps), "--batch", "2", "--tokens", "64", "--rows", "8", "--rank", "64",
		"--validate", "2", "--threads", "1", "--out", filepath.Join(dir, "adapter"), "--export", filepath.Join(dir, "copy"),
		"--checkpoint", filepath.Join(dir, "state"), "--checkpoint-every", "1"}
}

// TestKilledRuns: a run that is killed again and again, in steps, in the writing of
// checkpoints and of adapters, and resumed each time, ends with the files of a run
// that was never disturbed, to the last byte.
func TestKilledRuns(t *testing.T) {
	kills, steps := 6, 12
	switch {
	case os.Getenv(fullVariable) != "":
		kills, steps = 20, 60
	case testing.Short():
		kills = 3
	}
	undisturbed := t.TempDir()
	begin := time.Now()
	if p := start(t, longRun(undisturbed, steps)...); p.finish() != 0 {
		t.Fatalf("the undisturbed run failed: %s", p.output.String())
	}
	whole := time.Since(begin)
	want := files(t, filepath.Join(undisturbed, "adapter"))

	dir := t.TempDir()
	args := append(longRun(dir, steps), "--resume")
	hits := make(map[string]int)
	attempts := 0
	// kill runs on to a moment, kills, and checks what is left.
	kill := func(until func(p *program)) {
		attempts++
		p := start(t, args...)
		until(p)
		p.Process.Kill()
		if code := p.finish(); code > 0 {
			t.Fatalf("kill %d: the run failed with code %d: %s", attempts, code, p.output.String())
		}
		hits[moment(t, dir)]++
	}
	// moments kills until so many kills have hit the place.
	moments := func(place string, until func(p *program)) {
		for i := 0; hits[place] < kills/3; i++ {
			if i == 10*kills {
				t.Fatalf("%d kills hit %v, want %d %s", attempts, hits, kills/3, place)
			}
			if has(dir, "copy") { // a run that came to its end writes no more: it begins anew, or is to export again
				old := []string{"adapter", "copy"}
				if place == inCheckpoint {
					old = append(old, "state", "state.previous")
				}
				for _, name := range old {
					os.RemoveAll(filepath.Join(dir, name))
				}
			}
			kill(until)
		}
	}
	for range kills - 2*(kills/3) {
		kill(func(*program) { time.Sleep(rand.N(whole / time.Duration(kills/3))) })
	}
	moments(inCheckpoint, func(p *program) {
		for range 1 + rand.IntN(2) {
			if p.appeared(dir, ".state.tmp-") {
				time.Sleep(rand.N(2*time.Millisecond) >> rand.IntN(5)) // whatever the disk takes
			}
		}
	})
	moments(inExport, func(p *program) {
		if p.appeared(dir, []string{".adapter.tmp-", ".copy.tmp-"}[rand.IntN(2)]) {
			time.Sleep(rand.N(2 * time.Millisecond))
		}
	})
	p := start(t, args...)
	if code := p.finish(); code != 0 {
		t.Fatalf("the last run failed with code %d: %s", code, p.output.String())
	}
	for _, name := range []string{"adapter", "copy"} {
		got := files(t, filepath.Join(dir, name))
		for file, data := range want {
			if got[file] != data {
				t.Errorf("%s/%s differs from that of an undisturbed run", name, file)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s holds %d files, want %d", name, len(got), len(want))
		}
	}
	if left := leftovers(t, dir, ".state.tmp-"); len(left) > 0 {
		t.Errorf("the runs left %q", left)
	}
	t.Logf("%d kills of a run of %d steps: %v", attempts, steps, hits)
}

const (
	inCheckpoint = "in the writing of a checkpoint"
	inExport     = "in the writing of an adapter"
)

// moment tells where a kill has hit, and checks that everything left is whole.
func moment(t *testing.T, dir string) string {
	t.Helper()
	for _, name := range []string{"state", "state.previous"} {
		if _, err := checkpoints.ReadState(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("after a kill: %v", err)
		}
	}
	place := "in a step"
	if !has(dir, "state") {
		place = "before the first checkpoint"
	}
	for _, name := range []string{"adapter", "copy"} {
		if _, err := checkpoints.ReadAdapter(filepath.Join(dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("after a kill: %v", err)
		}
		for _, left := range leftovers(t, dir, "."+name+".tmp-") { // else the next kill would be taken for one in an export
			place = inExport
			os.RemoveAll(left)
		}
	}
	if has(dir, ".state.tmp-") {
		place = inCheckpoint
	}
	return place
}

func leftovers(t *testing.T, dir, prefix string) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

// TestSignals: the step is finished and saved, the program says so and exits with a
// code of its own; without a checkpoint it stops at once, with another.
func TestSignals(t *testing.T) {
	// Under nohup the signal is ignored, which processes pass on unless they handle it.
	hangups := make(chan os.Signal, 1)
	ossignal.Notify(hangups, syscall.SIGHUP)
	defer ossignal.Stop(hangups)
	for name, signal := range map[string]os.Signal{"SIGINT": os.Interrupt, "SIGTERM": syscall.SIGTERM, "SIGHUP": syscall.SIGHUP} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			args := longRun(dir, 100_000)
			for i, a := range args {
				if a == "--checkpoint-every" {
					args[i+1] = "100000"
				}
			}
			args = append(args, "--log", filepath.Join(dir, "log"))
			p := start(t, args...)
			waitForSteps(t, p, filepath.Join(dir, "log"), 2)
			p.Process.Signal(signal)
			if code := p.finish(); code != signals.ExitResumable {
				t.Fatalf("exit code %d, want %d: %s", code, signals.ExitResumable, p.output.String())
			}
			lines := strings.Count(readText(t, filepath.Join(dir, "log")), "\n")
			for _, want := range []string{"stopped by a signal", fmt.Sprintf("stopped after step %d", lines), "--resume goes on", "a second signal stops at once"} {
				if !strings.Contains(p.output.String(), want) {
					t.Errorf("the output does not say %q: %s", want, p.output.String())
				}
			}
			s, err := checkpoints.ReadState(filepath.Join(dir, "state"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(s.Run), fmt.Sprintf(`"step":%d,`, lines)) {
				t.Errorf("the log has %d steps, the state says %.40s", lines, s.Run)
			}
			if has(dir, ".state.lock") {
				t.Error("the lock is left")
			}
		})
	}
	t.Run("without a checkpoint", func(t *testing.T) {
		dir := t.TempDir()
		p := start(t, "judgeq", "--steps", "100000", "--batch", "2", "--tokens", "64", "--out", filepath.Join(dir, "adapter"), "--log", filepath.Join(dir, "log"))
		waitForSteps(t, p, filepath.Join(dir, "log"), 1)
		p.Process.Signal(os.Interrupt)
		if code := p.finish(); code != signals.ExitInterrupted {
			t.Fatalf("exit code %d, want %d: %s", code, signals.ExitInterrupted, p.output.String())
		}
	})
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func waitForSteps(t *testing.T, p *program, log string, steps int) {
	t.Helper()
	for range 6000 {
		if data, err := os.ReadFile(log); err == nil && bytes.Count(data, []byte("\n")) >= steps {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	p.Process.Kill()
	p.Wait()
	t.Fatalf("no step in a minute: %s", p.output.String())
}

// trained makes a finished run with a checkpoint, and one before it.
func trained(t *testing.T) (dir string, args []string) {
	t.Helper()
	dir = t.TempDir()
	args = []string{"judgeq", "--steps", "4", "--batch", "1", "--tokens", "64", "--rows", "2", "--validate", "0",
		"--out", filepath.Join(dir, "adapter"), "--checkpoint", filepath.Join(dir, "state"), "--checkpoint-every", "1"}
	if _, log, err := execute(t, context.Background(), args...); err != nil {
		t.Fatalf("%v\n%s", err, log)
	}
	return dir, append(args, "--resume")
}

// TestDamagedCheckpoint: a checkpoint that was cut, changed or lost is named, and the
// run goes on from the one before it, to the same end.
func TestDamagedCheckpoint(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(path string, data []byte) error
		want   string
	}{
		"truncated":  {func(path string, data []byte) error { return os.WriteFile(path, data[:len(data)/2], 0o644) }, "is damaged"},
		"empty":      {func(path string, data []byte) error { return os.WriteFile(path, nil, 0o644) }, "is damaged"},
		"bit in run": {func(path string, data []byte) error { data[200] ^= 1; return os.WriteFile(path, data, 0o644) }, "is damaged"},
		"bit in tensors": {func(path string, data []byte) error {
			data[len(data)-9] ^= 64
			return os.WriteFile(path, data, 0o644)
		}, "is damaged"},
		"lost": {func(path string, _ []byte) error { return os.Remove(path) }, "is missing"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, args := trained(t)
			want := files(t, filepath.Join(dir, "adapter"))
			state := filepath.Join(dir, "state")
			if err := c.damage(state, []byte(readText(t, state))); err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(dir, "adapter")); err != nil {
				t.Fatal(err)
			}
			_, log, err := execute(t, context.Background(), args...)
			if err != nil {
				t.Fatalf("%v\n%s", err, log)
			}
			for _, text := range []string{"checkpoint " + state + " " + c.want, "going on after step 3 of " + state + ".previous"} {
				if !strings.Contains(log, text) {
					t.Errorf("the output does not say %q: %s", text, log)
				}
			}
			for file, data := range files(t, filepath.Join(dir, "adapter")) {
				if want[file] != data {
					t.Errorf("%s differs from that of the undisturbed run", file)
				}
			}
			for _, file := range []string{state, checkpoints.PreviousState(state)} {
				if _, err := checkpoints.ReadState(file); err != nil {
					t.Errorf("after the resumed run: %v", err)
				}
			}
		})
	}
	t.Run("both", func(t *testing.T) {
		dir, args := trained(t)
		for _, name := range []string{"state", "state.previous"} {
			if err := os.Truncate(filepath.Join(dir, name), 100); err != nil {
				t.Fatal(err)
			}
		}
		_, _, err := execute(t, context.Background(), args...)
		if !errors.Is(err, checkpoints.ErrCorrupt) || !strings.Contains(err.Error(), "state.previous") {
			t.Errorf("error %v, want one that names both", err)
		}
	})
}

// TestSecondRun: a checkpoint belongs to one run at a time.
func TestSecondRun(t *testing.T) {
	dir := t.TempDir()
	p := start(t, longRun(dir, 100_000)...)
	if !p.appeared(dir, "state") {
		t.Fatalf("the first run ended: %s", p.output.String())
	}
	_, _, err := execute(t, context.Background(), append(longRun(dir, 100_000), "--resume")...)
	if err == nil || !strings.Contains(err.Error(), "another run is writing it") {
		t.Errorf("error %v, want it to name the other run", err)
	}
	p.Process.Kill()
	p.Wait()
	if unlock, err := outputs.Lock(filepath.Join(dir, "state")); err != nil {
		t.Errorf("after the first run was killed: %v", err)
	} else {
		unlock()
	}
}

// TestReadOnlyFolder: a checkpoint that cannot be written is an error that names it.
func TestReadOnlyFolder(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere; scripts/durability.sh tries a read-only mount")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	defer os.Chmod(dir, 0o700)
	_, _, err := execute(t, context.Background(), "judgeq", "--steps", "2", "--batch", "1", "--tokens", "64", "--out", filepath.Join(t.TempDir(), "a"), "--checkpoint", filepath.Join(dir, "state"))
	if !errors.Is(err, os.ErrPermission) || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v, want one of permissions that names %s", err, dir)
	}
}

// TestKilledExport: an export of 40 MB that is killed in the middle of a part shows
// nothing; repeated, it sends only what is missing.
func TestKilledExport(t *testing.T) {
	storetest.Each(t, func(t *testing.T, s *storetest.Server) {
		a := &checkpoints.Adapter{
			Kind: "judgeq", Base: checkpoints.BaseModel{Name: "base", SHA256: strings.Repeat("ab", 32)}, Loss: "mse", PoolingKernel: 1,
			Embeddings: checkpoints.Matrix{Rows: 4000, Cols: 2500, Data: make([]float32, 10_000_000)},
		}
		for i := range a.Embeddings.Data {
			a.Embeddings.Data[i] = rand.Float32()
		}
		folder := filepath.Join(t.TempDir(), "adapter")
		if err := checkpoints.WriteAdapter(folder, a, false); err != nil {
			t.Fatal(err)
		}
		settings := objectstore.Settings{Endpoint: s.URL}
		args := []string{"export", folder, "s3://test/a", "--s3-endpoint", s.URL}
		const parts = 5
		put := "PUT a/lookahead_embeddings.safetensors?part="
		late := make(chan struct{}, parts)
		arrived := 0
		s.Disturb(func(r *http.Request) storetest.Fault {
			if !strings.HasPrefix(storetest.RequestName(r), put) {
				return storetest.Pass
			}
			if arrived++; arrived <= 2 {
				return storetest.Pass
			}
			late <- struct{}{}
			return storetest.Stall
		})
		p := start(t, args...)
		<-late
		time.Sleep(500 * time.Millisecond) // in which the two parts before arrive
		p.Process.Kill()
		p.finish()
		s.Disturb(nil)
		if _, err := objectstore.ReadAdapter(t.Context(), "s3://test/a", settings); !errors.Is(err, checkpoints.ErrNotAdapter) {
			t.Fatalf("after the kill: error %v, want no adapter", err)
		}
		s.Disturb(nil)
		p = start(t, args...)
		if code := p.finish(); code != 0 {
			t.Fatalf("the second export failed with code %d: %s", code, p.output.String())
		}
		if n := s.Count(put); n != parts-2 {
			t.Errorf("%d parts sent by the second export, want %d", n, parts-2)
		}
		if n := s.Count("POST a/lookahead_embeddings.safetensors?uploads"); n != 0 {
			t.Errorf("the second export began %d uploads, want it to go on with the first", n)
		}
		back, err := objectstore.ReadAdapter(t.Context(), "s3://test/a", settings)
		if err != nil {
			t.Fatal(err)
		}
		if same, err := checkpoints.SameAdapter(folder, back); !same || err != nil {
			t.Errorf("the exported adapter differs (%v)", err)
		}
	})
}
