//go:build unix

package checkpoints

import (
	"bufio"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"glimpse/internal/atomicfile"
)

// writerDir names the folder in which a child process of the tests below writes
// until it is killed.
const writerDir = "CHECKPOINTS_TEST_WRITER_DIR"

// bigAdapter takes a while to write: 2 MB, recognisable by its number.
func bigAdapter(number int) *Adapter {
	a := softTokens()
	a.Embeddings = Matrix{Rows: 4_000, Cols: 120, Data: make([]float32, 480_000)}
	for i := range a.Embeddings.Data {
		a.Embeddings.Data[i] = float32(number)
	}
	a.Metrics = map[string]float64{"number": float64(number)}
	return a
}

// TestMain is the child process when the environment says so.
func TestMain(m *testing.M) {
	dir := os.Getenv(writerDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	for number := 0; ; number++ {
		os.Stdout.WriteString("round\n")
		a := bigAdapter(number)
		if err := WriteAdapter(filepath.Join(dir, "adapter"), a, true); err != nil {
			panic(err)
		}
		s := runState()
		s.Tensors["number"] = StateTensor{Shape: []int{480_000}, F32: a.Embeddings.Data}
		if err := SaveState(filepath.Join(dir, "state"), s); err != nil {
			panic(err)
		}
	}
}

// A process that is killed while it writes an adapter and a run state, over and
// over, leaves nothing or whole ones, and a later writer is not disturbed by
// what it left.
func TestKilledWriter(t *testing.T) {
	const kills = 25
	temporaries, adapters := 0, 0
	round := runAndKill(t, t.TempDir(), 2, 0)
	dir := t.TempDir()
	path := filepath.Join(dir, "adapter")
	for kill := range kills {
		if kill%5 == 0 { // start from nothing now and then
			os.RemoveAll(path)
			os.Remove(filepath.Join(dir, "state"))
		}
		runAndKill(t, dir, rand.IntN(3), rand.N(round))

		a, err := ReadAdapter(path)
		switch {
		case err == nil:
			adapters++
			if number := float64(a.Embeddings.Data[0]); number != a.Metrics["number"] {
				t.Fatalf("kill %d: embeddings of adapter %v with the manifest of %v", kill, number, a.Metrics["number"])
			}
		case !errors.Is(err, os.ErrNotExist) || errors.Is(err, ErrNotAdapter):
			t.Fatalf("kill %d: %v", kill, err)
		}
		state := filepath.Join(dir, "state")
		for _, path := range []string{state, PreviousState(state)} {
			if _, err := ReadState(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatalf("kill %d: %v", kill, err)
			}
		}
		for name := range readNames(t, dir) {
			switch {
			case atomicfile.IsTemp(name):
				temporaries++
				os.RemoveAll(filepath.Join(dir, name))
			case name != "adapter" && name != "state" && name != "state.previous" && name != "state.previous.new": // the next one takes its place
				t.Fatalf("kill %d: left %q, which IsTemp does not know", kill, name)
			}
		}
	}
	// Otherwise the kills did not hit what they are meant to hit.
	if temporaries == 0 || adapters == 0 {
		t.Fatalf("%d kills: %d temporaries left, %d whole adapters; want some of both", kills, temporaries, adapters)
	}
	t.Logf("%d kills: %d temporaries left, %d whole adapters", kills, temporaries, adapters)
}

// runAndKill lets a child write some rounds and kills it some time into the next.
// It returns how long the rounds took on average.
func runAndKill(t *testing.T, dir string, rounds int, into time.Duration) time.Duration {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), writerDir+"="+dir)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	var start time.Time
	for i := range rounds + 1 {
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			start = time.Now()
		}
	}
	took := time.Since(start) / time.Duration(max(rounds, 1))
	time.Sleep(into)
	child.Process.Kill()
	if err := child.Wait(); child.ProcessState.Exited() {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return took
}
