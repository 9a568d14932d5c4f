package toolcall

import "strings"

const callID, argsMark = "[CALL_ID]", "[ARGS]"

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// callByName reads a call as NAME[ARGS]{…}, or in JSON. Before [ARGS] there may be [CALL_ID] and an id, and both may be left out.
type callByName struct{ callInJSON }

func (c callByName) read(p *Parser) bool {
	body := p.held[p.lead:]
	n := leading(body)
	if n == len(body) || body[n] == '{' || body[n] == '[' {
		return c.callInJSON.read(p)
	}
	rest := strings.TrimLeft(body[n:], letters)
	name := body[n : len(body)-len(rest)]
	waits := rest == ""
	for _, mark := range []string{callID, argsMark} {
		if after, ok := strings.CutPrefix(rest, mark); ok {
			if rest = after; mark == callID {
				rest = strings.TrimLeft(rest, letters)
			}
		}
		waits = waits || strings.HasPrefix(mark, rest)
	}
	rest = strings.TrimLeft(rest, space)
	switch read := len(body) - len(rest); {
	case name == "" || read > maxHeld || !waits && rest != "" && rest[0] != '{':
		return p.fail()
	case waits || rest == "":
		return false
	}
	p.beginCall(name, "")
	p.object = object{}
	p.held, p.lead, p.phase = rest, 0, inArguments{then: inText{}, broken: inText{}}
	return true
}
