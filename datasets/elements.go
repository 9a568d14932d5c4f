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

// nesting is where a byte of JSON stands: how deep in brackets, and whether in a string.
type nesting struct {
	depth           int
	quoted, escaped bool
}

func (n *nesting) outside() bool { return n.depth == 0 && !n.quoted }

// step goes past a byte.
func (n *nesting) step(c byte) {
	switch {
	case n.escaped:
		n.escaped = false
	case n.quoted:
		n.quoted, n.escaped = c != '"', c == '\\'
	case c == '"':
		n.quoted = true
	case c == '{' || c == '[':
		n.depth++
	case c == '}' || c == ']':
		n.depth = max(0, n.depth-1)
	}
}

// nextElement returns the text of an element, which is valid until the next, or io.EOF after the
// last. After errLongElement the next element follows.
func (e *elements) nextElement() ([]byte, error) {
	if e.ended {
		return nil, e.rest()
	}
	e.text = e.text[:0]
	c, err := e.skipBlanks()
	if e.array && !e.begun && err == nil {
		if e.begun = true; c != '[' {
			return nil, fmt.Errorf("got %q, want a list", c)
		}
		c, err = e.skipBlanks()
	}
	var at nesting
	for length := 0; ; c, err = e.r.ReadByte() {
		switch {
		case err == io.EOF && length == 0 && !e.array:
			return nil, io.EOF
		case err == io.EOF:
			return nil, errors.New("got the end of the file, want that of the element")
		case err != nil:
			return nil, fmt.Errorf("read: %w", err)
		case !e.array && length == 0 && c != '{':
			return nil, fmt.Errorf("got %q, want an object", c)
		case e.array && (c == ',' || c == ']') && at.outside():
			if e.ended = c == ']'; e.ended && length == 0 && e.count == 0 {
				return nil, e.rest()
			}
			return e.takeElement(length)
		}
		at.step(c)
		if length++; length < MaxLine {
			e.text = append(e.text, c)
		}
		if !e.array && at.outside() {
			return e.takeElement(length)
		}
	}
}

// skipBlanks returns the first byte that is none.
func (e *elements) skipBlanks() (byte, error) {
	for {
		if c, err := e.r.ReadByte(); err != nil || !isSpace(c) {
			return c, err
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
	c, err := e.skipBlanks()
	switch {
	case err == io.EOF:
		return io.EOF
	case err != nil:
		return fmt.Errorf("read: %w", err)
	}
	return fmt.Errorf("got %q after the end of the list, want nothing", c)
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
