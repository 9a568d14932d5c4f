package freedisk

import (
	"errors"
	"path/filepath"
	"testing"
)

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	free, ok := Bytes(dir)
	if !ok {
		t.Skip("this system does not tell")
	}
	if below, _ := Bytes(filepath.Join(dir, "not", "yet")); free < 1 || below < free/2 || below > 2*free {
		t.Errorf("%d bytes free, and %d in a folder that is not there yet", free, below)
	}
	if err := CheckRoom(dir, 1); err != nil {
		t.Error(err)
	}
	if err := CheckRoom(filepath.Join(dir, "x"), 1e18); !errors.Is(err, ErrFull) {
		t.Errorf("error %v, want ErrFull", err)
	}
}
