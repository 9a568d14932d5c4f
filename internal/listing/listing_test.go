package listing

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	if got, want := Names([]string{"b", "a\x1b[2J"}), `"a\x1b[2J", "b"`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	many := make([]string, 200_000)
	for i := range many {
		many[i] = fmt.Sprintf("n%06d", i)
	}
	if got, end := Names(many), `"n000019" and 199980 more`; !strings.HasSuffix(got, end) || len(got) > 1000 {
		t.Errorf("%d bytes that end with %q, want %q", len(got), got[len(got)-30:], end)
	}
}

func TestJoin(t *testing.T) {
	if JoinErrors(nil) != nil {
		t.Error("no errors are an error")
	}
	var all []error
	for i := range 200_000 {
		all = append(all, fmt.Errorf("file %d: %w", i, fs.ErrNotExist))
	}
	if got := JoinErrors(all[:20]).Error(); strings.Contains(got, "more") || strings.Count(got, "\n") != 19 {
		t.Errorf("20 errors: %s", got)
	}
	err := JoinErrors(append(all, fs.ErrClosed))
	if got := err.Error(); !strings.HasSuffix(got, "file 19: file does not exist\nand 199981 more") || len(got) > 1000 {
		t.Errorf("%d bytes: %.1200s", len(got), got)
	}
	if !errors.Is(err, fs.ErrNotExist) || !errors.Is(err, fs.ErrClosed) {
		t.Error("an error is lost")
	}
}

func TestMap(t *testing.T) {
	if got := Map([]int{3, 1, 2}, func(n int) string { return Count(n, "byte") }); !slices.Equal(got, []string{"3 bytes", "1 byte", "2 bytes"}) {
		t.Errorf("%q", got)
	}
	if got := Map(nil, func(n int) int { return n }); got != nil {
		t.Errorf("of nothing: %v, want nil", got)
	}
}

func TestGroup(t *testing.T) {
	got := Group([]string{"pear", "fig", "plum", "kiwi", "nut"}, func(s string) int { return len(s) })
	if want := [][]string{{"pear", "plum", "kiwi"}, {"fig", "nut"}}; !slices.EqualFunc(got, want, slices.Equal) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestUnion(t *testing.T) {
	list := append(make([]int, 0, 8), 1, 2)
	if got := Union(list, 2, 3, 3, 1, 4); !slices.Equal(got, []int{1, 2, 3, 4}) {
		t.Errorf("got %v", got)
	}
	if _ = Union(list, 5); list[:3][2] == 5 {
		t.Error("the list's own memory was written to")
	}
}
