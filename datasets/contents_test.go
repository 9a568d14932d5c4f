package datasets_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"glimpse/datasets"
)

func contentsOf(t *testing.T, name, path string) (c datasets.Contents) {
	t.Helper()
	if err := c.Add(t.Context(), name, path); err != nil {
		t.Fatal(err)
	}
	return c
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// TestContents: every file of a folder by its name, hidden ones left out, and of a large folder all
// as one.
func TestContents(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"b.jsonl": "b", "a/a.txt": "a", ".hidden": "x", ".cache/c": "x"})
	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	want := datasets.Contents{{File: "s3://data/all/a/a.txt", SHA256: sum("a")}, {File: "s3://data/all/b.jsonl", SHA256: sum("b")}}
	if got := contentsOf(t, "s3://data/all", dir); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("a folder: %v, want %v", got, want)
	}
	if got := contentsOf(t, "mine", filepath.Join(dir, "b.jsonl")); fmt.Sprint(got) != fmt.Sprint(datasets.Contents{{File: "mine", SHA256: sum("b")}}) {
		t.Errorf("a file: %v", got)
	}
	large, lines := t.TempDir(), ""
	for i := range 65 {
		name := fmt.Sprintf("%03d.txt", i)
		writeFiles(t, large, map[string]string{name: name})
		lines += sum(name) + "  " + name + "\n"
	}
	if got := contentsOf(t, "large", large); fmt.Sprint(got) != fmt.Sprint(datasets.Contents{{File: "large/", SHA256: sum(lines)}}) {
		t.Errorf("a large folder: %v", got)
	}
	if err := new(datasets.Contents).Add(t.Context(), "absent", filepath.Join(dir, "absent")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an absent file: %v", err)
	}
}

// TestContentsSince: what is changed, new or gone is named; a file that has grown is changed, too.
func TestContentsSince(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"same": "1", "grown": "1\n", "gone": "1"})
	was := contentsOf(t, "d", dir)
	if note, err := was.Since(was, false); note != "" || err != nil {
		t.Errorf("the same: %q, %v", note, err)
	}
	writeFiles(t, dir, map[string]string{"grown": "1\n2\n", "new": "1"})
	if err := os.Remove(filepath.Join(dir, "gone")); err != nil {
		t.Fatal(err)
	}
	now := contentsOf(t, "d", dir)
	_, err := now.Since(was, false)
	if !errors.Is(err, datasets.ErrDataChanged) {
		t.Fatalf("changed: %v", err)
	}
	note, accepted := now.Since(was, true)
	if accepted != nil {
		t.Errorf("accepted: %v", accepted)
	}
	for _, text := range []string{err.Error(), note} {
		for _, part := range []string{`"d/grown" has SHA-256 `, `"d/new" is new`, `"d/gone" is gone`} {
			if !strings.Contains(text, part) {
				t.Errorf("%q, want it to say %q", text, part)
			}
		}
		if strings.Contains(text, "d/same") {
			t.Errorf("%q names the file that is the same", text)
		}
	}
	if note, err := now.Since(nil, false); err != nil || !strings.Contains(note, "did not record") {
		t.Errorf("no record: %q, %v", note, err)
	}
	if note, err := (datasets.Contents)(nil).Since(nil, false); note != "" || err != nil {
		t.Errorf("no data: %q, %v", note, err)
	}
}

// TestContentsOfStreams: synthetic prompts are identified by what is drawn.
func TestContentsOfStreams(t *testing.T) {
	of := func(tokens int) datasets.Contents {
		s, err := datasets.NewStream([]string{"needle", "key1"}, datasets.Train, tokens, 1)
		if err != nil {
			t.Fatal(err)
		}
		var c datasets.Contents
		if err := c.AddStream(s); err != nil {
			t.Fatal(err)
		}
		return c
	}
	a, again, other := of(64), of(64), of(96)
	if len(a) != 1 || a.Differences(again) != "" || a[0].SHA256 == other[0].SHA256 {
		t.Errorf("%v, again %v, of other lengths %v", a, again, other)
	}
}
