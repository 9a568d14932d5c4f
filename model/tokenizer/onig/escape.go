package onig

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// places are the escapes that assert one, controls those that are a control character.
var (
	places   = map[byte]place{'A': textStart, 'z': textEnd, 'Z': lastLineEnd, 'b': wordBoundary, 'B': noWordBoundary}
	controls = map[rune]rune{'t': '\t', 'n': '\n', 'r': '\r', 'f': '\f', 'v': '\v', 'a': '\a', 'e': 0x1b}
)

// escape parses what follows a backslash outside a class.
func (p *parser) escape() (*node, error) {
	if !p.more() {
		return nil, p.errorf("backslash at the end")
	}
	if set, ok, err := p.classEscape(false); ok || err != nil {
		return &node{kind: kindSet, set: set}, err
	}
	if place, ok := places[p.src[p.at]]; ok {
		p.at++
		return &node{kind: kindAssert, place: place}, nil
	}
	switch p.src[p.at] {
	case 'N':
		p.at++
		return &node{kind: kindSet, set: single('\n').negated()}, nil
	case 'O':
		p.at++
		return &node{kind: kindSet, set: runeSet(nil).negated()}, nil
	case 'R':
		p.at++
		crlf := &node{kind: kindCat, subs: []*node{{kind: kindSet, set: single('\r')}, {kind: kindSet, set: single('\n')}}}
		other := &node{kind: kindSet, set: runeSet{{'\n', '\r'}, {0x85, 0x85}, {0x2028, 0x2029}}}
		return &node{kind: kindAtomic, subs: []*node{{kind: kindAlt, subs: []*node{crlf, other}}}}, nil
	}
	r, err := p.charEscape()
	if err != nil {
		return nil, err
	}
	return p.literal(r)
}

// classEscape parses the escapes that stand for a set of characters, inside or
// outside a class.
func (p *parser) classEscape(inside bool) (set runeSet, ok bool, err error) {
	c := p.src[p.at]
	switch c {
	case 'd', 'D':
		set = category("Nd")
	case 's', 'S':
		set = whiteSpace()
	case 'w', 'W':
		if set = wordSet(); !inside {
			set = looseWordSet()
		}
	case 'h', 'H':
		set = hexDigits
	case 'p', 'P':
		if p.at+1 >= len(p.src) || p.src[p.at+1] != '{' {
			return nil, false, p.errorf("\\%c: want \\%c{name}", c, c)
		}
		end := strings.IndexByte(p.src[p.at:], '}')
		if end < 0 {
			return nil, false, p.errorf("\\%c{ without an end", c)
		}
		name, not := strings.CutPrefix(p.src[p.at+2:p.at+end], "^")
		if set, ok = property(name); !ok {
			return nil, false, p.errorf("character property %q is not supported", name)
		}
		p.at += end + 1
		if not != (c == 'P') {
			set = set.negated()
		}
		return set, true, nil
	default:
		return nil, false, nil
	}
	p.at++
	if c < 'a' {
		set = set.negated()
	}
	return set, true, nil
}

// charEscape parses the escapes that stand for one character.
func (p *parser) charEscape() (rune, error) {
	c := p.nextRune()
	if control, ok := controls[c]; ok {
		return control, nil
	}
	switch c {
	case 'x':
		if p.accept("{") {
			end := strings.IndexByte(p.src[p.at:], '}')
			if end < 0 {
				return 0, p.errorf("\\x{ without an end")
			}
			r, err := p.hex(end)
			p.at++
			return r, err
		}
		r, err := p.hex(2)
		if err == nil && r >= utf8.RuneSelf {
			err = p.errorf("\\x%X is a byte, not a character, and is not supported", r)
		}
		return r, err
	case 'u':
		return p.hex(4)
	}
	// Every other letter or digit means something in some dialect.
	if c < utf8.RuneSelf && (unicode.IsLetter(c) || unicode.IsDigit(c)) {
		return 0, p.errorf("\\%c is not supported", c)
	}
	return c, nil
}

func (p *parser) hex(digits int) (rune, error) {
	if p.at+digits > len(p.src) {
		return 0, p.errorf("want %d hexadecimal digits", digits)
	}
	v, err := strconv.ParseUint(p.src[p.at:p.at+digits], 16, 32)
	if err != nil || !utf8.ValidRune(rune(v)) || v > unicode.MaxRune {
		return 0, p.errorf("%q is not the number of a character", p.src[p.at:p.at+digits])
	}
	p.at += digits
	return rune(v), nil
}

// classSet is a class that is being read: a union of parts, or the intersection of several.
type classSet struct {
	parts       []runeSet
	all         runeSet // the intersection of the unions so far
	intersected bool
}

// endUnion intersects a class with the parts that were read since the last && of it.
func (p *parser) endUnion(c *classSet, negated bool) (err error) {
	set := union(c.parts...)
	if p.fold && negated {
		set = foldSet(set)
	} else if p.fold {
		set, err = p.folded(set)
	}
	if c.intersected {
		set = intersect(c.all, set)
	}
	c.all, c.parts, c.intersected = set, nil, true
	return err
}

// parseClass parses what follows an opening bracket.
func (p *parser) parseClass() (runeSet, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.errorf("classes nested more than %d deep", maxDepth)
	}
	defer func() { p.depth-- }()
	negated := p.accept("^")
	var c classSet
	for first := true; ; first = false {
		switch {
		case !p.more():
			return nil, p.errorf("class without an end")
		case p.peek("]") && !(first && strings.Contains(p.src[p.at+1:], "]")):
			p.at++
			err := p.endUnion(&c, negated)
			if negated {
				c.all = c.all.negated()
			}
			return c.all, err
		case p.accept("&&"):
			if err := p.endUnion(&c, negated); err != nil {
				return nil, err
			}
		default:
			set, err := p.classPart()
			if err != nil {
				return nil, err
			}
			c.parts = append(c.parts, set)
		}
	}
}

// classPart parses a bracket in a class, a character, a range of characters or an escape that is a set.
func (p *parser) classPart() (runeSet, error) {
	if p.peek("[:") {
		// The colon of [:] opens and does not close.
		if body, _, ok := strings.Cut(p.src[p.at+len("[:"):], ":]"); ok {
			return p.bracket(body)
		}
	}
	if p.accept("[") {
		return p.parseClass()
	}
	lo, set, err := p.classItem()
	switch hyphen := p.peek("-"); {
	case err != nil:
		return nil, err
	case set != nil && hyphen && !p.peek("-]"):
		return nil, p.errorf("a range from a set of characters")
	case set != nil:
		return set, nil
	case !hyphen || p.peek("-]") || p.peek("-&&"): // A hyphen at the end is a hyphen.
		return single(lo), nil
	}
	p.at++
	if p.peek("[") {
		return nil, p.errorf("a range to a set of characters")
	}
	hi, set, err := p.classItem()
	if err == nil && (set != nil || hi < lo) {
		err = p.errorf("range that ends before its start, or at a set of characters")
	}
	return runeSet{{lo, hi}}, err
}

// bracket reads a POSIX bracket with this between its colons.
func (p *parser) bracket(body string) (runeSet, error) {
	name, not := strings.CutPrefix(body, "^")
	set, ok := posix(name)
	if !ok {
		return nil, p.errorf("class [:%s:] is not supported", name)
	}
	if not {
		set = set.negated()
	}
	p.at += len("[:") + len(body) + len(":]")
	return set, nil
}

// classItem parses one character of a class, or an escape that is a set.
func (p *parser) classItem() (rune, runeSet, error) {
	if !p.more() {
		return 0, nil, p.errorf("class without an end")
	}
	c := p.nextRune()
	if c != '\\' {
		return c, nil, nil
	}
	if !p.more() {
		return 0, nil, p.errorf("backslash at the end")
	}
	if set, ok, err := p.classEscape(true); ok || err != nil {
		return 0, set, err
	}
	if p.accept("b") {
		return '\b', nil, nil
	}
	if p.peek("R") || p.peek("N") || p.peek("O") || p.peek("X") {
		return 0, nil, p.errorf("\\%c in a class is not supported", p.src[p.at])
	}
	r, err := p.charEscape()
	return r, nil, err
}
