package lineedit

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// keys are the bytes from a terminal, but for pastes: a paste has line ends that do not end
// the line, and control characters that are no keys.
type keys struct {
	in     io.Reader
	before func() // each Read returns

	held    []byte // read, and not yet looked at
	out     []byte // to be returned
	pasting bool
	paste   []byte
	pasted  map[string]string // what stands for a paste, and the paste
}

const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
	// A longer paste, and one of several lines, is shown as its length.
	maxShown = 200
)

// Read implements io.Reader.
func (k *keys) Read(p []byte) (int, error) {
	buffer := make([]byte, 4096)
	for len(k.out) == 0 {
		n, err := k.in.Read(buffer)
		k.held = append(k.held, buffer[:n]...)
		k.look()
		if err != nil && len(k.out) == 0 {
			return 0, err
		}
	}
	k.before()
	n := copy(p, k.out)
	k.out = k.out[n:]
	return n, nil
}

// look takes what is held apart, up to a sequence that is not complete.
func (k *keys) look() {
	for len(k.held) > 0 {
		mark := pasteBegin
		if k.pasting {
			mark = pasteEnd
		}
		n := bytes.IndexByte(k.held, '\x1b')
		if n < 0 {
			n = len(k.held)
		}
		k.take(k.held[:n])
		k.held = k.held[n:]
		switch {
		case len(k.held) == 0:
		case bytes.HasPrefix(k.held, []byte(mark)):
			k.held = k.held[len(mark):]
			if k.pasting {
				k.endPaste()
			}
			k.pasting = !k.pasting
		case len(k.held) < len(mark) && strings.HasPrefix(mark, string(k.held)):
			return // the rest is to come
		default:
			k.take(k.held[:1])
			k.held = k.held[1:]
		}
	}
	k.held = nil
}

// take takes bytes that are no mark.
func (k *keys) take(b []byte) {
	if k.pasting {
		k.paste = append(k.paste, b...)
		return
	}
	k.out = append(k.out, b...)
}

// endPaste writes a short paste as if it were typed, and a mark for any other.
func (k *keys) endPaste() {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(k.paste))
	k.paste = nil
	text = strings.TrimSuffix(strings.ToValidUTF8(text, "\uFFFD"), "\n")
	length := utf8.RuneCountInString(text)
	if length <= maxShown && !strings.ContainsFunc(text, unicode.IsControl) {
		k.out = append(k.out, text...)
		return
	}
	mark := fmt.Sprintf("[paste %d: %d characters]", len(k.pasted)+1, length)
	if k.pasted == nil {
		k.pasted = make(map[string]string)
	}
	k.pasted[mark] = text
	k.out = append(k.out, mark...)
}

// expand puts pastes in the place of what stands for them.
func (k *keys) expand(line string) string {
	var b strings.Builder
	for {
		at, mark := len(line), ""
		for m := range k.pasted {
			if i := strings.Index(line, m); i >= 0 && i < at {
				at, mark = i, m
			}
		}
		b.WriteString(line[:at])
		if mark == "" {
			return b.String()
		}
		b.WriteString(k.pasted[mark])
		line = line[at+len(mark):]
	}
}
