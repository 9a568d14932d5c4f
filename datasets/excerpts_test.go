package datasets_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"glimpse/datasets"
)

// TestExcerpts: parts of all documents, of the lengths asked for, the same for a seed; what is no text is passed over in a folder
// and refused by name.
func TestExcerpts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.txt": strings.Repeat("one two three. ", 200), "b.md": strings.Repeat("four five six.\n", 200), "c.go": "package c", "broken.txt": "\xff\xfe", "d.txt": "  ",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ids := map[string]int32{}
	encode := func(text string) (out []int32, err error) {
		for _, w := range strings.Fields(text) {
			if _, ok := ids[w]; !ok {
				ids[w] = int32(len(ids))
			}
			out = append(out, ids[w])
		}
		return out, nil
	}
	draw := func(seed uint64) (all [][]int32) {
		e, err := datasets.OpenExcerpts([]string{dir}, 10, 20, seed, encode)
		if err != nil {
			t.Fatal(err)
		}
		for range 30 {
			next, err := e.Next()
			if err != nil {
				t.Fatal(err)
			}
			if len(next) < 10 || len(next) > 20 {
				t.Errorf("%d tokens", len(next))
			}
			all = append(all, next)
		}
		return all
	}
	all := draw(1)
	for _, w := range []string{"one", "four"} {
		if !slices.ContainsFunc(all, func(x []int32) bool { return slices.Contains(x, ids[w]) }) {
			t.Errorf("nothing of the document with %q", w)
		}
	}
	if again := draw(1); !slices.EqualFunc(all, again, slices.Equal) {
		t.Error("the same seed draws others")
	}
	if other := draw(2); slices.EqualFunc(all, other, slices.Equal) {
		t.Error("another seed draws the same")
	}
	e, err := datasets.OpenExcerpts([]string{dir}, 10, 20, 1, encode)
	if err != nil {
		t.Fatal(err)
	}
	rest, held := e.HoldOut(0.1) // of 6,000 bytes the last 600, all of the second document
	for i := range 30 {
		a, errA := rest.At(i)
		b, errB := held.At(29 - i)
		again, errC := held.At(29 - i)
		if err := errors.Join(errA, errB, errC); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(b, ids["one"]) || !slices.Equal(b, again) || len(a) < 10 {
			t.Errorf("excerpt %d: %v; held out %v and then %v", i, a, b, again)
		}
	}
	if first, _ := rest.At(1); slices.Equal(first, mustAt(t, rest, 2)) {
		t.Error("two excerpts are the same")
	}
	for path, want := range map[string]string{filepath.Join(dir, "broken.txt"): "UTF-8", filepath.Join(dir, "none"): "no such file", t.TempDir(): "got none"} {
		if _, err := datasets.OpenExcerpts([]string{path}, 10, 20, 1, encode); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	e, err = datasets.OpenExcerpts([]string{dir}, 5000, 5000, 1, encode)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Next(); err == nil || !strings.Contains(err.Error(), "5000 tokens") {
		t.Errorf("longer than any document: %v", err)
	}
}

func mustAt(t *testing.T, e *datasets.Excerpts, i int) []int32 {
	t.Helper()
	ids, err := e.At(i)
	if err != nil {
		t.Fatal(err)
	}
	return ids
}
