package constraint

import (
	"fmt"
	"regexp/syntax"
	"slices"
	"unicode"
)

// maxPattern bounds the bytes of a regular expression.
const maxPattern = 1 << 14

// Regex admits the texts that the whole pattern matches, in RE2's syntax (regexp/syntax). ^
// and $ may stand where they change nothing, at its ends; other assertions, such as \b, are refused.
func Regex(pattern string) (*Grammar, error) {
	re, err := parsePattern(pattern)
	if err != nil {
		return nil, err
	}
	x, err := plainText.bounded(re, side{empty, true}, side{empty, true})
	if err != nil {
		return nil, fmt.Errorf("regular expression %q: %w", pattern, err)
	}
	return parsed(&rule{name: "the regular expression", body: x}, fmt.Sprintf("regular expression %q", pattern))
}

func parsePattern(pattern string) (*syntax.Regexp, error) {
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
}

var (
	anyChar     = runes(anyRune...)
	plainText   = patternCompiler{runes, runes(anyBut('\n')...), anyChar}
	jsonPattern = patternCompiler{asWritten, asWritten(anyBut('\n', '\r', '\u2028', '\u2029')...), asWritten(anyRune...)} // ECMA-262's dot
)

// searched returns the characters of JSON strings in which re matches a part.
func searched(re *syntax.Regexp) (*expr, error) {
	return jsonPattern.bounded(re, side{ref(jsonPlain), true}, side{ref(jsonPlain), true})
}

// side is what is before or after a part of a pattern.
type side struct {
	fill *expr // what may stand there, unless an anchor says that nothing does
	edge bool  // an anchor may say so
}

// bounded returns what re matches, with what is before and after it where it is not anchored.
func (c patternCompiler) bounded(re *syntax.Regexp, before, after side) (*expr, error) {
	switch re.Op {
	case syntax.OpCapture:
		return c.bounded(re.Sub[0], before, after)
	case syntax.OpAlternate:
		list := make([]*expr, len(re.Sub))
		for i, sub := range re.Sub {
			var err error
			if list[i], err = c.bounded(sub, before, after); err != nil {
				return nil, err
			}
		}
		return alt(list...), nil
	case syntax.OpBeginText:
		if before.edge {
			return after.fill, nil
		}
	case syntax.OpEndText:
		if after.edge {
			return before.fill, nil
		}
	case syntax.OpConcat:
		n := len(re.Sub) - 1
		first, last := re.Sub[0], re.Sub[n]
		var head, tail *expr
		var err error
		switch {
		case begins(first) && before.edge:
			return c.bounded(concat(re.Sub[1:]), side{empty, true}, after)
		case ends(last) && after.edge:
			return c.bounded(concat(re.Sub[:n]), before, side{empty, true})
		case assertions(first): // in the alternatives of a group
			if head, err = c.bounded(first, before, side{fill: empty}); err == nil {
				tail, err = c.bounded(concat(re.Sub[1:]), side{fill: empty}, after)
			}
			return seq(orNever(head), orNever(tail)), err
		case assertions(last):
			if tail, err = c.bounded(last, side{fill: empty}, after); err == nil {
				head, err = c.bounded(concat(re.Sub[:n]), before, side{fill: empty})
			}
			return seq(orNever(head), orNever(tail)), err
		}
	}
	x, err := c.whole(re)
	return seq(before.fill, orNever(x), after.fill), err
}

func orNever(x *expr) *expr {
	if x == nil {
		return never
	}
	return x
}

// concat joins what is left of a concatenation.
func concat(list []*syntax.Regexp) *syntax.Regexp {
	switch len(list) {
	case 0:
		return &syntax.Regexp{Op: syntax.OpEmptyMatch}
	case 1:
		return list[0]
	}
	return &syntax.Regexp{Op: syntax.OpConcat, Sub: list}
}

func begins(re *syntax.Regexp) bool { return re.Op == syntax.OpBeginText }
func ends(re *syntax.Regexp) bool   { return re.Op == syntax.OpEndText }

func assertions(re *syntax.Regexp) bool {
	return begins(re) || ends(re) || slices.ContainsFunc(re.Sub, assertions)
}

// whole returns what re matches, which has no anchors.
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
	return nil, fmt.Errorf("%s is not supported here", re)
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
