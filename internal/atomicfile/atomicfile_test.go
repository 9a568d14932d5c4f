package atomicfile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	return got
}

func wantNames(t *testing.T, dir string, want ...string) {
	t.Helper()
	if got := names(t, dir); !slices.Equal(got, want) {
		t.Fatalf("folder holds %q, want %q", got, want)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != want {
		t.Fatalf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

func wantError(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error %v, want one that says %q", err, want)
	}
}

func TestFileAppearsOnCommitOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	for _, content := range []string{"first", "second, longer", "3"} {
		before, _ := os.ReadFile(path)
		f, err := Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(content)); err != nil {
			t.Fatal(err)
		}
		if during, _ := os.ReadFile(path); string(during) != string(before) {
			t.Fatalf("before Commit the target holds %q, want %q", during, before)
		}
		if err := f.Commit(); err != nil {
			t.Fatal(err)
		}
		wantContent(t, path, content)
		wantNames(t, dir, "a")

		f.Abort() // must not touch what is committed
		wantContent(t, path, content)
		if err := f.Commit(); !errors.Is(err, errDone) {
			t.Fatalf("second Commit: %v, want errDone", err)
		}
		if _, err := f.Write(nil); !errors.Is(err, errDone) {
			t.Fatalf("Write after Commit: %v, want errDone", err)
		}
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	f.Write([]byte("partial"))
	if got := names(t, dir); len(got) != 1 || !IsTemp(got[0]) {
		t.Fatalf("while writing the folder holds %q, want one temporary", got)
	}
	f.Abort()
	wantNames(t, dir)

	d, err := CreateDir(filepath.Join(dir, "d"), false)
	if err != nil {
		t.Fatal(err)
	}
	os.WriteFile(filepath.Join(d.Path(), "x"), []byte("partial"), 0o666)
	if got := names(t, dir); len(got) != 1 || !IsTemp(got[0]) {
		t.Fatalf("while building the folder holds %q, want one temporary", got)
	}
	d.Abort()
	wantNames(t, dir)
}

func TestFailedWriteRefusesCommit(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := WriteFile(path, []byte("old")); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	f.f.Close() // makes the write fail as a broken disk would
	if _, err := f.Write([]byte("new")); err == nil {
		t.Fatal("write to a closed file succeeded")
	}
	if err := f.Commit(); !errors.Is(err, os.ErrClosed) {
		t.Fatalf("Commit after a failed write: %v", err)
	}
	wantContent(t, path, "old")
	wantNames(t, dir, "a")
}

func TestTargetsRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := WriteFile(file, nil); err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(folder, link); err != nil {
		t.Skip(err)
	}
	createDir := func(path string, replace bool) error { _, err := CreateDir(path, replace); return err }
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"empty file path":          {WriteFile("", nil), "want a path that ends in a name"},
		"current folder":           {createDir(".", true), "want a path that ends in a name"},
		"parent folder":            {createDir("..", true), "want a path that ends in a name"},
		"root":                     {createDir("/", true), "want a path that ends in a name"},
		"folder as file":           {WriteFile(folder, nil), "folder"},
		"existing folder":          {createDir(folder, false), "target already exists"},
		"existing file":            {createDir(file, false), "target already exists"},
		"file to replace":          {createDir(file, true), "got a file, want a folder"},
		"symbolic link to replace": {createDir(link, true), "got a symbolic link, want a folder"},
		"no parent":                {createDir(filepath.Join(dir, "no", "x"), true), "no such file"},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, c.err, c.want) })
	}
	if err := createDir(folder, false); !errors.Is(err, ErrExists) || !errors.Is(err, fs.ErrExist) {
		t.Fatalf("existing folder: %v is not ErrExists", err)
	}
	wantNames(t, dir, "file", "folder", "link")
}

func buildDir(t *testing.T, path string, replace bool, files map[string]string) *Dir {
	t.Helper()
	d, err := CreateDir(path, replace)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		full := filepath.Join(d.Path(), name)
		if err := os.MkdirAll(filepath.Dir(full), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(full, []byte(content), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestDirReplace(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	d := buildDir(t, path, true, map[string]string{"x": "1", "sub/only-in-old": "1"})
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before Commit the target is there: %v", err)
	}
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	d = buildDir(t, path, true, map[string]string{"x": "2"})
	wantContent(t, filepath.Join(path, "x"), "1")
	if err := d.Commit(); err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(path, "x"), "2")
	wantNames(t, path, "x")
	wantNames(t, parent, "d")
	if err := d.Commit(); !errors.Is(err, errDone) {
		t.Fatalf("second Commit: %v, want errDone", err)
	}
}

// A target that appears while the folder is built, even an empty one, which a
// plain rename would replace, stays.
func TestDirTargetAppearsMeanwhile(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	d := buildDir(t, path, false, map[string]string{"x": "1"})
	if err := os.Mkdir(path, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := d.Commit(); !errors.Is(err, ErrExists) {
		t.Fatalf("Commit onto a new target: %v, want ErrExists", err)
	}
	wantNames(t, path)
	wantNames(t, parent, "d")
}

func TestMoveAside(t *testing.T) {
	parent := t.TempDir()
	path := filepath.Join(parent, "d")
	if err := buildDir(t, path, false, map[string]string{"x": "1"}).Commit(); err != nil {
		t.Fatal(err)
	}
	d := buildDir(t, path, true, map[string]string{"x": "2"})
	if err := moveAside(d.Path(), path); err != nil {
		t.Fatal(err)
	}
	wantContent(t, filepath.Join(path, "x"), "2")
	wantNames(t, parent, "d")

	if err := moveAside(filepath.Join(parent, "missing"), path); err == nil {
		t.Fatal("moving a missing folder into place succeeded")
	}
	wantContent(t, filepath.Join(path, "x"), "2") // restored
	wantNames(t, parent, "d")
}

func TestRenameNewChecked(t *testing.T) {
	parent := t.TempDir()
	a, b := filepath.Join(parent, "a"), filepath.Join(parent, "b")
	os.Mkdir(a, 0o777)
	if err := renameNewChecked(a, b); err != nil {
		t.Fatal(err)
	}
	os.Mkdir(a, 0o777)
	if err := renameNewChecked(a, b); !errors.Is(err, ErrExists) {
		t.Fatalf("rename onto an existing folder: %v, want ErrExists", err)
	}
}

func TestIsTemp(t *testing.T) {
	long := strings.Repeat("n", 255)
	for _, path := range []string{"a", "x/adapter_model.safetensors", long, "dir/" + long} {
		for _, mark := range []string{newMark, oldMark} {
			temp := tempName(path, mark)
			if base := filepath.Base(temp); !IsTemp(base) || len(base) > 255 {
				t.Errorf("IsTemp(%q) is false or the name too long (%d bytes)", base, len(base))
			}
			if filepath.Dir(temp) != filepath.Dir(path) {
				t.Errorf("temporary %q is not a sibling of %q", temp, path)
			}
		}
	}
	for _, name := range []string{
		"", ".", "a", ".git", "a.tmp-0123456789abcdef", ".a.tmp-0123456789abcdeg",
		".a.tmp-0123456789abcde", ".a.new-0123456789abcdef", ".tmp-0123456789abcdef",
	} {
		if IsTemp(name) {
			t.Errorf("IsTemp(%q) is true", name)
		}
	}
	if a, b := tempName("a", newMark), tempName("a", newMark); a == b {
		t.Errorf("two temporaries share the name %q", a)
	}
}

// Of several writers that must not replace each other exactly one succeeds, and a
// file that was there stays.
func TestCommitNew(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	const writers = 8
	results := make(chan error, writers)
	for i := range writers {
		go func() {
			f, err := Create(path)
			if err == nil {
				f.Write([]byte{byte('a' + i)})
				err = f.CommitNew()
			}
			results <- err
		}()
	}
	won := 0
	for range writers {
		switch err := <-results; {
		case err == nil:
			won++
		case !errors.Is(err, ErrExists):
			t.Errorf("a loser's error is %v, want ErrExists", err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil || len(data) != 1 || won != 1 {
		t.Fatalf("%d of %d writers won, the file holds %q (%v); want one", won, writers, data, err)
	}
	if names, err := os.ReadDir(filepath.Dir(path)); err != nil || len(names) != 1 {
		t.Fatalf("the folder holds %v (%v), want the file alone", names, err)
	}
}

// Sweep removes the temporaries of one target and nothing else.
func TestSweepOfWhatIsLeft(t *testing.T) {
	dir := t.TempDir()
	path, other := filepath.Join(dir, "state"), filepath.Join(dir, "state2")
	keep := []string{"state", ".state.tmp-nothex", filepath.Base(tempName(other, newMark)), ".hidden"}
	gone := []string{filepath.Base(tempName(path, newMark)), filepath.Base(tempName(path, oldMark))}
	for _, name := range append(keep, gone...) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := Sweep(path); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	slices.Sort(left)
	slices.Sort(keep)
	if !slices.Equal(left, keep) {
		t.Fatalf("left %q, want %q", left, keep)
	}
	if err := Sweep(filepath.Join(dir, "nowhere", "state")); err != nil {
		t.Errorf("a folder that is not there: %v", err)
	}
}
