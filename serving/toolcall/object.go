package toolcall

import (
	"cmp"
	"strings"
)

// object reads the object of a call, {"name": …, "arguments": {…}}, of text that grows.
type object struct {
	scanner
	pos    int // bytes of the text that are read
	mark   int // where in out the key or value begins
	member string
	seen   map[string]bool
	name   string
	args   string // where they came before the name, or in a string, or whole is set
	known  bool   // members that no call has are in no call, before it is known that it is one
	whole  bool   // nothing is begun before the object is complete
}

type progress int

const (
	unfinished progress = iota
	broken              // no call
	started             // the name is known, and text[pos-1] is the { of the arguments
	complete            // the } at text[pos-1] is the object's end
)

// readText goes on in text, which begins where the object began or where pos was set to 0.
func (o *object) readText(text string) progress {
	for o.pos < len(text) {
		if o.pos >= maxHeld {
			return broken
		}
		if p := o.readByte(text[o.pos]); p != unfinished {
			return p
		}
	}
	return unfinished
}

func (o *object) readByte(c byte) progress {
	before, depth, n := o.at, len(o.open), len(o.out)
	if !o.stepByte(c) {
		return broken
	}
	o.pos++
	if depth == 1 && before == inScalar && o.at != inScalar && o.member == "arguments" && len(o.scalar) > 0 { // null
		o.args, o.scalar = "{}", nil
	}
	switch {
	case len(o.open) == 0 && o.name == "":
		return broken
	case len(o.open) == 0:
		return complete
	case depth == 2 && len(o.open) == 1 && o.member == "arguments":
		o.args = o.marked()
	case depth == 1 && before == inValue && o.at != inValue:
		o.mark = n
		return o.beginValue(c)
	case depth == 1 && o.key && before != inString && o.at == inString:
		o.mark = n
	case depth == 1 && before == inString && !o.endString():
		return broken
	}
	return unfinished
}

// marked is what was written since the mark.
func (o *object) marked() string { return string(o.out[o.mark:]) }

// beginValue is told the first byte of a member's value.
func (o *object) beginValue(c byte) progress {
	switch {
	case o.member == "name" && c != '"', o.member == "arguments" && strings.IndexByte(`{"nN`, c) < 0:
		return broken
	case o.member == "arguments" && c == '{' && o.name != "" && !o.whole:
		return started
	}
	return unfinished
}

// endString takes a key, or a member's value that is a string, and is false where it is in no call.
func (o *object) endString() (ok bool) {
	switch {
	case o.at == inColon:
		return o.setMember(unquote(o.marked()))
	case o.at != inEnd: // it goes on
	case o.member == "name":
		o.name = unquote(o.marked())
		return o.name != ""
	case o.member == "arguments":
		o.args, ok = objectIn(unquote(o.marked()))
		return ok
	}
	return true
}

// setMember is told the key of a member, and is false where it is in no call.
func (o *object) setMember(key string) bool {
	if o.member = key; key == "parameters" {
		o.member = "arguments"
	}
	if !members[o.member] {
		return !o.known
	}
	if o.seen[o.member] {
		return false
	}
	if o.seen == nil {
		o.seen = map[string]bool{}
	}
	o.seen[o.member] = true
	return true
}

// members are the keys of a call's object. Some models write an id, or "type": "function".
var members = map[string]bool{"name": true, "arguments": true, "id": true, "type": true}

// callInJSON reads a call that is an object, or a list of them.
type callInJSON struct {
	undecided
	key   string // of the arguments, where calls are forced
	known bool   // the object stands where other JSON may: it must name a tool, and have arguments
	whole bool   // it stands in text: nothing is told before it is complete
	list  bool   // it is in a list
	stop  string // what ends the calls of its opener
	next  string // what may be between objects that are in no list
}

func (c callInJSON) read(p *Parser) bool {
	body := p.held[p.lead:]
	n := leading(body)
	switch {
	case n > maxHeld:
		return p.fail()
	case n == len(body):
		return false
	case body[n] == '{':
		p.lead += n
		p.open = max(p.open, p.lead)
		p.object, p.phase = object{known: c.known, whole: c.whole}, inObject{callInJSON: c}
	case body[n] == '[' && !c.list:
		p.lead += n + 1
		p.open = max(p.open, p.lead)
		c.list = true
		p.phase = c
	default:
		return p.fail()
	}
	return true
}

// after is what follows the call's object.
func (c callInJSON) after() phase {
	alone := c
	alone.list = false
	a := after{next: c.next, stop: c.stop, again: alone}
	if c.stop != "" && c.next == "" {
		a.direct = "{"
	}
	if c.list {
		return after{next: ",", closer: "]", again: c, outside: a}
	}
	return a
}

// inObject reads the object of a call, but for its arguments.
type inObject struct{ callInJSON }

func (c inObject) read(p *Parser) bool {
	o := &p.object
	switch o.readText(p.held[p.lead:]) {
	case unfinished:
		if c.known && o.name != "" && !p.knows(o.name) {
			return p.fail()
		}
		return false
	case started:
		if c.known && !p.knows(o.name) {
			return p.fail()
		}
		p.beginCall(o.name, "{")
		p.held, p.lead = p.held[p.lead+o.pos:], 0
		o.pos, o.out = 0, o.out[:0]
		p.phase = inArguments{base: 1, then: inRest(c), stops: []string{c.stop}, broken: c.after()}
		return true
	case complete:
		if c.known && (!p.knows(o.name) || !o.seen["arguments"]) {
			return p.fail()
		}
		p.beginCall(o.name, cmp.Or(o.args, "{}"))
		p.held, p.lead, p.phase = p.held[p.lead+o.pos:], 0, c.after()
		return true
	}
	return p.fail()
}

// end gives what there is of a call that was cut: one of a tool, whose arguments have begun or that is not the first.
func (c inObject) end(p *Parser) bool {
	o := &p.object
	if !p.knows(o.name) || !o.seen["arguments"] && p.calls == 0 {
		return p.fail()
	}
	arguments := o.args
	if o.member == "arguments" && len(o.open) > 1 {
		arguments = o.marked() + o.unwritten()
	}
	p.beginCall(o.name, arguments)
	p.held, p.phase = "", inText{}
	return false
}

// inRest reads a call's object after its arguments.
type inRest struct{ callInJSON }

func (c inRest) read(p *Parser) bool {
	switch o := &p.object; o.readText(p.held) {
	case complete:
		p.held, p.phase = p.held[o.pos:], c.after()
	case broken:
		p.phase = inText{}
	default:
		return false
	}
	return true
}

func (inRest) end(p *Parser) bool { return inText{}.end(p) }

// inArguments gives the text of arguments as it comes, up to where the scanner has base open.
type inArguments struct {
	base   int
	then   phase    // reads on behind them
	stops  []string // where they break, what they end before at the latest,
	broken phase    // and what reads on there
}

func (a inArguments) read(p *Parser) bool {
	o := &p.object
	ok, end := true, false
	for ok && !end && o.pos < len(p.held) {
		if ok = o.stepByte(p.held[o.pos]); ok {
			o.pos++
			end = len(o.open) == a.base
		}
	}
	p.arguments(string(o.out))
	p.held, o.pos, o.out = p.held[o.pos:], 0, o.out[:0]
	switch {
	case !ok:
		a.end(p)
		p.phase = inBroken{a.stops, a.broken}
		return true
	case end:
		p.phase = a.then
	}
	return end
}

// end tells what the scanner holds of an escape or a word.
func (inArguments) end(p *Parser) bool {
	p.arguments(p.object.unwritten())
	return false
}
