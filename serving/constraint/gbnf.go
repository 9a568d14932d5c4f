package constraint

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Bounds of a GBNF text.
const (
	maxGBNF    = 1 << 18 // bytes
	maxNesting = 200     // parentheses
)

// GBNF reads a grammar in the notation of llama.cpp (grammars/README.md there): rules
// "name ::= …", where root is where texts begin; literals, character classes, ".", groups,
// "|", the repetitions *, +, ?, {m}, {m,}, {m,n}, and comments. Errors begin with line and column.
// Rules that are left-recursive are refused, and tokens in angle brackets.
func GBNF(text string) (*Grammar, error) {
	if len(text) > maxGBNF {
		return nil, fmt.Errorf("grammar: %d bytes, want up to %d", len(text), maxGBNF)
	}
	p := gbnfParser{text: text, rules: make(map[string]*gbnfRule)}
	if err := p.parse(); err != nil {
		line := 1 + strings.Count(text[:p.at], "\n")
		column := 1 + utf8.RuneCountInString(text[strings.LastIndexByte(text[:p.at], '\n')+1:p.at])
		return nil, fmt.Errorf("grammar: %d:%d: %w", line, column, err)
	}
	return parsed(&p.rules["root"].rule, "grammar")
}

type gbnfRule struct {
	rule
	used int // where it is first named
}

type gbnfParser struct {
	text  string
	at    int
	rules map[string]*gbnfRule
}

func (p *gbnfParser) parse() error {
	for p.space(true); p.at < len(p.text); p.space(true) {
		at := p.at
		name, err := p.name()
		if err != nil {
			return err
		}
		p.space(false)
		if !p.acceptText("::=") {
			return fmt.Errorf("%s, want ::= after the name %s", p.found(), name)
		}
		p.space(true)
		r := p.rule(name, at)
		if r.body != nil {
			p.at = at
			return fmt.Errorf("rule %s is defined twice", name)
		}
		if r.body, err = p.alternatives(0); err != nil {
			return err
		}
		if p.at < len(p.text) && !p.newline() {
			return fmt.Errorf("%s, want the end of the rule %s", p.found(), name)
		}
	}
	first := len(p.text)
	missing := ""
	for name, r := range p.rules {
		if r.body == nil && r.used < first {
			first, missing = r.used, name
		}
	}
	if missing != "" {
		p.at = first
		return fmt.Errorf("rule %s is not defined", missing)
	}
	if p.rules["root"] == nil {
		return fmt.Errorf("rule root is not defined")
	}
	return nil
}

func (p *gbnfParser) rule(name string, used int) *gbnfRule {
	r := p.rules[name]
	if r == nil {
		r = &gbnfRule{rule: rule{name: name}, used: used}
		p.rules[name] = r
	}
	return r
}

// space skips blanks and comments, and line ends where a rule may go on on the next line.
func (p *gbnfParser) space(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ', c == '\t', lines && (c == '\n' || c == '\r'):
			p.at++
		case c == '#':
			for p.at < len(p.text) && !p.newline() {
				p.at++
			}
		default:
			return
		}
	}
}

func (p *gbnfParser) newline() bool { return p.text[p.at] == '\n' || p.text[p.at] == '\r' }

func (p *gbnfParser) acceptText(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	return true
}

// found names what is next, for errors.
func (p *gbnfParser) found() string {
	r, size := utf8.DecodeRuneInString(p.text[p.at:])
	switch {
	case size == 0:
		return "end of the grammar"
	case r == utf8.RuneError && size == 1:
		return fmt.Sprintf("byte %#x, which is not UTF-8", p.text[p.at])
	}
	return fmt.Sprintf("found %q", r)
}

func isWord(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z'
}

func (p *gbnfParser) name() (string, error) {
	from := p.at
	for p.at < len(p.text) && isWord(p.text[p.at]) {
		p.at++
	}
	if p.at == from {
		return "", fmt.Errorf("%s, want the name of a rule", p.found())
	}
	return p.text[from:p.at], nil
}

func (p *gbnfParser) alternatives(depth int) (*expr, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("more than %d nested parentheses", maxNesting)
	}
	var list []*expr
	for {
		x, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
		if !p.acceptText("|") {
			return alt(list...), nil
		}
		p.space(true)
	}
}

func (p *gbnfParser) sequence(depth int) (*expr, error) {
	var list []*expr
	for p.at < len(p.text) {
		x, err := p.item(depth)
		if err != nil {
			return nil, err
		}
		if x == nil {
			break
		}
		p.space(depth > 0)
		if x, err = p.repeated(x, depth); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return seq(list...), nil
}

// item reads what may be repeated, nil at the end of a sequence.
func (p *gbnfParser) item(depth int) (*expr, error) {
	from := p.at
	switch c := p.text[p.at]; {
	case c == '"':
		p.at++
		var s []byte
		for !p.acceptText(`"`) {
			r, err := p.char()
			if err != nil {
				return nil, err
			}
			s = utf8.AppendRune(s, r)
		}
		return lit(string(s)), nil
	case c == '[':
		p.at++
		return p.class()
	case c == '.':
		p.at++
		return anyChar, nil
	case c == '(':
		p.at++
		p.space(true)
		x, err := p.alternatives(depth + 1)
		if err == nil && !p.acceptText(")") {
			err = fmt.Errorf("%s, want )", p.found())
		}
		return x, err
	case isWord(c):
		name, err := p.name()
		if err != nil {
			return nil, err
		}
		return ref(&p.rule(name, from).rule), nil
	case c == '<' || c == '!':
		return nil, fmt.Errorf("tokens in angle brackets are not supported")
	}
	return nil, nil
}

func (p *gbnfParser) class() (*expr, error) {
	negated := p.acceptText("^")
	var ranges []runeRange
	for !p.acceptText("]") {
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if strings.HasPrefix(p.text[p.at:], "-") && !strings.HasPrefix(p.text[p.at:], "-]") {
			p.at++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
		}
		if hi < lo {
			return nil, fmt.Errorf("range %q-%q is empty", lo, hi)
		}
		ranges = append(ranges, runeRange{lo, hi})
	}
	if negated {
		ranges = without(anyRune, ranges)
	}
	return runes(ranges...), nil
}

// char reads one character of a literal or a class.
func (p *gbnfParser) char() (rune, error) {
	r, size := utf8.DecodeRuneInString(p.text[p.at:])
	if size == 0 || r == utf8.RuneError && size == 1 {
		return 0, fmt.Errorf("%s in a literal or a class", p.found())
	}
	p.at += size
	if r != '\\' {
		return r, nil
	}
	if p.at == len(p.text) {
		return 0, fmt.Errorf("end of the grammar after \\")
	}
	c := p.text[p.at]
	if i := strings.IndexByte(`tnr\"[]`, c); i >= 0 {
		p.at++
		return rune("\t\n\r\\\"[]"[i]), nil
	}
	digits := map[byte]int{'x': 2, 'u': 4, 'U': 8}[c]
	if digits == 0 {
		return 0, fmt.Errorf("unknown escape \\%c", c)
	}
	hex := p.text[p.at+1 : min(p.at+1+digits, len(p.text))]
	v, err := strconv.ParseUint(hex, 16, 32)
	if err != nil || len(hex) < digits || !utf8.ValidRune(rune(v)) {
		return 0, fmt.Errorf("\\%c%s is no character, want %d hexadecimal digits", c, hex, digits)
	}
	p.at += 1 + digits
	return rune(v), nil
}

// repeated applies the repetitions that follow an item.
func (p *gbnfParser) repeated(x *expr, depth int) (*expr, error) {
	for times := 0; p.at < len(p.text); times++ {
		lo, hi := 0, unbounded
		switch p.text[p.at] {
		case '*':
		case '+':
			lo = 1
		case '?':
			hi = 1
		case '{':
			p.at++
			var err error
			if lo, hi, err = p.bounds(); err != nil {
				return nil, err
			}
			p.at-- // at the closing brace
		default:
			return x, nil
		}
		if times >= maxNesting {
			return nil, fmt.Errorf("more than %d repetitions of one item", maxNesting)
		}
		p.at++
		p.space(depth > 0)
		x = rep(x, lo, hi)
	}
	return x, nil
}

// bounds reads "m}", "m,}", ",n}" or "m,n}".
func (p *gbnfParser) bounds() (lo, hi int, err error) {
	number := func(missing int) int {
		p.space(false)
		from := p.at
		for p.at < len(p.text) && '0' <= p.text[p.at] && p.text[p.at] <= '9' {
			p.at++
		}
		n := missing
		if p.at > from {
			if n, err = strconv.Atoi(p.text[from:p.at]); err != nil || n > maxRepeat {
				err = fmt.Errorf("repetition %s, want up to %d", p.text[from:p.at], maxRepeat)
			}
		}
		p.space(false)
		return n
	}
	start := p.at
	lo = number(0)
	hi = lo
	switch given := p.at > start; {
	case err != nil:
		return 0, 0, err
	case p.acceptText(","):
		hi = number(unbounded)
	case !given:
		return 0, 0, fmt.Errorf("%s, want a number of repetitions", p.found())
	}
	switch {
	case err != nil:
	case !p.acceptText("}"):
		err = fmt.Errorf("%s, want }", p.found())
	case hi != unbounded && hi < lo:
		err = fmt.Errorf("repetition {%d,%d} is empty", lo, hi)
	}
	return lo, hi, err
}
