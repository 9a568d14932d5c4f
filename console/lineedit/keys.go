package lineedit

import (
	"bytes"
	"unicode/utf8"
)

// key is a character, a control character, or one of these.
type key rune

const (
	keyNone key = -1 - iota
	keyLeft
	keyRight
	keyWordLeft
	keyWordRight
	keyHome
	keyEnd
	keyUp
	keyDown
	keyBackspace
	keyDelete
	keyDeleteWord
	keyDeleteStart
	keyDeleteEnd
	keyTranspose
	keyClear
	keyEOF // deletes, where the line is not empty
	keyInterrupt
	keyPaste
)

// controls are keys that have one byte.
var controls = map[byte]key{
	1: keyHome, 2: keyLeft, 3: keyInterrupt, 4: keyEOF, 5: keyEnd, 6: keyRight, 8: keyBackspace, 11: keyDeleteEnd, 12: keyClear,
	14: keyDown, 16: keyUp, 20: keyTranspose, 21: keyDeleteStart, 23: keyDeleteWord, 127: keyBackspace,
}

// sequences are keys that have an escape, by the characters after it.
var sequences = map[string]key{
	"[A": keyUp, "[B": keyDown, "[C": keyRight, "[D": keyLeft, "[H": keyHome, "[F": keyEnd,
	"OA": keyUp, "OB": keyDown, "OC": keyRight, "OD": keyLeft, "OH": keyHome, "OF": keyEnd,
	"[1~": keyHome, "[7~": keyHome, "[3~": keyDelete, "[4~": keyEnd, "[8~": keyEnd,
	"[1;3C": keyWordRight, "[1;3D": keyWordLeft, "[1;5C": keyWordRight, "[1;5D": keyWordLeft,
	"f": keyWordRight, "b": keyWordLeft, "\x7f": keyDeleteWord,
}

// What a terminal marks a paste with.
const (
	pasteBegin = "\x1b[200~"
	pasteEnd   = "\x1b[201~"
)

// nextKey is the key that b begins with, and its bytes; 0 where the rest of it is to come.
func nextKey(b []byte) (key, int) {
	if len(b) == 0 {
		return keyNone, 0
	}
	if b[0] != '\x1b' {
		if k, ok := controls[b[0]]; ok {
			return k, 1
		}
		if !utf8.FullRune(b) {
			return keyNone, 0
		}
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			return keyNone, 1
		}
		return key(r), n
	}
	if len(b) < 2 {
		return keyNone, 0
	}
	n := 2
	switch b[1] {
	case '[': // parameters, and a last byte (ECMA-48, 5.4)
		i := bytes.IndexFunc(b[2:], func(r rune) bool { return r < ' ' || r >= '@' })
		if i < 0 {
			return keyNone, 0
		}
		n += i + 1
		if bytes.HasPrefix(b, []byte(pasteBegin)) { // it has line ends that end no line, and controls that are no keys
			end := bytes.Index(b, []byte(pasteEnd))
			if end < 0 {
				return keyNone, 0
			}
			return keyPaste, end + len(pasteEnd)
		}
	case 'O':
		if len(b) < 3 {
			return keyNone, 0
		}
		n++
	}
	if b[n-1] == '\x1b' { // it begins the next sequence, as that of a paste
		n--
	}
	if k, ok := sequences[string(b[1:n])]; ok {
		return k, n
	}
	return keyNone, n
}
