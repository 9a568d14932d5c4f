package regularfile

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"testing"
)

// zeros have no end.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	clear(p)
	return len(p), nil
}

// TestLine: lines whatever the buffer is, and no more of a long one than it may have.
func TestLine(t *testing.T) {
	long := strings.Repeat("x", 99)
	r := bufio.NewReaderSize(strings.NewReader("a\n\n"+long+"\nend"), 16)
	for _, want := range []string{"a\n", "\n", long + "\n"} {
		if got, err := Line(r, 100); string(got) != want || err != nil {
			t.Errorf("%q, error %v, want %q", got, err, want)
		}
	}
	if got, err := Line(r, 100); string(got) != "end" || err != io.EOF {
		t.Errorf("%q, error %v, want the rest and io.EOF", got, err)
	}
	z := &zeros{}
	if _, err := Line(bufio.NewReader(z), 1<<20); !errors.Is(err, ErrLong) || z.read > 2<<20 {
		t.Errorf("error %v after %d bytes", err, z.read)
	}
}
