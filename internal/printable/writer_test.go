package printable

import (
	"strings"
	"testing"
)

// TestWriter: however a text is cut into writes, the same is shown.
func TestWriter(t *testing.T) {
	for _, s := range []string{"", "a\nb", "цены 日本 😀 \x1b[2J\u009b", "\xff\xe6\x97a\xf0\x9f", "\u202e\xe6\x97"} {
		for size := 1; size <= len(s); size++ {
			var got strings.Builder
			w := NewWriter(&got)
			for at := 0; at < len(s); at += size {
				piece := s[at:min(at+size, len(s))]
				if n, err := w.Write([]byte(piece)); n != len(piece) || err != nil {
					t.Fatalf("%d bytes written, error %v, want %d", n, err, len(piece))
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if want := Text(s); got.String() != want {
				t.Errorf("%q in pieces of %d bytes: %q, want %q", s, size, got.String(), want)
			}
		}
	}
}
