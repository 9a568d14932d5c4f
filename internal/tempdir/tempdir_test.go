package tempdir

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestFoldersOfTheDead: a folder of a process that was killed goes when the next one
// asks; one in use, one that is being made, and those of others stay.
func TestFoldersOfTheDead(t *testing.T) {
	parent := t.TempDir()
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
	child := exec.Command(os.Args[0], "-test.run=^TestFoldersOfTheDead$")
	child.Env = append(os.Environ(), "GLIMPSE_TEMPDIR="+parent)
	if out, err := child.CombinedOutput(); err == nil {
		t.Fatalf("the child was not killed: %s", out)
	}
	dead, _ := filepath.Glob(filepath.Join(parent, "kind-*", "data"))
	if len(dead) != 1 {
		t.Fatalf("the child left %v, want one file", dead)
	}
	held, err := New(parent, "kind-")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dead[0]); !os.IsNotExist(err) {
		t.Errorf("%s of the killed process is still there (%v)", dead[0], err)
	}
	fresh, old, foreign := filepath.Join(parent, "kind-fresh"), filepath.Join(parent, "kind-old"), filepath.Join(parent, "other-1")
	for _, dir := range []string{fresh, old, foreign} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	past := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, past, past); err != nil {
		t.Fatal(err)
	}
	second, err := New(parent, "kind-")
	if err != nil {
		t.Fatal(err)
	}
	for path, stays := range map[string]bool{held.Path: true, fresh: true, foreign: true, old: false, second.Path: true} {
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
