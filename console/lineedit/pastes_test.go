package lineedit

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// However the bytes are cut into reads, keys pass, and pastes come as one piece.
func TestPastes(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	for name, c := range map[string]struct{ typed, shown, line string }{
		"keys":                {"a\x1b[Db\x1b\r\x1b[C!\r", "ba!", "ba!"},
		"short paste":         {"x " + pasteBegin + "été" + pasteEnd + "\r", "x été", "x été"},
		"in the middle":       {"ad\x1b[D" + pasteBegin + "bc" + pasteEnd + "!\r", "abc!d", "abc!d"},
		"no text":             {"a" + pasteBegin + "\xff" + pasteEnd + "\r", "a\uFFFD", "a\uFFFD"},
		"lines":               {pasteBegin + "a\r\nb\rc\n" + pasteEnd + "\r", "[paste 1: 5 characters]", "a\nb\nc"},
		"long":                {"see " + pasteBegin + long + pasteEnd + "!\r", "see [paste 1: 10000 characters]!", "see " + long + "!"},
		"two":                 {pasteBegin + "a\nb" + pasteEnd + pasteBegin + "c\nd" + pasteEnd + "\r", "[paste 1: 3 characters][paste 2: 3 characters]", "a\nbc\nd"},
		"controls":            {pasteBegin + "a\x03\x1b[2Jb" + pasteEnd + "\r", "[paste 1: 7 characters]", "a\x03\x1b[2Jb"},
		"after an escape":     {"\x1b" + pasteBegin + "a\nb" + pasteEnd + "\r", "[paste 1: 3 characters]", "a\nb"},
		"within a sequence":   {"\x1b[1;" + pasteBegin + "a\nb" + pasteEnd + "\r", "[paste 1: 3 characters]", "a\nb"},
		"within a keypad key": {"\x1bO" + pasteBegin + "a\nb" + pasteEnd + "\r", "[paste 1: 3 characters]", "a\nb"},
	} {
		for cut, in := range map[string]io.Reader{"whole": strings.NewReader(c.typed), "bytes": iotest.OneByteReader(strings.NewReader(c.typed))} {
			e := &Editor{in: in, fd: -1, view: view{out: io.Discard, columns: 80}}
			got, err := e.edit()
			if err != nil || got != c.shown {
				t.Errorf("%s, %s: %q (%v), want %q", name, cut, got, err, c.shown)
			}
			if line := e.pastes.expand(got); line != c.line {
				t.Errorf("%s, %s: %.80q, want %.80q", name, cut, line, c.line)
			}
		}
	}
}
