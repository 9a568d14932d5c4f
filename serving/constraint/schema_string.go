package constraint

import (
	"regexp/syntax"
	"slices"
)

// emitString admits strings by their length, patterns and formats, and those that they must not be. Where one
// of them is not enough, the automaton of all together is made.
func (c *schemaCompiler) emitString(s *shape) (*expr, error) {
	all, none, alone, err := c.readTexts(s)
	if err != nil {
		return nil, err
	}
	var excluded []string
	for _, v := range s.excluded {
		if v.kind == stringType {
			excluded = append(excluded, v.text)
		}
	}
	free, anyLength := len(s.texts) == 0, s.length == counts{0, unbounded}
	switch {
	case s.length.empty():
		return never, nil
	case free && len(excluded) == 0 && anyLength:
		return ref(jsonString), nil
	case free && len(excluded) == 0:
		return quoted(rep(jsonChar, s.length.least, s.length.most)), nil
	case free && anyLength:
		return quoted(otherThan(excluded)), nil
	case alone != nil && len(excluded) == 0:
		if lengths(alone).within(s.length) {
			return quoted(all[0]), nil
		}
		if short := shortened(alone, s.length); short != nil {
			x, err := searched(short, &c.work)
			return quoted(orNever(x)), err
		}
	}
	all = append(all, rep(asWritten(anyRune...), s.length.least, s.length.most))
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

// readTexts returns what strings have to match and must not, and the pattern that is alone.
func (c *schemaCompiler) readTexts(s *shape) (all, none []*expr, alone *syntax.Regexp, err error) {
	for i, part := range s.texts {
		if slices.ContainsFunc(s.texts[:i], part.same) {
			continue
		}
		re, err := part.parse()
		if err != nil {
			return nil, nil, nil, part.at.errorf("%v", err)
		}
		if alone = nil; len(all)+len(none) == 0 && !part.negated {
			alone = re
		}
		x, err := c.pattern(part.at, part.format)
		switch {
		case err != nil:
			return nil, nil, nil, err
		case part.negated && part.format && !exactFormats[part.at.text]:
			return nil, nil, nil, part.at.errorf("format %q is not enforced where it must not hold", part.at.text)
		case part.negated:
			none = append(none, x)
		default:
			all = append(all, x)
		}
	}
	return all, none, alone, nil
}

func (p textPart) same(o textPart) bool {
	return p.at.text == o.at.text && p.format == o.format && p.negated == o.negated
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
func shortened(pattern *syntax.Regexp, to counts) *syntax.Regexp {
	x := anchored(pattern)
	if x == nil || x.Op != syntax.OpStar && x.Op != syntax.OpPlus && x.Op != syntax.OpRepeat {
		return nil
	}
	one := x.Sub[0]
	for one.Op == syntax.OpCapture {
		one = one.Sub[0]
	}
	if length(one) != (counts{1, 1}) {
		return nil
	}
	n := length(x)
	n.raise(to.least)
	if n.most = fewest(n.most, to.most); n.empty() {
		return &syntax.Regexp{Op: syntax.OpNoMatch}
	}
	repeated := &syntax.Regexp{Op: syntax.OpRepeat, Sub: []*syntax.Regexp{one}, Min: n.least, Max: n.most}
	return concat([]*syntax.Regexp{{Op: syntax.OpBeginText}, repeated, {Op: syntax.OpEndText}})
}

// lengths returns bounds of the characters of texts in which a pattern is found.
func lengths(pattern *syntax.Regexp) counts {
	if x := anchored(pattern); x != nil {
		return length(x)
	}
	return counts{length(pattern).least, unbounded}
}

// length returns bounds of the characters that re matches.
func length(re *syntax.Regexp) (n counts) {
	switch re.Op {
	case syntax.OpLiteral:
		return counts{len(re.Rune), len(re.Rune)}
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return counts{1, 1}
	case syntax.OpCapture:
		return length(re.Sub[0])
	case syntax.OpStar:
		return length(re.Sub[0]).times(0, unbounded)
	case syntax.OpPlus:
		return length(re.Sub[0]).times(1, unbounded)
	case syntax.OpQuest:
		return length(re.Sub[0]).times(0, 1)
	case syntax.OpRepeat:
		return length(re.Sub[0]).times(re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			m := length(sub)
			if n.least += m.least; n.most == unbounded || m.most == unbounded {
				n.most = unbounded
			} else {
				n.most += m.most
			}
		}
	case syntax.OpAlternate:
		n = length(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			m := length(sub)
			if n.least = min(n.least, m.least); n.most == unbounded || m.most == unbounded {
				n.most = unbounded
			} else {
				n.most = max(n.most, m.most)
			}
		}
	}
	return n
}
