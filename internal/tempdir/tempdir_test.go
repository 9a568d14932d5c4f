package tempdir

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"
)

// TestFoldersOfTheDead: an old folder of a process that was killed goes when the next one
// asks; one in use, a young one, which may be just being made, and those of others stay.
func TestFoldersOfTheDead(t *testing.T) {
	if os.Getenv("GLIMPSE_TEMPDIR") != "" { // the process that is killed
		d, err := New(os.Getenv("GLIMPSE_TEMPDIR"), "kind-")
		if err != nil {
			t.Fatal(err)
		}
		os.WriteFile(filepath.Join(d.Path, "data"), []byte("x"), 0o666)
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
		time.Sleep(time.Minute)
	}
	parent := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestFoldersOfTheDead$")
	child.Env = append(os.Environ(), "GLIMPSE_TEMPDIR="+parent)
	if out, err := child.CombinedOutput(); err == nil {
		t.Fatalf("the child was not killed: %s", out)
	}
	dead, _ := filepath.Glob(filepath.Join(parent, "kind-*"))
	if len(dead) != 1 {
		t.Fatalf("the child left %v, want one folder", dead)
	}
	past := time.Now().Add(-time.Hour)
	old := func(path string) {
		if err := os.Chtimes(path, past, past); err != nil {
			t.Fatal(err)
		}
	}
	held, err := New(parent, "kind-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dead[0], "data")); err != nil {
		t.Errorf("%s is as young as one that has yet to be locked, and has gone: %v", dead[0], err)
	}
	fresh, foreign := filepath.Join(parent, "kind-fresh"), filepath.Join(parent, "other-1")
	for _, dir := range []string{fresh, foreign} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{dead[0], held.Path, foreign} {
		old(path)
	}
	second, err := New(parent, "kind-")
	if err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{dead[0]: false, held.Path: true, fresh: true, foreign: true, second.Path: true} {
		if _, err := os.Stat(path); (err == nil) != stays {
			t.Errorf("%s: %v, want it to stay: %v", path, err, stays)
		}
	}
	for _, d := range []*Dir{held, second} {
		if err := d.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(d.Path); !os.IsNotExist(err) {
			t.Errorf("%s is still there after Remove (%v)", d.Path, err)
		}
	}
}

// TestMadeWhileOthersSweep: who makes folders at the same time takes none from another.
func TestMadeWhileOthersSweep(t *testing.T) {
	parent := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 60 {
				d, err := New(parent, "kind-")
				if err != nil {
					t.Error(err)
					return
				}
				file := filepath.Join(d.Path, "data")
				if err := os.WriteFile(file, nil, 0o666); err != nil {
					t.Error(err)
				}
				past := time.Now().Add(-time.Hour)
				if err := os.Chtimes(d.Path, past, past); err != nil {
					t.Error(err)
				}
				runtime.Gosched()
				if _, err := os.Stat(file); err != nil {
					t.Errorf("a file of a folder in use: %v", err)
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left, _ := filepath.Glob(filepath.Join(parent, "*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}
