package toolcall

import "strings"

const (
	functionTag, functionEnd   = "<function=", "</function>"
	parameterTag, parameterEnd = "<parameter=", "</parameter>"

	maxName = 256 // bytes of a name in a tag
)

// tag reads white space, a tag such as <function=, a name and >. Broken is what can be none.
func tag(text, open string) (name string, end int, at progress) {
	found, n, more := expect(text, open)
	if more {
		return "", 0, unfinished
	}
	if found == "" {
		return "", 0, broken
	}
	length := strings.IndexAny(text[n:], "<>\n")
	switch {
	case length < 0 && len(text)-n <= maxName:
		return "", 0, unfinished
	case length <= 0 || length > maxName || text[n+length] != '>':
		return "", 0, broken
	}
	return text[n : n+length], n + length + 1, complete
}

// function reads <function=NAME>.
func (p *Parser) function() bool {
	name, n, at := tag(p.held[p.lead:], functionTag)
	if at == complete {
		p.begin(name, "{")
		p.held, p.lead, p.phase = p.held[p.lead+n:], 0, inBody
	}
	return at == complete || at == broken && p.fail()
}

// body reads <parameter=KEY> or </function>.
func (p *Parser) body() bool {
	found, n, more := expect(p.held, functionEnd)
	if found != "" {
		p.arguments("}")
		p.held, p.phase = p.held[n:], inAfter
		return true
	}
	key, n, at := tag(p.held, parameterTag)
	switch {
	case at == broken && !more:
		return p.fail()
	case at != complete:
		return false
	}
	if p.members > 0 {
		p.arguments(", ")
	}
	p.members++
	p.arguments(`"` + escape(key) + `": `)
	p.value = p.parameters.property(key)
	p.held, p.phase = p.held[n:], inLine
	return true
}

// line drops the line break before a value, where the format has one.
func (p *Parser) line() bool {
	if p.f.lines {
		if p.held == "" {
			return false
		}
		p.held = strings.TrimPrefix(p.held, "\n")
	}
	if p.phase = inTyped; p.value.verbatim() {
		p.arguments(`"`)
		p.phase = inVerbatim
	}
	return true
}

// verbatim gives a string as it comes, but for what may be its end.
func (p *Parser) verbatim() bool {
	value, rest, found := strings.Cut(p.held, parameterEnd)
	if !found {
		keep := begins(p.held, parameterEnd)
		if p.f.lines {
			keep = max(keep, begins(p.held, "\n"+parameterEnd))
		}
		n := len(p.held) - keep
		p.arguments(escape(p.held[:n]))
		p.held = p.held[n:]
		return false
	}
	p.arguments(escape(p.trimmed(value)) + `"`)
	p.held, p.phase = rest, inBody
	return true
}

// typed waits for the end of a value that may be no string. One beyond the limit is one.
func (p *Parser) typed() bool {
	value, rest, found := strings.Cut(p.held, parameterEnd)
	if len(value) > maxHeld+len(parameterEnd) || found && len(value) > maxHeld {
		p.arguments(`"`)
		p.phase = inVerbatim
		return true
	}
	if found {
		p.arguments(p.value.json(p.trimmed(value)))
		p.held, p.phase = rest, inBody
	}
	return found
}

// trimmed is a value without the line break before its end, where the format has one.
func (p *Parser) trimmed(value string) string {
	if p.f.lines {
		return strings.TrimSuffix(value, "\n")
	}
	return value
}
