package constraint

import (
	"errors"
	"fmt"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// parseECMA reads a pattern of a JSON Schema: a regular expression of ECMA-262 (section 22.2, with annex B), with \A, \z
// and \Z of other languages, whose texts are code points. Look-behind, back-references and word boundaries are
// errors. One with flags, such as (?i), is read as RE2 does.
func parseECMA(pattern string) (*syntax.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("regular expression: %d bytes, want up to %d", len(pattern), maxPattern)
	}
	p := ecmaParser{text: []rune(pattern)}
	re, err := p.alternatives(0)
	if err == nil && p.at < len(p.text) {
		err = fmt.Errorf("unmatched )")
	}
	if errors.Is(err, errFlags) {
		return parseRE2(pattern)
	}
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return re, nil
}

var errFlags = errors.New("flags")

type ecmaParser struct {
	text []rune
	at   int
}

func (p *ecmaParser) acceptText(s string) bool {
	if !p.sees(s) {
		return false
	}
	p.at += len(s)
	return true
}

func (p *ecmaParser) sees(s string) bool {
	return p.at+len(s) <= len(p.text) && string(p.text[p.at:p.at+len(s)]) == s
}

func (p *ecmaParser) alternatives(depth int) (*syntax.Regexp, error) {
	if depth > maxNesting {
		return nil, fmt.Errorf("more than %d nested parentheses", maxNesting)
	}
	var list []*syntax.Regexp
	for {
		x, err := p.sequence(depth)
		if err != nil {
			return nil, err
		}
		if list = append(list, x); !p.acceptText("|") {
			break
		}
	}
	if len(list) == 1 {
		return list[0], nil
	}
	return &syntax.Regexp{Op: syntax.OpAlternate, Sub: list}, nil
}

func (p *ecmaParser) sequence(depth int) (*syntax.Regexp, error) {
	var list []*syntax.Regexp
	for p.at < len(p.text) && p.text[p.at] != '|' && p.text[p.at] != ')' {
		x, err := p.term(depth)
		if err != nil {
			return nil, err
		}
		if x, err = p.quantified(x); err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	return concat(list), nil
}

func (p *ecmaParser) term(depth int) (*syntax.Regexp, error) {
	c := p.text[p.at]
	p.at++
	switch c {
	case '^':
		return &syntax.Regexp{Op: syntax.OpBeginText}, nil
	case '$':
		return &syntax.Regexp{Op: syntax.OpEndText}, nil
	case '.':
		return &syntax.Regexp{Op: syntax.OpAnyCharNotNL}, nil
	case '(':
		return p.parseGroup(depth)
	case '[':
		return p.class()
	case '\\':
		return p.escape()
	case '*', '+', '?':
		return nil, fmt.Errorf("nothing to repeat before %c", c)
	case '{':
		p.at--
		if _, _, ok := p.bounds(); ok {
			return nil, fmt.Errorf("nothing to repeat before {")
		}
		p.at++
	}
	return single(c), nil
}

// single is one character.
func single(c rune) *syntax.Regexp { return &syntax.Regexp{Op: syntax.OpLiteral, Rune: []rune{c}} }

// parseGroup reads what follows an opening parenthesis.
func (p *ecmaParser) parseGroup(depth int) (*syntax.Regexp, error) {
	op := syntax.OpCapture
	switch {
	case p.acceptText("?:"):
	case p.acceptText("?="):
		op = opAhead
	case p.acceptText("?!"):
		op = opNotAhead
	case p.sees("?<="), p.sees("?<!"):
		return nil, fmt.Errorf("look-behind is not supported")
	case p.acceptText("?<"), p.acceptText("?P<"):
		end := slices.Index(p.text[p.at:], '>')
		if end < 0 {
			return nil, fmt.Errorf("the name of a group without an end")
		}
		p.at += end + 1
	case p.sees("?"):
		return nil, errFlags
	}
	x, err := p.alternatives(depth + 1)
	if err == nil && !p.acceptText(")") {
		err = fmt.Errorf("missing )")
	}
	return &syntax.Regexp{Op: op, Sub: []*syntax.Regexp{x}}, err
}

// quantified applies what repeats a term; which of several matches is preferred makes no difference.
func (p *ecmaParser) quantified(x *syntax.Regexp) (*syntax.Regexp, error) {
	if p.at == len(p.text) {
		return x, nil
	}
	out := &syntax.Regexp{Sub: []*syntax.Regexp{x}}
	switch p.text[p.at] {
	case '*':
		out.Op = syntax.OpStar
	case '+':
		out.Op = syntax.OpPlus
	case '?':
		out.Op = syntax.OpQuest
	case '{':
		lo, hi, ok := p.bounds()
		switch {
		case !ok:
			return x, nil // a literal
		case lo > maxCount || hi > maxCount:
			return nil, fmt.Errorf("repetition {%d,%d}, want up to %d times", lo, hi, maxCount)
		case hi >= 0 && hi < lo:
			return nil, fmt.Errorf("repetition {%d,%d} is empty", lo, hi)
		}
		out.Op, out.Min, out.Max = syntax.OpRepeat, lo, hi
		p.at--
	default:
		return x, nil
	}
	p.at++
	p.acceptText("?")
	if p.at < len(p.text) && slices.Contains([]rune("*+?"), p.text[p.at]) {
		return nil, fmt.Errorf("a repetition of a repetition, %c", p.text[p.at])
	}
	return out, nil
}

// maxCount bounds the counts of repetitions in patterns.
const maxCount = 1 << 16

// bounds reads {m}, {m,} or {m,n}, and nothing where there is none.
func (p *ecmaParser) bounds() (lo, hi int, ok bool) {
	end := slices.Index(p.text[p.at:], '}')
	if end < 0 {
		return 0, 0, false
	}
	least, most, more := strings.Cut(string(p.text[p.at+1:p.at+end]), ",")
	lo, err := strconv.Atoi(least)
	hi = lo
	if more && most == "" {
		hi = unbounded
	} else if more && err == nil {
		hi, err = strconv.Atoi(most)
	}
	if err != nil || strings.ContainsAny(least+most, "+-") {
		return 0, 0, false
	}
	p.at += end + 1
	return lo, hi, true
}

// ecmaSpace is \s.
var ecmaSpace = []runeRange{{'\t', '\r'}, {' ', ' '}, {0xA0, 0xA0}, {0x1680, 0x1680}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}}

// set is a class as package syntax has it.
func setOf(ranges []runeRange) *syntax.Regexp {
	x := &syntax.Regexp{Op: syntax.OpCharClass}
	for _, r := range normal(ranges) {
		x.Rune = append(x.Rune, r.lo, r.hi)
	}
	return x
}

// escape reads what follows a backslash outside of a class.
func (p *ecmaParser) escape() (*syntax.Regexp, error) {
	if p.at == len(p.text) {
		return nil, fmt.Errorf("\\ at the end")
	}
	switch c := p.text[p.at]; {
	case c == 'b' || c == 'B':
		return nil, fmt.Errorf("\\%c is not supported", c)
	case c == 'A':
		p.at++
		return &syntax.Regexp{Op: syntax.OpBeginText}, nil
	case c == 'z' || c == 'Z':
		p.at++
		return &syntax.Regexp{Op: syntax.OpEndText}, nil
	case '1' <= c && c <= '9' || c == 'k':
		return nil, fmt.Errorf("back-reference \\%c is not supported", c)
	}
	ranges, err := p.escaped()
	if err != nil {
		return nil, err
	}
	if len(ranges) == 1 && ranges[0].lo == ranges[0].hi {
		return single(ranges[0].lo), nil
	}
	return setOf(ranges), nil
}

// escaped reads the characters that an escape stands for.
func (p *ecmaParser) escaped() ([]runeRange, error) {
	if p.at == len(p.text) {
		return nil, fmt.Errorf("\\ at the end")
	}
	c := p.text[p.at]
	p.at++
	one := func(r rune) []runeRange { return []runeRange{{r, r}} }
	digits := []runeRange{{'0', '9'}}
	word := []runeRange{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}
	switch c {
	case 'd':
		return digits, nil
	case 'D':
		return without(anyRune, digits), nil
	case 'w':
		return word, nil
	case 'W':
		return without(anyRune, word), nil
	case 's':
		return ecmaSpace, nil
	case 'S':
		return without(anyRune, ecmaSpace), nil
	case 't', 'n', 'v', 'f', 'r':
		return one(rune("\t\n\v\f\r"[strings.IndexRune("tnvfr", c)])), nil
	case '0':
		return one(0), nil
	case 'c':
		if p.at < len(p.text) && unicode.IsLetter(p.text[p.at]) && p.text[p.at] < unicode.MaxASCII {
			p.at++
			return one(p.text[p.at-1] & 31), nil
		}
		return nil, fmt.Errorf("\\c without a letter")
	case 'x':
		return p.hex(2)
	case 'u':
		if p.acceptText("{") {
			end := slices.Index(p.text[p.at:], '}')
			if end < 1 {
				return nil, fmt.Errorf("\\u{ without an end")
			}
			ranges, err := p.hex(end)
			p.at++
			return ranges, err
		}
		return p.hex(4)
	case 'p', 'P':
		return p.property(c)
	}
	if unicode.IsLetter(c) || unicode.IsDigit(c) {
		return nil, fmt.Errorf("unknown escape \\%c", c)
	}
	return one(c), nil
}

func (p *ecmaParser) hex(digits int) ([]runeRange, error) {
	text := string(p.text[p.at:min(p.at+digits, len(p.text))])
	v, err := strconv.ParseUint(text, 16, 32)
	if err != nil || len(text) < digits || v > unicode.MaxRune {
		return nil, fmt.Errorf("%q is no character, want %d hexadecimal digits", text, digits)
	}
	p.at += digits
	return []runeRange{{rune(v), rune(v)}}, nil
}

// property reads the name of a class of Unicode's as RE2 has them.
func (p *ecmaParser) property(c rune) ([]runeRange, error) {
	name := ""
	if p.acceptText("{") {
		end := slices.Index(p.text[p.at:], '}')
		if end < 0 {
			return nil, fmt.Errorf("\\%c{ without an end", c)
		}
		name = string(p.text[p.at : p.at+end])
		p.at += end + 1
	} else if p.at < len(p.text) {
		name = string(p.text[p.at])
		p.at++
	}
	for _, prefix := range []string{"Script=", "sc=", "Script_Extensions=", "General_Category=", "gc=", "Is"} {
		name = strings.TrimPrefix(name, prefix)
	}
	re, err := syntax.Parse(fmt.Sprintf(`\%c{%s}`, c, name), syntax.Perl)
	if err != nil || re.Op != syntax.OpCharClass {
		return nil, fmt.Errorf("unknown property %q", name)
	}
	var out []runeRange
	for i := 0; i < len(re.Rune); i += 2 {
		out = append(out, runeRange{re.Rune[i], re.Rune[i+1]})
	}
	return out, nil
}

// class reads what follows an opening bracket.
func (p *ecmaParser) class() (*syntax.Regexp, error) {
	negated := p.acceptText("^")
	var ranges []runeRange
	for !p.acceptText("]") {
		lo, err := p.member()
		if err != nil {
			return nil, err
		}
		one := len(lo) == 1 && lo[0].lo == lo[0].hi
		if one && p.sees("-") && !p.sees("-]") {
			before := p.at
			p.at++
			hi, err := p.member()
			switch {
			case err != nil:
				return nil, err
			case len(hi) != 1 || hi[0].lo != hi[0].hi: // a hyphen before a class
				p.at = before
			case hi[0].lo < lo[0].lo:
				return nil, fmt.Errorf("range %c-%c is empty", lo[0].lo, hi[0].lo)
			default:
				lo = []runeRange{{lo[0].lo, hi[0].lo}}
			}
		}
		ranges = append(ranges, lo...)
	}
	if negated {
		ranges = without(anyRune, ranges)
	}
	return setOf(ranges), nil
}

func (p *ecmaParser) member() ([]runeRange, error) {
	if p.at == len(p.text) {
		return nil, fmt.Errorf("missing ]")
	}
	if p.sees("[:") {
		return nil, fmt.Errorf("classes like [:alpha:] are not supported")
	}
	c := p.text[p.at]
	p.at++
	if c != '\\' {
		return []runeRange{{c, c}}, nil
	}
	if p.acceptText("b") {
		return []runeRange{{'\b', '\b'}}, nil
	}
	return p.escaped()
}
