package toolcall

import (
	"cmp"
	"strings"
)

// maxHeld bounds what is held back of white space, of a call before its arguments and after them,
// and of one value in tags: 64 KiB each. What is longer is no call.
const maxHeld = 64 << 10

const space = " \t\r\n"

// Where in the answer the parser is.
type phase int

const (
	inText      phase = iota
	inHead            // after an opener or a comma
	inObject          // in a call's object, before its arguments
	inArguments       // in arguments of JSON
	inRest            // in a call's object, after its arguments
	inBody            // between parameters in tags
	inLine            // at the start of a parameter's value
	inVerbatim        // in a string between tags
	inTyped           // in another value between tags
	inAfter           // after a call
)

// Parser takes an answer's text and gives content and calls. It is for one answer
// and one goroutine. It holds back what may become a call or its end, and no more.
type Parser struct {
	f     Format
	tools map[string]*schema
	phase phase
	held  string // text that is not decided on
	lead  int    // bytes of held before what the phase reads: white space and an opener or a comma
	out   []Delta

	calls  int
	called bool // nothing came after the last call
	blank  bool // nothing but white space came so far
	list   bool // the call is in a list of JSON
	base   int  // what is open of the object at the end of its arguments
	object object

	parameters *schema // of the call
	members    int     // of its arguments, in tags
	value      *schema // of the parameter
}

// NewParser makes a parser of one answer. The tools are those that the model was told of.
func (f Format) NewParser(tools []Tool) *Parser {
	p := &Parser{f: f, tools: map[string]*schema{}, blank: true}
	for _, t := range tools {
		p.tools[t.Name] = parseSchema(t.Parameters)
	}
	return p
}

// Push takes the next piece of the answer, of whole characters, and returns what is decided by it.
func (p *Parser) Push(text string) []Delta {
	p.held += text
	p.run()
	return p.take()
}

// Close ends the answer and returns what was held back. Half a call is content; a call whose
// arguments have begun stays one, without its end.
func (p *Parser) Close() []Delta {
	for p.phase == inHead || p.phase == inObject {
		p.fail()
		p.run()
	}
	switch {
	case p.phase == inVerbatim:
		p.arguments(escape(p.held))
	case p.phase == inTyped:
		p.arguments(p.held)
	case !p.called || strings.Trim(p.held, space) != "":
		p.content(p.held)
	}
	p.held = ""
	return p.take()
}

func (p *Parser) take() []Delta {
	out := p.out
	p.out = nil
	return out
}

// steps read what is held in a phase, and are false where they need more text.
var steps = [...]func(p *Parser) bool{
	inText: (*Parser).text, inHead: (*Parser).head, inObject: (*Parser).readObject, inArguments: (*Parser).readArguments, inRest: (*Parser).readObject,
	inBody: (*Parser).body, inLine: (*Parser).line, inVerbatim: (*Parser).verbatim, inTyped: (*Parser).typed, inAfter: (*Parser).after,
}

// run goes from phase to phase until more text is needed.
func (p *Parser) run() {
	for steps[p.phase](p) {
	}
}

// text looks for the opener of a call, and gives what cannot be one as content.
func (p *Parser) text() bool {
	at, end := -1, 0
	for _, o := range p.f.openers {
		if i := strings.Index(p.held, o); i >= 0 && (at < 0 || i < at) {
			at, end = i, i+len(o)
		}
	}
	if begin := leading(p.held); p.f.bare && p.blank && begin < len(p.held) && begin <= maxHeld && p.held[begin] == '{' {
		p.lead, p.phase = begin, inHead
		return true
	}
	found := at >= 0
	if !found {
		keep := 0
		for _, o := range p.f.openers {
			keep = max(keep, begins(p.held, o))
		}
		at = len(p.held) - keep
	}
	from := max(len(strings.TrimRight(p.held[:at], space)), at-maxHeld)
	p.content(p.held[:from])
	p.held = p.held[from:]
	if found {
		p.lead, p.phase = end-from, inHead
	}
	return found
}

// head reads up to the object of a call, or its name.
func (p *Parser) head() bool {
	if p.f.xml {
		return p.function()
	}
	body := p.held[p.lead:]
	n := leading(body)
	switch {
	case n > maxHeld:
		return p.fail()
	case n == len(body):
		return false
	case body[n] == '{':
		p.lead += n
		p.object, p.phase = object{}, inObject
	case body[n] == '[' && !p.list:
		p.lead += n + 1
		p.list = true
	case p.f.named && !p.list:
		return p.name(n)
	default:
		return p.fail()
	}
	return true
}

const callID, argsMark = "[CALL_ID]", "[ARGS]"

// name reads NAME, [CALL_ID] and an id, [ARGS] and the { of the arguments; n bytes of white space
// are before.
func (p *Parser) name(n int) bool {
	body := p.held[p.lead:]
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
	p.object, p.base = object{}, 0
	p.begin(name, "")
	p.held, p.lead, p.phase = rest, 0, inArguments
	return true
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."

// readObject reads the object of a call, but for its arguments.
func (p *Parser) readObject() bool {
	o := &p.object
	switch o.read(p.held[p.lead:]) {
	case unfinished:
		if _, known := p.tools[o.name]; p.f.bare && o.name != "" && !known {
			return p.fail()
		}
		return false
	case begun:
		if !p.begin(o.name, "") {
			return p.fail()
		}
		p.held, p.lead = p.held[p.lead+o.pos-1:], 0
		o.pos, p.base, p.phase = 1, 1, inArguments
		return true
	case complete:
		if p.phase == inObject && (p.f.bare && !o.seen["arguments"] || !p.begin(o.name, cmp.Or(o.args, "{}"))) {
			return p.fail()
		}
		p.held, p.lead, p.phase = p.held[p.lead+o.pos:], 0, inAfter
		return true
	}
	return p.fail()
}

// readArguments gives the text of the arguments as it comes.
func (p *Parser) readArguments() bool {
	o := &p.object
	ok, end := true, false
	for ok && !end && o.pos < len(p.held) {
		if ok = o.step(p.held[o.pos]); ok {
			o.pos++
			end = len(o.open) == p.base
		}
	}
	p.arguments(p.held[:o.pos])
	p.held, o.pos = p.held[o.pos:], 0
	switch {
	case !ok:
		return p.fail()
	case end && p.base == 0:
		p.phase = inAfter
	case end:
		p.phase = inRest
	}
	return end
}

// after reads what ends a call, or leads to the next of the same opener.
func (p *Parser) after() bool {
	next, end, stop := p.f.separator, "", p.f.closer
	if p.list {
		next, end, stop = ",", "]", ""
	}
	found, n, more := expect(p.held, next, end, stop)
	switch {
	case more:
		return false
	case found == "":
		p.list, p.phase = false, inText
	case found == next:
		p.lead, p.phase = n, inHead
	case found == end:
		p.held, p.list = p.held[n:], false
	default:
		p.held, p.phase = p.held[n:], inText
	}
	return true
}

// fail gives up the call that was being read: what led to it is content, and the rest is looked
// at as text.
func (p *Parser) fail() bool {
	p.content(p.held[:p.lead])
	p.held = p.held[p.lead:]
	p.lead, p.phase, p.list, p.blank = 0, inText, false, false
	return true
}

// begin gives the start of a call, unless the format needs a tool of that name.
func (p *Parser) begin(name, arguments string) bool {
	parameters, known := p.tools[name]
	if p.f.bare && !known {
		return false
	}
	p.parameters, p.members = parameters, 0
	p.out = append(p.out, Delta{Call: &CallDelta{Index: p.calls, Name: name, Arguments: arguments}})
	p.calls++
	p.called, p.blank = true, false
	return true
}

// arguments adds to those of the last call.
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
	if n := len(p.out) - 1; n >= 0 && p.out[n].Call == nil {
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
