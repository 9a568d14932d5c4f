package constraint

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// maxPattern bounds the bytes of a regular expression.
const maxPattern = 1 << 14

// Regex admits the texts that the whole pattern matches, in RE2's syntax (regexp/syntax). Of assertions it has ^ and $
// alone; others, such as \b, are refused.
func Regex(pattern string) (*Grammar, error) {
	re, err := parseRE2(pattern)
	if err != nil {
		return nil, err
	}
	x, err := plainText.match(re, true, empty)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return parsed(&rule{name: "the regular expression", body: x}, fmt.Sprintf("regular expression %q", pattern))
}

func parseRE2(pattern string) (*syntax.Regexp, error) {
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("regular expression: %d bytes, want up to %d", len(pattern), maxPattern)
	}
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return re, nil
}

// anyBut is every character without some.
func anyBut(list ...rune) []runeRange {
	var out []runeRange
	for _, r := range list {
		out = append(out, runeRange{r, r})
	}
	return without(anyRune, out)
}

// patternCompiler makes expressions of patterns.
type patternCompiler struct {
	char     func(...runeRange) *expr // one character of the ranges as it is written
	dot, any *expr                    // what "." matches without and with the flag s
	work     *int                     // of automata, see regular
}

var (
	anyChar     = runes(anyRune...)
	plainText   = patternCompiler{char: runes, dot: runes(anyBut('\n')...), any: anyChar}
	jsonPattern = patternCompiler{char: asWritten, dot: asWritten(anyBut('\n', '\r', '\u2028', '\u2029')...), any: asWritten(anyRune...)} // ECMA-262's dot
)

// searched returns the characters of JSON strings in which re matches a part. It adds to the work on automata.
func searched(re *syntax.Regexp, work *int) (*expr, error) {
	rest, c := ref(jsonPlain), jsonPattern
	c.work = work
	if !containsOp(re, syntax.OpBeginText) {
		x, err := c.match(re, false, rest)
		return seq(rest, orNever(x)), err
	}
	first, err := c.match(re, true, rest)
	if err != nil {
		return nil, err
	}
	later, err := c.match(re, false, rest)
	return alt(first, seq(c.any, rest, orNever(later))), err
}

// match returns the texts that begin with what re matches and go on as k says. Assertions are about k, which is all that
// follows; first tells that nothing is before.
func (c patternCompiler) match(re *syntax.Regexp, first bool, k *expr) (*expr, error) {
	if !containsOp(re, assertions...) {
		x, err := c.whole(re)
		return seq(orNever(x), k), err
	}
	if c.work != nil {
		if *c.work += matchWork; *c.work > maxMaking {
			return nil, fmt.Errorf("%w: its assertions repeat too often", errTooLarge)
		}
	}
	switch re.Op {
	case syntax.OpCapture:
		return c.match(re.Sub[0], first, k)
	case syntax.OpBeginText:
		if first {
			return k, nil
		}
		return never, nil
	case syntax.OpEndText:
		if k.nullable() {
			return empty, nil
		}
		return never, nil
	case opAhead, opNotAhead:
		x, err := c.match(re.Sub[0], first, rep(c.any, 0, unbounded))
		switch {
		case err != nil:
			return nil, err
		case re.Op == opAhead:
			return regular([]*expr{k, x}, nil, c.work)
		}
		return regular([]*expr{k}, []*expr{x}, c.work)
	case syntax.OpQuest:
		x, err := c.match(re.Sub[0], first, k)
		return alt(orNever(x), k), err
	case syntax.OpAlternate:
		return c.alternated(re, first, k)
	case syntax.OpConcat:
		return c.concatenated(re, first, k)
	case syntax.OpStar, syntax.OpPlus, syntax.OpRepeat:
		return c.repeated(re, first, k)
	}
	return nil, fmt.Errorf("%s is not supported here", describe(re))
}

// alternated is match of alternatives, some of which have assertions.
func (c patternCompiler) alternated(re *syntax.Regexp, first bool, k *expr) (*expr, error) {
	var plain, list []*expr
	for _, sub := range re.Sub {
		var x *expr
		var err error
		if containsOp(sub, assertions...) {
			x, err = c.match(sub, first, k)
			list = append(list, x)
		} else {
			x, err = c.whole(sub)
			plain = append(plain, x)
		}
		if err != nil {
			return nil, err
		}
	}
	return alt(append(list, seq(alt(plain...), k))...), nil
}

// concatenated is match of one expression after the other, from the last one on.
func (c patternCompiler) concatenated(re *syntax.Regexp, first bool, k *expr) (_ *expr, err error) {
	firsts := make([]bool, len(re.Sub))
	for i, sub := range re.Sub {
		firsts[i] = first
		switch n := length(sub); {
		case n.most == 0:
		case n.least == 0 && first && slices.ContainsFunc(re.Sub[i+1:], func(r *syntax.Regexp) bool { return containsOp(r, syntax.OpBeginText) }):
			return nil, fmt.Errorf("^ is not supported after what may be empty in %s", describe(re))
		default:
			first = false
		}
	}
	for i, sub := range slices.Backward(re.Sub) {
		if k, err = c.match(sub, firsts[i], k); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// repeated is match of an expression that repeats assertions: a few times, or one character as often as may be, as in (?:(?!x).)*.
func (c patternCompiler) repeated(re *syntax.Regexp, first bool, k *expr) (*expr, error) {
	if re.Op == syntax.OpRepeat && re.Max >= 0 && re.Max <= maxUnrolled {
		one := re.Sub[0]
		list := slices.Repeat([]*syntax.Regexp{one}, re.Min)
		for range re.Max - re.Min {
			list = append(list, &syntax.Regexp{Op: syntax.OpQuest, Sub: []*syntax.Regexp{one}})
		}
		return c.match(concat(list), first, k)
	}
	return nil, fmt.Errorf("an assertion is not supported in a repetition: %s", describe(re))
}

// matchWork is the units of work that a part with assertions counts as beside its automata.
const matchWork = 256

// maxUnrolled is how often what has assertions may be repeated.
const maxUnrolled = 8

// Look-ahead, which package syntax has not: what follows matches the expression, or does not.
const (
	opAhead syntax.Op = 1<<7 - 2 + iota
	opNotAhead
)

var assertions = []syntax.Op{syntax.OpBeginText, syntax.OpEndText, opAhead, opNotAhead}

// containsOp tells whether one of the operations is in re.
func containsOp(re *syntax.Regexp, ops ...syntax.Op) bool {
	return slices.Contains(ops, re.Op) || slices.ContainsFunc(re.Sub, func(sub *syntax.Regexp) bool { return containsOp(sub, ops...) })
}

// describe writes re for errors; package syntax does not know look-ahead.
func describe(re *syntax.Regexp) string {
	if containsOp(re, opAhead, opNotAhead) {
		return "a group with look-ahead"
	}
	return re.String()
}

func orNever(x *expr) *expr {
	if x == nil {
		return never
	}
	return x
}

// concat joins expressions.
func concat(list []*syntax.Regexp) *syntax.Regexp {
	switch len(list) {
	case 0:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	case 1:
		return list[0]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: list}
}

// whole returns what re matches, which has no assertions.
func (c patternCompiler) whole(re *syntax.Regexp) (*expr, error) {
	list := make([]*expr, len(re.Sub))
	for i, sub := range re.Sub {
		var err error
		if list[i], err = c.whole(sub); err != nil {
			return nil, err
		}
	}
	switch re.Op {
	case syntax.OpNoMatch:
		return never, nil
	case syntax.OpEmptyMatch:
		return empty, nil
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			list = append(list, c.char(spellings(r, re.Flags&syntax.FoldCase != 0)...))
		}
		return seq(list...), nil
	case syntax.OpCharClass:
		var ranges []runeRange
		for i := 0; i < len(re.Rune); i += 2 {
			ranges = append(ranges, runeRange{re.Rune[i], re.Rune[i+1]})
		}
		return c.char(ranges...), nil
	case syntax.OpAnyCharNotNL:
		return c.dot, nil
	case syntax.OpAnyChar:
		return c.any, nil
	case syntax.OpCapture:
		return list[0], nil
	case syntax.OpStar:
		return rep(list[0], 0, unbounded), nil
	case syntax.OpPlus:
		return rep(list[0], 1, unbounded), nil
	case syntax.OpQuest:
		return opt(list[0]), nil
	case syntax.OpRepeat:
		return rep(list[0], re.Min, re.Max), nil
	case syntax.OpConcat:
		return seq(list...), nil
	case syntax.OpAlternate:
		return alt(list...), nil
	}
	return nil, fmt.Errorf("%s is not supported here", describe(re))
}

// spellings are a character and, where case is ignored, its other cases.
func spellings(r rune, fold bool) []runeRange {
	out := []runeRange{{r, r}}
	if fold {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			out = append(out, runeRange{f, f})
		}
	}
	return out
}
