package toolcall

import "strings"

// callInBraces reads a call as call:NAME{KEY:VALUE,…}, whose strings stand between two marks.
type callInBraces struct {
	undecided
	quote string
	stop  string // what ends the call
}

const callPrefix = "call:"

func (c callInBraces) read(p *Parser) bool {
	body := p.held[p.lead:]
	found, n, more := expect(body, callPrefix)
	if more {
		return false
	}
	rest := strings.TrimLeft(body[n:], letters)
	name := body[n : len(body)-len(rest)]
	switch {
	case found == "" || len(name) > maxName || rest != "" && (name == "" || rest[0] != '{'):
		return p.fail()
	case rest == "":
		return false
	}
	p.beginCall(name, "{")
	p.object = object{}
	p.object.stepByte('{')
	p.object.out = nil // it is told
	p.held, p.lead, p.phase = rest[1:], 0, inBraces{callInBraces: c}
	return true
}

// inBraces reads the arguments of a call between their strings, and writes them as JSON: what stands between quotes of JSON's
// is a string, too, and so is a word that is none of JSON's.
type inBraces struct {
	callInBraces
	begun
}

func (c inBraces) end(p *Parser) bool { return c.begun.end(p) }

func (c inBraces) read(p *Parser) bool {
	o := &p.object
	n := leading(p.held)
	rest := p.held[n:]
	switch {
	case rest == "" && n <= maxHeld:
		return false
	case rest == "":
		return c.broken(p)
	case strings.HasPrefix(c.quote, rest) && rest != c.quote:
		return false
	case strings.HasPrefix(rest, c.quote):
		if o.at == inColon || o.at == inEnd {
			return c.broken(p)
		}
		p.held = rest[len(c.quote):]
		p.noKey()
		o.stepByte('"')
		p.phase = inQuotes{c}
	case rest[0] == '"' && o.at != inColon && o.at != inEnd:
		p.held = rest[1:]
		p.noKey()
		o.stepByte('"')
		p.phase = inJSONString{c}
	case strings.IndexByte(",:{}[]", rest[0]) >= 0:
		if !o.stepByte(rest[0]) {
			return c.broken(p)
		}
		p.held = rest[1:]
		if len(o.open) == 0 {
			p.phase = after{stop: c.stop}
		} else if rest[0] == ',' || rest[0] == ':' {
			o.out = append(o.out, ' ')
		}
	default:
		if o.at == inColon || o.at == inEnd {
			return c.broken(p)
		}
		end := strings.IndexAny(rest, ",:{}[]<")
		if o.at != inKey && o.at != inFirstKey { // a time has colons
			end = strings.IndexAny(rest, ",{}[]<")
		}
		if end < 0 && len(rest) <= maxName {
			return false
		}
		if end <= 0 || end > maxName {
			return c.broken(p)
		}
		c.word(p, strings.TrimRight(rest[:end], space))
		p.held = rest[end:]
	}
	p.arguments(string(o.out))
	o.out = o.out[:0]
	return true
}

// noKey forgets the parameter's key, where a quoted one comes.
func (p *Parser) noKey() {
	if at := p.object.at; at == inKey || at == inFirstKey {
		p.key = ""
	}
}

// word writes a key, a number, a word of JSON's, or another as a string.
func (c inBraces) word(p *Parser, text string) {
	o := &p.object
	key := o.at == inKey || o.at == inFirstKey
	if len(o.open) == 1 && key {
		p.key = text
	}
	as := `"` + escape(text) + `"`
	if !key {
		as = jsonWord(text)
		if s := p.parameters.property(p.key); len(o.open) == 1 && s != nil {
			as = s.json(text)
		}
	}
	o.out = append(o.out, as...)
	if o.at = inEnd; key {
		o.at = inColon
	}
}

// broken gives the rest as it is.
func (c inBraces) broken(p *Parser) bool {
	p.phase = inBroken{[]string{c.stop}, after{stop: c.stop}}
	return true
}

// inQuotes gives a string between the format's marks.
type inQuotes struct{ inBraces }

func (c inQuotes) read(p *Parser) bool {
	at, found, _ := cut(p.held, []string{c.quote})
	keep := begins(p.held, c.quote)
	if found == "" {
		at = len(p.held) - keep
	}
	p.arguments(escape(p.held[:at]))
	p.held = p.held[at+len(found):]
	if found == "" {
		return false
	}
	o := &p.object
	o.inString('"')
	p.arguments(`"`)
	o.out = o.out[:0]
	p.phase = c.inBraces
	return true
}

func (c inQuotes) end(p *Parser) bool {
	p.arguments(escape(p.held))
	return false
}

// inJSONString gives a string between JSON's quotes.
type inJSONString struct{ inBraces }

func (c inJSONString) read(p *Parser) bool {
	o := &p.object
	for p.held != "" && o.at == inString {
		o.stepByte(p.held[0])
		p.held = p.held[1:]
	}
	p.arguments(string(o.out))
	if o.out = o.out[:0]; o.at == inString {
		return false
	}
	p.phase = c.inBraces
	return true
}

func (c inJSONString) end(p *Parser) bool {
	p.arguments(p.object.unwritten())
	return false
}
