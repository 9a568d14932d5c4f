package datasets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

var errLongElement = fmt.Errorf("got an element of more than %d bytes, want at most that", MaxLine-1)

// elements splits a JSON array into its elements, or a text of objects one after another.
// Only strings and brackets are looked at: what is within is for those who read it.
type elements struct {
	r     io.ByteReader
	array bool
	begun bool // the array's first bracket was read
	ended bool // and its last
	count int  // elements returned
	text  []byte
}

// nextElement returns the text of an element, which is valid until the next, or io.EOF after the
// last. After errLongElement the next element follows.
func (e *elements) nextElement() ([]byte, error) {
	if e.ended {
		return nil, e.rest()
	}
	e.text = e.text[:0]
	depth, length, quoted, escaped := 0, 0, false, false
	for {
		c, err := e.r.ReadByte()
		blank := length == 0
		switch {
		case err == io.EOF && blank && !e.array:
			return nil, io.EOF
		case err == io.EOF:
			return nil, errors.New("got the end of the file, want that of the element")
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		case blank && isSpace(c):
			continue
		case e.array && !e.begun:
			if e.begun = true; c != '[' {
				return nil, fmt.Errorf("got %q, want a list", c)
			}
			continue
		case !e.array && blank && c != '{':
			return nil, fmt.Errorf("got %q, want an object", c)
		case escaped:
			escaped = false
		case quoted:
			quoted, escaped = c != '"', c == '\\'
		case c == '"':
			quoted = true
		case c == '{' || c == '[':
			depth++
		case e.array && depth == 0 && (c == ',' || c == ']'):
			if e.ended = c == ']'; e.ended && blank && e.count == 0 {
				return nil, e.rest()
			}
			return e.takeElement(length)
		case c == '}' || c == ']':
			depth = max(0, depth-1)
		}
		if length++; length < MaxLine {
			e.text = append(e.text, c)
		}
		if !e.array && depth == 0 && !quoted {
			return e.takeElement(length)
		}
	}
}

func (e *elements) takeElement(length int) ([]byte, error) {
	e.count++
	if length >= MaxLine {
		return nil, errLongElement
	}
	return bytes.TrimRight(e.text, " \t\r\n"), nil
}

// rest is io.EOF unless more than blanks follow the array.
func (e *elements) rest() error {
	for {
		c, err := e.r.ReadByte()
		switch {
		case err == io.EOF:
			return io.EOF
		case err != nil:
			return fmt.Errorf("read: %w", err)
		case !isSpace(c):
			return fmt.Errorf("got %q after the end of the list, want nothing", c)
		}
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// elementsOf are the elements of a JSON array.
func elementsOf(raw []byte) ([]json.RawMessage, error) {
	e := elements{r: bytes.NewReader(raw), array: true}
	var items []json.RawMessage
	for {
		item, err := e.nextElement()
		if err == io.EOF {
			return items, nil
		}
		if err != nil {
			return nil, err
		}
		items = append(items, bytes.Clone(item))
	}
}
