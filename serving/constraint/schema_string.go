package constraint

import "regexp/syntax"

// emitString admits strings by their length, one pattern or one format. Two of them are
// enforced together where one follows from the other, or where the pattern repeats single characters.
func (c *schemaCompiler) emitString(s *shape) (*expr, error) {
	var pattern *syntax.Regexp
	var at located
	for _, l := range s.formats {
		expression := formats[l.text]
		if expression == "" {
			if c.strict {
				return nil, l.errorf("format %q is not enforced", l.text)
			}
			continue // an annotation
		}
		if pattern != nil && at.text != l.text {
			return nil, l.errorf("format is not enforced beside %s", at.path)
		}
		pattern, at = whole(expression), l
	}
	for _, l := range s.patterns {
		if pattern != nil && (formats[at.text] != "" || at.text != l.text) {
			return nil, l.errorf("pattern is not enforced beside %s", at.path)
		}
		re, err := parsePattern(l.text)
		if err != nil {
			return nil, l.errorf("%v", err)
		}
		pattern, at = re, l
	}
	lo, hi := s.minLength, s.maxLength
	switch {
	case hi != unbounded && lo > hi:
		return never, nil
	case pattern == nil && lo == 0 && hi == unbounded:
		return ref(jsonString), nil
	case pattern == nil:
		return quoted(rep(jsonChar, lo, hi)), nil
	}
	from, to := lengths(pattern)
	if from < lo || hi != unbounded && (to == unbounded || to > hi) {
		if pattern = shortened(pattern, lo, hi); pattern == nil {
			return nil, at.errorf("lengths are not enforced beside it, but for a pattern like ^[a-z]*$")
		}
	}
	x, err := searched(pattern)
	if err != nil {
		return nil, at.errorf("pattern %q: %v", at.text, err)
	}
	return quoted(x), nil
}

// whole parses an expression of this package to be matched by the whole text.
func whole(expression string) *syntax.Regexp {
	re, err := syntax.Parse("^("+expression+")$", syntax.Perl)
	if err != nil {
		panic(err)
	}
	return re
}

// single returns what is between ^ and $, nil where the pattern has no such ends.
func single(re *syntax.Regexp) *syntax.Regexp {
	for re.Op == syntax.OpCapture {
		re = re.Sub[0]
	}
	if re.Op != syntax.OpConcat || !begins(re.Sub[0]) || !ends(re.Sub[len(re.Sub)-1]) {
		return nil
	}
	return concat(re.Sub[1 : len(re.Sub)-1])
}

// shortened returns a pattern like ^[a-z]*$ with its repetition cut to the lengths, nil for
// other patterns.
func shortened(pattern *syntax.Regexp, lo, hi int) *syntax.Regexp {
	x := single(pattern)
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
	if x := single(pattern); x != nil {
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
