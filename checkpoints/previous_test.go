package checkpoints

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// TestSaveStateKeepsThePrevious: after every save the file holds the new state and
// its companion the one before.
func TestSaveStateKeepsThePrevious(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	numbered := func(n float32) *State {
		return &State{Tensors: map[string]StateTensor{"n": {Shape: []int{1}, F32: []float32{n}}}}
	}
	number := func(path string) float32 {
		t.Helper()
		s, err := ReadState(path)
		if err != nil {
			t.Fatal(err)
		}
		return s.Tensors["n"].F32[0]
	}
	for n := range 4 {
		if err := SaveState(path, numbered(float32(n))); err != nil {
			t.Fatal(err)
		}
		if got := number(path); got != float32(n) {
			t.Errorf("state %v, want %d", got, n)
		}
		if n == 0 {
			if _, err := os.Stat(PreviousState(path)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("there is a state before the first (%v)", err)
			}
		} else if got := number(PreviousState(path)); got != float32(n-1) {
			t.Errorf("state before: %v, want %d", got, n-1)
		}
	}
	bad := numbered(9)
	bad.Tensors["n"] = StateTensor{Shape: []int{2}, F32: []float32{9}}
	if err := SaveState(path, bad); err == nil {
		t.Fatal("a state that can't be written was")
	}
	if number(path) != 3 || number(PreviousState(path)) != 2 {
		t.Error("a failed save changed the states")
	}
	if left := readNames(t, filepath.Dir(path)); len(left) != 2 {
		t.Errorf("the folder holds %v, want two states", left)
	}
}
