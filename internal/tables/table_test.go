package tables

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func sample() *Table {
	t := New(Column{Head: "NAME"}, Column{Head: "KEPT", Right: true}, Column{Head: "RULE", Wrap: true},
		Column{Head: "OPTIONS", Optional: 1}, Column{Head: "SOURCE", Optional: 2})
	t.Add("snapkv", "5", "the attention of the last queries of the prompt, pooled over its neighbours", "window=32", "arXiv:2404.14469")
	t.Add("h2o", "12", "é")
	return t
}

func TestTable(t *testing.T) {
	for columns, want := range map[int]string{
		0: `NAME    KEPT  RULE                                                                         OPTIONS    SOURCE
snapkv     5  the attention of the last queries of the prompt, pooled over its neighbours  window=32  arXiv:2404.14469
h2o       12  é
`,
		80: `NAME    KEPT  RULE                                  OPTIONS    SOURCE
snapkv     5  the attention of the last queries of  window=32  arXiv:2404.14469
              the prompt, pooled over its
              neighbours
h2o       12  é
`,
		60: `NAME    KEPT  RULE                                OPTIONS
snapkv     5  the attention of the last queries   window=32
              of the prompt, pooled over its
              neighbours
h2o       12  é
(not shown, for want of room: SOURCE)
`,
		45: `NAME    KEPT  RULE
snapkv     5  the attention of the last
              queries of the prompt, pooled
              over its neighbours
h2o       12  é
(not shown, for want of room: SOURCE,
OPTIONS)
`,
	} {
		var out strings.Builder
		if err := sample().Write(&out, columns); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if got != want {
			t.Errorf("%d columns:\n%swant\n%s", columns, got, want)
		}
		for line := range strings.Lines(got) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 0 && n >= columns {
				t.Errorf("%d columns: a line of %d characters: %q", columns, n, line)
			}
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text    string
		columns int
		want    string
	}{
		{"one two three", 0, "one two three"},
		{"one two three", 8, "one two\nthree"},
		{"one two three", 7, "one\ntwo\nthree"},
		{"a\nlongerword b", 5, "a\nlongerword\nb"},
		{"", 5, ""},
	} {
		if got := Wrap(c.text, c.columns); got != c.want {
			t.Errorf("%q in %d columns: %q, want %q", c.text, c.columns, got, c.want)
		}
	}
}

func TestReflow(t *testing.T) {
	const text = "one two three\nfour\n\n  a list of\n  things\nfive"
	for columns, want := range map[int]string{
		0:  text,
		40: text,
		13: "one two\nthree four\n\n  a list of\n  things\nfive",
		11: "one two\nthree four\n\n  a list\nof\n  things\nfive",
	} {
		if got := Reflow(text, columns); got != want {
			t.Errorf("%d columns: %q, want %q", columns, got, want)
		}
	}
}

// A file and a buffer have lines of any length.
func TestColumnsOfNoTerminal(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if a, b := Columns(f), Columns(&strings.Builder{}); a != 0 || b != 0 {
		t.Errorf("%d and %d columns, want 0", a, b)
	}
}

func TestBreakName(t *testing.T) {
	cases := []struct {
		name  string
		limit int
		want  []string
	}{
		{"short", 5, []string{"short"}},
		{"question_first", 9, []string{"question_", "first"}},
		{"a_b_c_d", 4, []string{"a_b_", "c_d"}},
		{"ordinal", 5, []string{"ordinal"}}, // no word is split
		{"fünf_zehn", 4, []string{"fünf_", "zehn"}},
		{"trailing_", 9, []string{"trailing_"}},
	}
	for _, c := range cases {
		t.Run(fmt.Sprintf("%s/%d", c.name, c.limit), func(t *testing.T) {
			if got := breakName(c.name, c.limit); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// TestBrokenNames: all names are broken alike and no more than it takes, heads stand on the rule, and
// a column of a name is one space from that before it.
func TestBrokenNames(t *testing.T) {
	t1 := New(Column{Head: "policy"}, Column{Head: "one_two\nn=3", Right: true, Break: true}, Column{Head: "three_four", Right: true, Break: true}, Column{Head: "KiB", Right: true})
	t1.Ruled, t1.Room = true, 24
	t1.Add("snapkv", "50", "100", "8")
	for room, want := range map[int]string{
		24: "       one_\n        two three_\npolicy  n=3   four  KiB\n────── ──── ──────  ───\nsnapkv   50    100    8\n",
		26: "       one_two three_\npolicy     n=3   four  KiB\n────── ─────── ──────  ───\nsnapkv      50    100    8\n",
		32: "       one_two\npolicy     n=3 three_four  KiB\n────── ─────── ──────────  ───\nsnapkv      50        100    8\n",
	} {
		t1.Room = room
		var out strings.Builder
		if err := t1.Write(&out, 0); err != nil || out.String() != want {
			t.Errorf("room for %d:\n%s%v, want\n%s", room, &out, err, want)
		}
	}
}
