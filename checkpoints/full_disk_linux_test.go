package checkpoints

import (
	"errors"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// Writes that fail in the middle, as on a full disk (here: at the process's limit
// on file sizes), leave what was there and no temporaries.
func TestWritesFailInTheMiddle(t *testing.T) {
	dir := t.TempDir()
	adapter, state, tensors := filepath.Join(dir, "adapter"), filepath.Join(dir, "state"), filepath.Join(dir, "tensors")
	if err := WriteAdapter(adapter, softTokens(), false); err != nil {
		t.Fatal(err)
	}
	if err := SaveState(state, runState()); err != nil {
		t.Fatal(err)
	}
	limitFileSize(t, 1_000_000) // the test log of "go test" must stay below it
	big := bigAdapter(1)
	for name, err := range map[string]error{
		"adapter":     WriteAdapter(adapter, big, true),
		"new adapter": WriteAdapter(filepath.Join(dir, "new"), big, false),
		"state":       SaveState(state, &State{Tensors: map[string]StateTensor{"a": {Shape: []int{480_000}, F32: big.Embeddings.Data}}}),
		"tensors":     WriteSafetensorsFile(tensors, []TensorView{big.Embeddings.tensorView("a", false)}, nil),
	} {
		if !errors.Is(err, unix.EFBIG) {
			t.Errorf("%s: error %v, want that of the system", name, err)
		}
	}
	if left := readNames(t, dir); len(left) != 2 || !left["adapter"] || !left["state"] {
		t.Fatalf("the folder holds %v, want adapter and state", left)
	}
	if a, err := ReadAdapter(adapter); err != nil || a.Kind != "judgeq" {
		t.Fatalf("the old adapter: %v", err)
	}
	s, err := ReadState(state)
	if err != nil {
		t.Fatal(err)
	}
	sameState(t, s, runState())
}

func limitFileSize(t *testing.T, limit uint64) {
	t.Helper()
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	signal.Ignore(unix.SIGXFSZ) // so that the write returns an error
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
		signal.Reset(unix.SIGXFSZ)
	})
}
