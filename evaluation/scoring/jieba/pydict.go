package jieba

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// parseDict reads the first dictionary of a Python source file whose keys are
// strings and whose values are numbers or such dictionaries again, and hands over
// every number with the keys that lead to it. keys is only valid during the call.
func parseDict(src []byte, visit func(keys []string, v float64) error) error {
	p := dictParser{src: src, visit: visit}
	p.pos = bytes.IndexByte(src, '{')
	if p.pos < 0 {
		return fmt.Errorf("no dictionary")
	}
	if err := p.dict(); err != nil {
		return fmt.Errorf("line %d: %w", 1+bytes.Count(src[:min(p.pos, len(src))], []byte("\n")), err)
	}
	return nil
}

// maxDepth bounds the recursion; the files of jieba have two levels.
const maxDepth = 4

type dictParser struct {
	src   []byte
	pos   int
	keys  []string
	visit func(keys []string, v float64) error
}

// dict reads a dictionary whose opening brace is next.
func (p *dictParser) dict() error {
	if len(p.keys) == maxDepth {
		return fmt.Errorf("dictionaries nested deeper than %d", maxDepth)
	}
	p.pos++
	for {
		switch c := p.next(); c {
		case '}':
			p.pos++
			return nil
		case ',':
			p.pos++
			continue
		case '\'', '"':
		default:
			return fmt.Errorf("found %q, want a quoted key", c)
		}
		key, err := p.text()
		if err != nil {
			return err
		}
		if c := p.next(); c != ':' {
			return fmt.Errorf("found %q after key %q, want a colon", c, key)
		}
		p.pos++
		p.keys = append(p.keys, key)
		if p.next() == '{' {
			err = p.dict()
		} else {
			err = p.number()
		}
		if err != nil {
			return err
		}
		p.keys = p.keys[:len(p.keys)-1]
	}
}

// next skips white space and returns the byte that follows; 0 at the end.
func (p *dictParser) next() byte {
	for p.pos < len(p.src) {
		if c := p.src[p.pos]; c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			return c
		}
		p.pos++
	}
	return 0
}

func (p *dictParser) text() (string, error) {
	quote := p.src[p.pos]
	rest := p.src[p.pos+1:]
	var out []byte
	for i := 0; i < len(rest); i++ {
		switch c := rest[i]; c {
		case quote:
			p.pos += i + 2
			return string(out), nil
		case '\\':
			if i+5 >= len(rest) || rest[i+1] != 'u' {
				return "", fmt.Errorf("escape other than \\uXXXX")
			}
			r, err := strconv.ParseUint(string(rest[i+2:i+6]), 16, 16)
			if err != nil {
				return "", fmt.Errorf("escape \\u%s: %w", rest[i+2:i+6], err)
			}
			out = utf8.AppendRune(out, rune(r))
			i += 5
		case '\n':
			return "", fmt.Errorf("string without an end")
		default:
			out = append(out, c)
		}
	}
	return "", fmt.Errorf("string without an end")
}

func (p *dictParser) number() error {
	from := p.pos
	for p.pos < len(p.src) && bytes.IndexByte([]byte("+-.eE0123456789"), p.src[p.pos]) >= 0 {
		p.pos++
	}
	v, err := strconv.ParseFloat(string(p.src[from:p.pos]), 64)
	if err != nil {
		return fmt.Errorf("value of %q: %w", p.keys, err)
	}
	return p.visit(p.keys, v)
}
