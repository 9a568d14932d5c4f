package toolcall

import "strings"

const (
	keyTag, keyEnd     = "<arg_key>", "</arg_key>"
	valueTag, valueEnd = "<arg_value>", "</arg_value>"
)

// callInPairs reads a call of a name and pairs of tags, NAME<arg_key>KEY</arg_key><arg_value>VALUE</arg_value>.
type callInPairs struct {
	undecided
	stop string // what ends the call
}

func (c callInPairs) read(p *Parser) bool {
	body := p.held[p.lead:]
	n := leading(body)
	rest := strings.TrimLeft(body[n:], letters)
	name := body[n : len(body)-len(rest)]
	found, _, more := expect(rest, keyTag, c.stop)
	switch {
	case n > maxHeld || len(name) > maxName || name == "" && rest != "":
		return p.fail()
	case rest == "" || more:
		return false
	case found == "":
		return p.fail()
	}
	p.beginCall(name, "{")
	p.held, p.lead, p.phase = rest, 0, inPairs{callInPairs: c}
	return true
}

// inPairs reads what is between the values of a call. What is no tag ends it.
type inPairs struct {
	callInPairs
	begun
}

func (c inPairs) end(p *Parser) bool { return c.begun.end(p) }

func (c inPairs) read(p *Parser) bool {
	found, n, more := expect(p.held, keyTag, c.stop)
	switch {
	case more:
		return false
	case found == keyTag:
		key, rest, ok := strings.Cut(p.held[n:], keyEnd)
		if !ok && len(p.held)-n <= maxName+len(keyEnd) {
			return false
		}
		mark, end, more := expect(rest, valueTag)
		if ok && more && len(key) <= maxName {
			return false
		}
		if ok && mark != "" && len(key) <= maxName {
			p.held = rest[end:]
			p.parameter(strings.Trim(key, space), atValue{value: value{key: strings.Trim(key, space), closer: valueEnd, other: c.otherEnd}, then: c})
			return true
		}
		p.phase = inText{}
	case found != "":
		p.held, p.phase = p.held[n:], inText{}
	default:
		p.phase = inText{}
	}
	p.arguments("}")
	return true
}

// otherEnd finds where a value ends whose own end tag is missing: before another key, or before the call's end.
func (c callInPairs) otherEnd(p *Parser, text string, i int, last bool) progress {
	if i == 0 || text[i-1] != '\n' {
		return broken
	}
	found, _, more := expect(text[i:], keyTag, c.stop)
	switch {
	case found != "":
		return complete
	case more && !last:
		return unfinished
	}
	return broken
}
