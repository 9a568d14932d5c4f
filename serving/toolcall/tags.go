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

// callInTags reads a call in tags, <function=NAME><parameter=KEY>VALUE</parameter></function>.
type callInTags struct {
	undecided
	lines bool   // a line break before and after each VALUE is no part of it
	known bool   // the call has no mark before it: it must name a tool
	stop  string // what ends the call
}

func (c callInTags) read(p *Parser) bool {
	name, n, at := tag(p.held[p.lead:], functionTag)
	if at == complete && c.known && !p.knows(name) {
		at = broken
	}
	if at == complete {
		p.beginCall(name, "{")
		p.held, p.lead, p.phase = p.held[p.lead+n:], 0, inTags{callInTags: c}
	}
	return at == complete || at == broken && p.fail()
}

// inTags reads what is between the parameters of a call. What is no tag ends it.
type inTags struct {
	callInTags
	begun
}

func (c inTags) end(p *Parser) bool { return c.begun.end(p) }

func (c inTags) read(p *Parser) bool {
	found, n, more := expect(p.held, functionEnd, c.stop)
	key, end, at := tag(p.held, parameterTag)
	switch {
	case found == functionEnd:
		p.held, p.phase = p.held[n:], after{stop: c.stop}
	case found != "":
		p.held, p.phase = p.held[n:], inText{}
	case at == complete:
		p.held = p.held[end:]
		p.parameter(key, atValue{value: value{key: key, closer: parameterEnd, lines: c.lines, other: c.otherEnd}, then: c})
		return true
	case at == broken && !more:
		p.phase = inText{}
	default:
		return false
	}
	p.arguments("}")
	return true
}

// otherEnd finds where a value ends whose own end tag is missing: before another parameter that the tool has, or before the
// call's end. The tag begins at text[i:].
func (c callInTags) otherEnd(p *Parser, text string, i int, last bool) progress {
	rest := text[i:]
	if i > 0 && text[i-1] != '\n' || i == 0 && p.told {
		return broken
	}
	if key, _, at := tag(rest, parameterTag); at == complete {
		if p.members[key] || p.parameters.property(key) == nil {
			return broken
		}
		return complete
	} else if at == unfinished {
		return unfinished
	}
	if strings.HasPrefix(functionEnd, rest) && rest != functionEnd {
		return unfinished
	}
	if rest, ok := strings.CutPrefix(rest, functionEnd); ok {
		found, _, more := expect(rest, c.stop)
		switch {
		case found != "", last && strings.Trim(rest, space) == "":
			return complete
		case more:
			return unfinished
		}
	}
	return broken
}

// value is a parameter's between tags.
type value struct {
	key    string
	closer string // its end tag
	lines  bool   // a line break before and after it is no part of it
	// other tells whether another tag, at text[i:], ends the value; last: no more text comes.
	other func(p *Parser, text string, i int, last bool) progress
}

// atValue is at the start of a parameter's value.
type atValue struct {
	value
	schema *schema
	then   phase
}

// parameter begins to read the value of a call's parameter.
func (p *Parser) parameter(key string, v atValue) {
	v.schema = p.parameters.property(key)
	p.phase = v
}

// memberKey gives the key of a member of the arguments.
func (p *Parser) memberKey(key string) {
	if len(p.members) > 0 {
		p.arguments(", ")
	}
	p.members[key] = true
	p.arguments(`"` + escape(key) + `": `)
}

func (v atValue) read(p *Parser) bool {
	if v.lines {
		if p.held == "" {
			return false
		}
		p.held = strings.TrimPrefix(p.held, "\n")
	}
	p.told = false
	if p.phase = (inTyped{v}); v.schema.verbatim() {
		p.memberKey(v.key)
		p.arguments(`"`)
		p.phase = inVerbatim{v}
	}
	return true
}

func (atValue) end(*Parser) bool { return false }

// find looks for the value's end in text: at how many bytes, and how many there are of its end tag. Without an end, keep is how
// many bytes of text are not decided.
func (v value) find(p *Parser, text string, last bool) (at, tag, keep int, found bool) {
	for i := 0; ; i++ {
		n := strings.IndexByte(text[i:], '<')
		if n < 0 {
			break
		}
		i += n
		if strings.HasPrefix(text[i:], v.closer) {
			return i, len(v.closer), 0, true
		}
		switch v.other(p, text, i, last) {
		case complete:
			return i, 0, 0, true
		case broken:
			if !strings.HasPrefix(v.closer, text[i:]) {
				continue
			}
		}
		if keep = len(text) - i; i > 0 && text[i-1] == '\n' {
			keep++
		}
		return 0, 0, keep, false
	}
	if strings.HasSuffix(text, "\n") { // before a tag
		keep = 1
	}
	return 0, 0, keep, false
}

// trimmed is a value without the line break before its end, where the format has one.
func (v value) trimmed(text string) string {
	if v.lines {
		return strings.TrimSuffix(text, "\n")
	}
	return text
}

// inVerbatim gives a string as it comes, but for what may be its end.
type inVerbatim struct{ atValue }

func (v inVerbatim) read(p *Parser) bool { return v.readTo(p, false) }

func (v inVerbatim) readTo(p *Parser, last bool) bool {
	at, tag, keep, found := v.find(p, p.held, last)
	if !found {
		n := len(p.held) - keep
		p.arguments(escape(p.held[:n]))
		p.held, p.told = p.held[n:], p.told || n > 0
		return false
	}
	p.arguments(escape(v.trimmed(p.held[:at])) + `"`)
	p.held, p.phase = p.held[at+tag:], v.then
	return true
}

func (v inVerbatim) end(p *Parser) bool {
	if v.readTo(p, true) {
		return true
	}
	p.arguments(escape(p.held))
	return false
}

// inTyped waits for the end of a value that may be no string. One beyond the limit is one. Without text there is no value.
type inTyped struct{ atValue }

func (v inTyped) read(p *Parser) bool { return v.readTo(p, false) }

func (v inTyped) readTo(p *Parser, last bool) bool {
	at, tag, keep, found := v.find(p, p.held, last)
	switch {
	case found && at > maxHeld, !found && len(p.held)-keep > maxHeld:
		p.memberKey(v.key)
		p.arguments(`"`)
		p.phase = inVerbatim(v)
		return true
	case found:
		if text := v.trimmed(p.held[:at]); strings.Trim(text, space) != "" || v.schema.holds("string") {
			p.memberKey(v.key)
			p.arguments(v.schema.json(text))
		}
		p.held, p.phase = p.held[at+tag:], v.then
	}
	return found
}

func (v inTyped) end(p *Parser) bool {
	if v.readTo(p, true) {
		return true
	}
	p.memberKey(v.key)
	p.arguments(p.held)
	return false
}
