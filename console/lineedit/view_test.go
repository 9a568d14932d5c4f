package lineedit

import (
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"glimpse/internal/terminaltest"
)

// above is what stands on the screen before the prompt.
const above = "above"

// desk is a line with the screen that it is drawn on.
type desk struct {
	t      *testing.T
	screen terminaltest.Screen
	view   view
	line   line
}

func newDesk(t *testing.T, columns int) *desk {
	d := &desk{t: t, screen: terminaltest.Screen{Columns: columns, Reflow: true}}
	io.WriteString(&d.screen, above+"\n")
	d.view = view{out: &d.screen, columns: columns, prompt: "> "}
	d.view.drawLine("", 0)
	return d
}

func (d *desk) press(keys string) {
	d.t.Helper()
	for b := []byte(keys); len(b) > 0; {
		k, n := nextKey(b)
		if n == 0 {
			d.t.Fatalf("%q is no whole key", b)
		}
		b = b[n:]
		d.line.obey(k)
		d.view.drawLine(d.line.text, d.line.pos)
	}
}

// naive is a second implementation: characters in a list, with their columns.
type naive struct {
	characters []string
	at         int
}

var widths = map[string]int{"a": 1, "z": 1, " ": 1, "漢": 2, "字": 2, "😀": 2, "é": 1, "e\u0301": 1, "한": 2}

// rows are what a screen shows, and where the cursor is.
func (n *naive) rows(columns int) (rows []string, row, column int) {
	line, used := "> ", 2
	for i, c := range append(n.characters, "") {
		if used+widths[c] > columns || used == columns {
			rows, line, used = append(rows, strings.TrimRight(line, " ")), "", 0
		}
		if i == n.at {
			row, column = len(rows), used
		}
		line += strings.TrimSuffix(c, "\u0301")
		used += widths[c]
	}
	rows = append(rows, strings.TrimRight(line, " "))
	for len(rows) > 0 && rows[len(rows)-1] == "" {
		rows = rows[:len(rows)-1]
	}
	return append([]string{above}, rows...), 1 + row, column
}

func (n *naive) press(key string) string {
	remove := func(from, to int) {
		n.characters = append(n.characters[:from:from], n.characters[to:]...)
		n.at = from
	}
	word := func(step int) int {
		at := n.at
		if step < 0 {
			for at > 0 && n.characters[at-1] == " " {
				at--
			}
			for at > 0 && n.characters[at-1] != " " {
				at--
			}
			return at
		}
		for at < len(n.characters) && n.characters[at] != " " {
			at++
		}
		for at < len(n.characters) && n.characters[at] == " " {
			at++
		}
		return at
	}
	switch key {
	case "left":
		n.at = max(0, n.at-1)
		return "\x1b[D"
	case "right":
		n.at = min(len(n.characters), n.at+1)
		return "\x1b[C"
	case "home":
		n.at = 0
		return "\x01"
	case "end":
		n.at = len(n.characters)
		return "\x1b[F"
	case "word left":
		n.at = word(-1)
		return "\x1b[1;3D"
	case "word right":
		n.at = word(1)
		return "\x1bf"
	case "backspace":
		remove(max(0, n.at-1), n.at)
		return "\x7f"
	case "delete":
		at := n.at
		remove(at, min(len(n.characters), at+1))
		return "\x1b[3~"
	case "delete word":
		remove(word(-1), n.at)
		return "\x17"
	case "delete end":
		remove(n.at, len(n.characters))
		return "\x0b"
	}
	n.characters = append(n.characters[:n.at:n.at], append([]string{key}, n.characters[n.at:]...)...)
	n.at++
	return key
}

// TestView: whatever is typed in a window that may change at any moment, the screen and the
// cursor are as one that is laid out anew has them.
func TestView(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	keys := []string{"left", "left", "right", "home", "end", "word left", "word right", "backspace", "delete", "delete word", "delete end"}
	for c := range widths {
		keys = append(keys, c, c, c)
	}
	for range 60 {
		columns := 6 + r.IntN(20)
		d, n := newDesk(t, columns), naive{}
		var pressed []string
		for range 120 {
			key := keys[r.IntN(len(keys))]
			if r.IntN(40) == 0 {
				columns = 6 + r.IntN(20)
				key = fmt.Sprintf("%d columns", columns)
				d.screen.Resize(columns)
				d.view.resize(columns)
				d.view.drawLine(d.line.text, d.line.pos)
			} else {
				d.press(n.press(key))
			}
			pressed = append(pressed, key)
			rows, row, column := n.rows(columns)
			if got := strings.Join(d.screen.Rows(), "\n"); got != strings.Join(rows, "\n") || d.line.text != strings.Join(n.characters, "") {
				t.Fatalf("seed %d, %d columns, %q:\n%s\nwant\n%s", seed, columns, pressed, got, strings.Join(rows, "\n"))
			}
			if y, x := d.screen.Cursor(); y != row || x != column || d.screen.Err() != nil {
				t.Fatalf("seed %d, %d columns, %q: cursor at row %d, column %d, want %d, %d (%v)\n%s", seed, columns, pressed, y, x, row, column, d.screen.Err(), &d.screen)
			}
		}
	}
}

// TestCharacters: what a person sees as one character is one to all keys, and the cursor is
// where it should be also behind one that the terminal draws in another width.
func TestCharacters(t *testing.T) {
	const family = "👨\u200d👩\u200d👧"
	for name, c := range map[string]struct {
		keys, text string
		column     int
	}{
		"wide":              {"漢字\x1b[Dx", "漢x字", 2 + 3},
		"wide before":       {"漢字\x1b[D\x1b[D", "漢字", 2},
		"combined":          {"ae\u0301\x1b[D", "ae\u0301", 2 + 1},
		"combined, deleted": {"ae\u0301\x7f", "a", 2 + 1},
		"family":            {family + "ab\x1b[D", family + "ab", 2 + 2 + 1},
		"family, before":    {family + "ab\x01\x06x", family + "xab", 2 + 2 + 1},
		"family, deleted":   {"a" + family + "\x7f", "a", 2 + 1},
		"flags":             {"🇩🇪🇫🇷\x1b[D\x7f", "🇫🇷", 2},
		"right to left":     {"a\u202eb", "a\u202eb", 2 + len(`a\u202eb`)},
		"transposed":        {"漢字a\x14", "漢a字", 2 + 5},
		"control":           {"a\x1b[99~\x1bq\x1bOPb\x1a\xffc\u009b", "abc", 2 + 3},
	} {
		d := newDesk(t, 40)
		d.press(c.keys)
		if _, x := d.screen.Cursor(); d.line.text != c.text || x != c.column || d.screen.Err() != nil {
			t.Errorf("%s: %q, cursor at column %d, want %q, %d (%v)", name, d.line.text, x, c.text, c.column, d.screen.Err())
		}
	}
}

// TestHistoryKeys: the line that was begun comes back, and edits of older lines are of the
// one that is entered only.
func TestHistoryKeys(t *testing.T) {
	d := newDesk(t, 40)
	d.line.history, d.line.at = []string{"one", "two"}, 2
	d.line.complete = func(string) []string { return []string{"/policy snapkv", "/policy snapstream"} }
	for _, step := range []struct{ keys, want string }{
		{"new", "new"}, {"\x1b[A", "two"}, {"\x10", "one"}, {"\x1b[A", "one"}, {"!\x0e", "two"}, {"\x1b[B", "new"}, {"\x1bOB", "new"},
		{"\x15/po\t", "/policy snap"}, {"k\t", "/policy snapkv"}, {"\x01x\t", "x/policy snapkv"},
	} {
		if d.press(step.keys); d.line.text != step.want {
			t.Fatalf("%q: %q, want %q", step.keys, d.line.text, step.want)
		}
	}
}

// TestQuiet: keys that change nothing write nothing, and a character at the end only itself.
func TestQuiet(t *testing.T) {
	var out strings.Builder
	v := view{out: &out, columns: 40, prompt: "> "}
	v.drawLine("ab", 2)
	out.Reset()
	v.drawLine("ab", 2)
	v.drawLine("abc", 3)
	if out.String() != "c" {
		t.Errorf("%q, want %q", out.String(), "c")
	}
}
