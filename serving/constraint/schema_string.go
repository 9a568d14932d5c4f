package constraint

import (
	"regexp/syntax"
)

// emitString admits strings by their length, patterns and formats, and those that they must not be. Where one
// of them is not enough, the automaton of all together is made.
func (c *schemaCompiler) emitString(s *shape) (*expr, error) {
	lo, hi := s.minLength, s.maxLength
	var all, none []*expr
	var alone *syntax.Regexp // the only pattern
	type key struct {
		text            string
		format, negated bool
	}
	seen := make(map[key]bool)
	for _, part := range s.texts {
		k := key{part.at.text, part.format, part.negated}
		if seen[k] {
			continue
		}
		seen[k] = true
		re, err := part.parse()
		if err != nil {
			return nil, part.at.errorf("%v", err)
		}
		if alone = nil; len(all)+len(none) == 0 && !part.negated {
			alone = re
		}
		x, err := c.pattern(part.at, part.format)
		switch {
		case err != nil:
			return nil, err
		case part.negated && part.format && !exactFormats[part.at.text]:
			return nil, part.at.errorf("format %q is not enforced where it must not hold", part.at.text)
		case part.negated:
			none = append(none, x)
		default:
			all = append(all, x)
		}
	}
	var excluded []string
	for _, v := range s.excluded {
		if v.kind == stringType {
			excluded = append(excluded, v.text)
		}
	}
	anyLength := lo == 0 && hi == unbounded
	switch {
	case hi != unbounded && lo > hi:
		return never, nil
	case len(all)+len(none) == 0 && len(excluded) == 0 && anyLength:
		return ref(jsonString), nil
	case len(all)+len(none) == 0 && len(excluded) == 0:
		return quoted(rep(jsonChar, lo, hi)), nil
	case len(all)+len(none) == 0 && anyLength:
		return quoted(otherThan(excluded)), nil
	case alone != nil && len(excluded) == 0:
		if from, to := lengths(alone); from >= lo && (hi == unbounded || to != unbounded && to <= hi) {
			return quoted(all[0]), nil
		}
		if short := shortened(alone, lo, hi); short != nil {
			x, err := searched(short, &c.work)
			return quoted(orNever(x)), err
		}
	}
	all = append(all, rep(asWritten(anyRune...), lo, hi))
	if len(excluded) > 0 {
		for i, text := range excluded {
			excluded[i] = escapeText(text)
		}
		none = append(none, words(excluded))
	}
	x, err := regular(all, none, &c.work)
	if err != nil {
		return nil, s.at.errorf("patterns, formats and lengths together: %v", err)
	}
	return seq(lit(`"`), x, lit(`"`)), nil
}

func (p textPart) parse() (*syntax.Regexp, error) {
	if p.format {
		return whole(formats[p.at.text]), nil
	}
	return parseECMA(p.at.text)
}

// pattern returns what is in the quotes of strings that a pattern or a format admits.
func (c *schemaCompiler) pattern(at located, format bool) (*expr, error) {
	key := at.text
	if format {
		key = "format " + key
	} else {
		key = "pattern " + key
	}
	if x := c.patterns[key]; x != nil {
		return x, nil
	}
	re, err := textPart{at: at, format: format}.parse()
	if err == nil {
		c.patterns[key], err = searched(re, &c.work)
	}
	if err != nil {
		return nil, at.errorf("pattern %q: %v", at.text, err)
	}
	return orNever(c.patterns[key]), nil
}

// exactFormats are those whose expressions admit all texts of the format.
var exactFormats = map[string]bool{"date": true, "uuid": true, "ipv4": true}

// whole parses an expression of this package to be matched by the whole text.
func whole(expression string) *syntax.Regexp {
	re, err := parseECMA("^(" + expression + ")$")
	if err != nil {
		panic(err)
	}
	return re
}

// anchored returns what is between ^ and $, nil where the pattern has no such ends.
func anchored(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpConcat || re.Sub[0].Op != syntax.OpBeginText || re.Sub[len(re.Sub)-1].Op != syntax.OpEndText {
		return nil
	}
	return concat(re.Sub[1 : len(re.Sub)-1])
}

// shortened returns a pattern like ^[a-z]*$ with its repetition cut to the lengths, nil for
// other patterns.
func shortened(pattern *syntax.Regexp, lo, hi int) *syntax.Regexp {
	x := anchored(pattern)
	if x == nil || x.Op != syntax.OpStar && x.Op != syntax.OpPlus && x.Op != syntax.OpRepeat {
		return nil
	}
	one := x.Sub[0]
	for one.Op == syntax.OpCapture {
		one = one.Sub[0]
	}
	if a, b := length(one); a != 1 || b != 1 {
		return nil
	}
	from, to := length(x)
	from = max(from, lo)
	if hi != unbounded && (to == unbounded || to > hi) {
		to = hi
	}
	if to != unbounded && from > to {
		return &syntax.Regexp{Op: syntax.OpNoMatch}
	}
	repeated := &syntax.Regexp{Op: syntax.OpRepeat, Sub: []*syntax.Regexp{one}, Min: from, Max: to}
	return concat([]*syntax.Regexp{{Op: syntax.OpBeginText}, repeated, {Op: syntax.OpEndText}})
}

// lengths returns bounds of the characters of texts in which a pattern is found.
func lengths(pattern *syntax.Regexp) (lo, hi int) {
	if x := anchored(pattern); x != nil {
		return length(x)
	}
	lo, _ = length(pattern)
	return lo, unbounded
}

// length returns bounds of the characters that re matches.
func length(re *syntax.Regexp) (lo, hi int) {
	times := func(n, m int) int {
		switch {
		case n == 0 || m == 0:
			return 0
		case n == unbounded || m == unbounded:
			return unbounded
		}
		return n * m
	}
	repeat := func(least, most int) (int, int) {
		a, b := length(re.Sub[0])
		return a * least, times(b, most)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpCapture:
		return length(re.Sub[0])
	case syntax.OpStar:
		return repeat(0, unbounded)
	case syntax.OpPlus:
		return repeat(1, unbounded)
	case syntax.OpQuest:
		return repeat(0, 1)
	case syntax.OpRepeat:
		return repeat(re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			a, b := length(sub)
			lo += a
			if hi == unbounded || b == unbounded {
				hi = unbounded
			} else {
				hi += b
			}
		}
	case syntax.OpAlternate:
		lo, hi = length(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			a, b := length(sub)
			lo = min(lo, a)
			if hi == unbounded || b == unbounded {
				hi = unbounded
			} else {
				hi = max(hi, b)
			}
		}
	}
	return lo, hi
}
