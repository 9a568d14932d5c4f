package toolcall

import (
	"strings"

	"glimpse/internal/registry"
)

// Thinking is how a family of models writes the thoughts before an answer: between marks, at its beginning.
type Thinking struct {
	Name, Doc   string
	Open, Close string // the first may stand in the prompt already
}

// Thinkings are the known ones. A chat template's is the one whose end mark it has.
var Thinkings = registry.Registry[Thinking]{Noun: "format of thoughts"}

func registerThinking(t Thinking) { Thinkings.Add(t.Name, t) }

// Opens tells whether a prompt has begun a thought, where what follows its last mark is begun: the beginning of the answer
// that the client has given, or nothing.
func (d Dialect) Opens(prompt, begun string) bool {
	t := d.Thoughts
	if t.Open == "" || strings.Contains(begun, t.Close) {
		return false
	}
	return strings.HasSuffix(strings.TrimRight(strings.TrimSuffix(prompt, begun), space), t.Open) || strings.HasPrefix(strings.TrimLeft(begun, space), t.Open)
}

// beforeThought waits for what an answer begins with.
type beforeThought struct{}

func (beforeThought) read(p *Parser) bool {
	found, n, more := expect(p.held, p.d.Thoughts.Open)
	switch {
	case more:
		return false
	case found == "":
		p.phase = inText{}
	default:
		p.thought(p.held[:n], true)
		p.held, p.phase = p.held[n:], inThought{}
	}
	return true
}

func (beforeThought) end(p *Parser) bool { return inText{}.end(p) }

// inThought is where a thought comes, up to its end mark. begun: its opening mark stood in the prompt, and some models
// write it again.
type inThought struct{ begun bool }

func (t inThought) read(p *Parser) bool {
	marks := p.d.Thoughts
	if t.begun {
		found, n, more := expect(p.held, marks.Open)
		if more {
			return false
		}
		p.thought(p.held[:n], true)
		if p.held = p.held[n:]; found == "" && p.o.Inline {
			p.blank = false
		}
		p.phase = inThought{}
		return true
	}
	if !p.thinking() {
		return false
	}
	at, found, keep := cut(p.held, []string{marks.Close})
	if found == "" {
		p.thought(p.held[:len(p.held)-keep], false)
		p.held = p.held[len(p.held)-keep:]
		return false
	}
	p.endThought(at, len(found))
	p.phase = afterThought{}
	return true
}

func (t inThought) end(p *Parser) bool {
	if t.begun || p.o.Inline {
		p.thought(p.held, false)
	} else {
		p.thought(strings.TrimRight(p.held, space), false)
	}
	return false
}

// afterThought drops white space behind a thought.
type afterThought struct{}

func (afterThought) read(p *Parser) bool {
	if n := leading(p.held); !p.o.Inline {
		if n == len(p.held) && n <= maxHeld {
			return false
		}
		p.held = p.held[n:]
	}
	p.phase = inText{}
	return true
}

func (afterThought) end(p *Parser) bool {
	return false
}

// thinking drops white space at the beginning of a thought, and is false where nothing else has come.
func (p *Parser) thinking() bool {
	if p.o.Inline || p.thoughts {
		return true
	}
	p.held = p.held[leading(p.held):]
	return p.held != ""
}

// thought gives a part of a thought, or where thoughts are content also its marks.
func (p *Parser) thought(text string, mark bool) {
	switch {
	case text == "":
	case p.o.Inline:
		p.content(text)
	case !mark:
		p.thoughts = true
		if n := len(p.out) - 1; n >= 0 && p.out[n].Reasoning != "" {
			p.out[n].Reasoning += text
			return
		}
		p.out = append(p.out, Delta{Reasoning: text})
	}
}

// endThought gives the rest of a thought, up to the end mark of n bytes at held[at:], which it drops.
func (p *Parser) endThought(at, n int) {
	if p.o.Inline {
		p.thought(p.held[:at+n], true)
	} else {
		p.thought(strings.TrimRight(p.held[:at], space), false)
	}
	p.held, p.thoughts = p.held[at+n:], false
}
