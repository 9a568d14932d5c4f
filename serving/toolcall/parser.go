package toolcall

import "strings"

// maxHeld bounds what is held back of white space, of a call before its arguments and after them,
// and of one value in tags: 64 KiB each. What is longer is no call.
const maxHeld = 64 << 10

const space = " \t\r\n"

// phase is where in an answer the parser is.
type phase interface {
	// read reads on in what is held, and is false where it needs more text.
	read(p *Parser) bool
	// end is told that no more text comes. It is true where the phase has changed, for what is held to be read anew.
	end(p *Parser) bool
}

// Parser takes an answer's text and gives content, thoughts and calls. It is for one answer
// and one goroutine. It holds back what may become a call, a mark or its end, and no more.
type Parser struct {
	d     Dialect
	o     Options
	tools map[string]*schema
	phase phase
	held  string // text that is not decided on
	lead  int    // bytes of held before what a call's phase reads: white space and a mark or a comma
	open  int    // bytes of held that are content for sure where they are no call; at least lead
	out   []Delta

	calls    int
	called   bool // nothing came after the last call
	blank    bool // nothing but white space came so far
	thoughts bool // a part of the thought was told

	object     object  // that is read
	parameters *schema // of the call
	members    map[string]bool
	key        string // of the parameter, in braces
	told       bool   // a part of the parameter's value was
}

// NewParser makes a parser of one answer.
func (d Dialect) NewParser(o Options) *Parser {
	p := &Parser{d: d, o: o, tools: map[string]*schema{}, blank: true, phase: inText{}}
	for _, t := range o.Tools {
		p.tools[t.Name] = parseSchema(t.Parameters)
	}
	switch {
	case d.Calls.channels != nil:
		p.phase = inHeader{}
	case d.Thoughts.Open != "" && o.Opened:
		p.phase = inThought{begun: true}
	case d.Thoughts.Open != "":
		p.phase = beforeThought{}
	}
	return p
}

// Push takes the next piece of the answer and returns what is decided by it.
func (p *Parser) Push(text string) []Delta {
	p.held += text
	p.run()
	return p.takeDeltas()
}

// Close ends the answer and returns what was held back. Half a call is content; a call whose
// arguments have begun stays one, without its end.
func (p *Parser) Close() []Delta {
	for p.phase.end(p) {
		p.run()
	}
	p.held = ""
	return p.takeDeltas()
}

func (p *Parser) takeDeltas() []Delta {
	out := p.out
	p.out = nil
	return out
}

// run goes from phase to phase until more text is needed.
func (p *Parser) run() {
	for p.phase.read(p) {
	}
}

// inText is where content comes, and calls may begin.
type inText struct{}

// read looks for the opener of a call, and gives what cannot be one as content.
func (inText) read(p *Parser) bool {
	at, found := len(p.held), opener{}
	if len(p.tools) > 0 {
		for _, o := range p.d.Calls.openers {
			if i := p.find(o); i < at || i == at && len(o.mark) > len(found.mark) && i < len(p.held) {
				at, found = i, o
			}
		}
	}
	if !strings.HasPrefix(p.held[at:], found.mark) { // the beginning of one, or of several
		found = opener{}
	}
	from := max(len(strings.TrimRight(p.held[:at], space)), at-maxHeld)
	p.content(p.held[:from])
	p.held = p.held[from:]
	if found.mark == "" {
		return false
	}
	p.lead = at - from
	if p.open = p.lead + len(found.mark); !found.within {
		p.lead = p.open
	}
	p.phase = found.call
	return true
}

// find is where an opener is, or may be with text that comes; the length of the held text where there is none.
func (p *Parser) find(o opener) int {
	for i := 0; i < len(p.held); i++ {
		n := strings.IndexByte(p.held[i:], o.mark[0])
		if n < 0 {
			break
		}
		i += n
		if rest := p.held[i:]; !strings.HasPrefix(rest, o.mark) && !strings.HasPrefix(o.mark, rest) {
			continue
		}
		before := p.held[:i]
		blank := strings.Trim(before, space) == "" && i <= maxHeld
		line := strings.TrimRight(before, " \t")
		switch {
		case o.at == answerStart && !(p.blank && blank):
		case o.at == lineStart && !strings.HasSuffix(line, "\n") && !(blank && (p.blank || p.called)):
		default:
			return i
		}
	}
	return len(p.held)
}

func (inText) end(p *Parser) bool {
	if !p.called || strings.Trim(p.held, space) != "" {
		p.content(p.held)
	}
	return false
}

// undecided is embedded in the phases of a call that has not begun: at the answer's end it is none.
type undecided struct{}

func (undecided) end(p *Parser) bool { return p.fail() }

// begun is embedded in the phases of a call that has begun, whose text is told as it is read.
type begun struct{}

func (begun) end(*Parser) bool { return false }

// after reads what ends a call, or leads to the next of the same opener.
type after struct {
	next, closer, stop string // between two calls, at the end of a list, at the end of all; empty for none
	again              phase  // reads the next call
	outside            phase  // follows a list; nil: text
	direct             string // what begins another call without anything between them
}

func (a after) read(p *Parser) bool {
	found, n, more := expect(p.held, a.next, a.closer, a.stop, a.direct)
	switch {
	case more:
		return false
	case found == "":
		p.phase = inText{}
	case found == a.direct && a.direct != "":
		p.lead = n - len(found)
		p.open, p.phase = n, a.again
	case found == a.next:
		p.lead, p.open, p.phase = n, n, a.again
	case found == a.closer && a.outside != nil:
		p.held, p.phase = p.held[n:], a.outside
	default:
		p.held, p.phase = p.held[n:], inText{}
	}
	return true
}

func (a after) end(p *Parser) bool {
	if _, _, more := expect(p.held, a.closer, a.stop); more { // the beginning of a marker is no text
		p.held = ""
	}
	return inText{}.end(p)
}

// inBroken reads the rest of arguments that are no JSON, which is told as it is, up to the call's end.
type inBroken struct {
	stops []string
	then  phase
}

func (b inBroken) read(p *Parser) bool {
	at, found, keep := cut(p.held, b.stops)
	if found == "" {
		p.arguments(p.held[:len(p.held)-keep])
		p.held = p.held[len(p.held)-keep:]
		return false
	}
	p.arguments(strings.TrimRight(p.held[:at], space))
	p.held, p.phase = p.held[at:], b.then
	return true
}

func (inBroken) end(p *Parser) bool {
	p.arguments(strings.TrimRight(p.held, space))
	return false
}

// cut finds the first of the marks in text; without one, keep is the length of the text's end with which one may begin, with the
// white space before it.
func cut(text string, marks []string) (at int, found string, keep int) {
	at = len(text)
	for _, m := range marks {
		if i := strings.Index(text, m); m != "" && i >= 0 && i < at {
			at, found = i, m
		}
		keep = max(keep, begins(text, m))
	}
	if found == "" {
		n := len(text) - keep
		keep = min(len(text)-len(strings.TrimRight(text[:n], space)), maxHeld)
	}
	return at, found, keep
}

// fail gives up the call that was being read: what led to it is content, and the rest is looked
// at as text.
func (p *Parser) fail() bool {
	p.content(p.held[:p.open])
	p.held = p.held[p.open:]
	p.lead, p.open, p.phase, p.blank = 0, 0, inText{}, false
	return true
}

// beginCall gives the start of a call.
func (p *Parser) beginCall(name, arguments string) {
	p.parameters, p.members = p.tools[name], map[string]bool{}
	p.out = append(p.out, Delta{Call: &CallDelta{Index: p.calls, Name: name, Arguments: arguments}})
	p.calls++
	p.called, p.blank = true, false
}

// knows tells whether there is a tool of the name.
func (p *Parser) knows(name string) bool {
	_, known := p.tools[name]
	return known
}

// arguments adds to the arguments of the last call.
func (p *Parser) arguments(text string) {
	if text == "" {
		return
	}
	if n := len(p.out) - 1; n >= 0 && p.out[n].Call != nil {
		p.out[n].Call.Arguments += text
		return
	}
	p.out = append(p.out, Delta{Call: &CallDelta{Index: p.calls - 1, Arguments: text}})
}

func (p *Parser) content(text string) {
	if text == "" {
		return
	}
	p.called, p.blank = false, false
	if n := len(p.out) - 1; n >= 0 && p.out[n].Content != "" {
		p.out[n].Content += text
		return
	}
	p.out = append(p.out, Delta{Content: text})
}

// expect finds which of the options comes in text after white space, and where it ends; more
// if that cannot be said yet. Empty options are none.
func expect(text string, options ...string) (found string, end int, more bool) {
	n := leading(text)
	if n > maxHeld {
		return "", 0, false
	}
	for _, o := range options {
		if o != "" && strings.HasPrefix(text[n:], o) {
			return o, n + len(o), false
		}
		more = more || o != "" && strings.HasPrefix(o, text[n:])
	}
	return "", 0, more
}

// begins is the length of the longest end of text with which the marker may begin, but not all of it.
func begins(text, marker string) int {
	for n := min(len(text), len(marker)-1); n > 0; n-- {
		if strings.HasSuffix(text, marker[:n]) {
			return n
		}
	}
	return 0
}

func leading(text string) int { return len(text) - len(strings.TrimLeft(text, space)) }
