package outputs

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if got, err := os.ReadFile(path); err != nil || string(got) != want {
		t.Errorf("%s holds %q (%v), want %q", path, got, err, want)
	}
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	old, input, fresh := filepath.Join(dir, "old"), filepath.Join(dir, "input"), filepath.Join(dir, "fresh")
	for _, path := range []string{old, input} {
		if err := os.WriteFile(path, []byte("precious"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(input, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, path string
		replace    bool
		want       string // "" is none
	}{
		{"new", fresh, false, ""},
		{"none", "", false, ""},
		{"exists", old, false, "--replace"},
		{"replaced", old, true, ""},
		{"input", input, true, "what this command reads"},
		{"link to an input", link, true, "what this command reads"},
		{"folder", dir, true, "folder"},
		{"no parent", filepath.Join(dir, "no", "x"), true, "no such file"},
		{"device", "/dev/null", false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := Files{Replace: c.replace}
			o.Input(input)
			defer o.Close()
			o.Open("--out", c.path)
			err := o.Err()
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || !strings.HasPrefix(err.Error(), "--out: ")):
				t.Errorf("error %v, want one of --out that says %q", err, c.want)
			}
		})
	}
	wantFile(t, old, "precious")
	wantFile(t, input, "precious")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 3 {
		t.Fatalf("the folder holds %v (%v), want old, input and link", entries, err)
	}

	var o Files
	a := o.Open("--a", fresh)
	o.Open("--b", dir+"/./fresh")
	if err := o.Err(); err == nil || !strings.Contains(err.Error(), "the file of --a") {
		t.Errorf("two outputs of one name: error %v", err)
	}
	if err := a.Write(write("whole")); err != nil {
		t.Fatal(err)
	}
	b := o.Open("--c", filepath.Join(dir, "failed"))
	if err := b.Write(func(io.Writer) error { return errors.New("broken") }); err == nil || err.Error() != "--c: broken" {
		t.Errorf("error %v, want --c: broken", err)
	}
	o.Close()
	wantFile(t, fresh, "whole")
	if _, err := os.Stat(filepath.Join(dir, "failed")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a failed output is there: %v", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out")
	unlock, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); err == nil || !strings.Contains(err.Error(), "another run is writing it") {
		t.Errorf("second lock: %v", err)
	}
	unlock()
	again, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	again()
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 0 {
		t.Errorf("the folder holds %v (%v), want nothing", entries, err)
	}
}

// TestDistinct: two outputs are one file under whatever names.
func TestDistinct(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.Mkdir(at("real"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("file"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"folder": "real", "link": "file", "new": "real/x"} {
		if err := os.Symlink(to, at(name)); err != nil {
			t.Skip(err)
		}
	}
	if err := os.Link(at("file"), at("hard")); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		a, b string
		one  bool
	}{
		{at("x"), dir + "/./real/../x", true},
		{at("x"), at("y"), false},
		{at("real/x"), at("folder/x"), true},
		{at("file"), at("link"), true},
		{at("file"), at("hard"), true},
		{at("new"), at("real/x"), true},
		{at("nowhere/x"), at("nowhere/x"), true},
		{at("nowhere/x"), at("nowhere/y"), false},
		{"", "", false},
		{"s3://bucket/x", "s3://bucket/x", false}, // each has names of its own below it
	} {
		err := Distinct(Named{"--log", c.a}, Named{"--none", ""}, Named{"--checkpoint", c.b})
		if (err != nil) != c.one || err != nil && !(strings.Contains(err.Error(), "--checkpoint: ") && strings.Contains(err.Error(), "the file of --log, too")) {
			t.Errorf("%s and %s: error %v, want one %v", c.a, c.b, err, c.one)
		}
	}
}
