package lineedit

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// However the bytes are cut into reads, keys pass, and pastes come as one piece.
func TestKeys(t *testing.T) {
	long := strings.Repeat("word ", 2000)
	for name, c := range map[string]struct{ typed, shown, line string }{
		"keys":        {"a\x1b[Db\x1b\r", "a\x1b[Db\x1b\r", ""},
		"interrupt":   {"ab\x03c", "ab\x03c", ""},
		"short paste": {"x " + pasteBegin + "été" + pasteEnd + "\r", "x été\r", ""},
		"lines":       {pasteBegin + "a\r\nb\rc\n" + pasteEnd, "[paste 1: 5 characters]", "a\nb\nc"},
		"long":        {"see " + pasteBegin + long + pasteEnd + "!", "see [paste 1: 10000 characters]!", "see " + long + "!"},
		"two":         {pasteBegin + "a\nb" + pasteEnd + pasteBegin + "c\nd" + pasteEnd, "[paste 1: 3 characters][paste 2: 3 characters]", "a\nbc\nd"},
		"controls":    {pasteBegin + "a\x03\x1b[2Jb" + pasteEnd, "[paste 1: 7 characters]", "a\x03\x1b[2Jb"},
	} {
		for cut, in := range map[string]io.Reader{"whole": strings.NewReader(c.typed), "bytes": iotest.OneByteReader(strings.NewReader(c.typed))} {
			k := &keys{in: in, before: func() {}}
			got, err := io.ReadAll(k)
			if err != nil || !bytes.Equal(got, []byte(c.shown)) {
				t.Errorf("%s, %s: %q (%v), want %q", name, cut, got, err, c.shown)
			}
			if line := k.expand(string(got)); c.line != "" && line != c.line {
				t.Errorf("%s, %s: %.80q, want %.80q", name, cut, line, c.line)
			}
		}
	}
}
