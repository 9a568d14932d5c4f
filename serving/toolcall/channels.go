package toolcall

import (
	"slices"
	"strings"
)

// channels is the format of gpt-oss, whose whole answer is messages to somebody in a channel, each with a header
// (OpenAI's Harmony response format, 2025): <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>….
type channels struct{}

const (
	startMark, channelMark, messageMark = "<|start|>", "<|channel|>", "<|message|>"

	functionsOf = "functions."
	maxHeader   = 1024 // bytes
)

var channelMarks = []string{startMark, channelMark, messageMark, "<|end|>", "<|return|>", "<|call|>", "<|constrain|>"}

// bodyEnds are what a message ends before or with, where its own end is missing, too.
var bodyEnds = []string{"<|end|>", "<|return|>", "<|call|>", startMark, channelMark}

// inHeader is before a message. The first one's begins in the prompt.
type inHeader struct{}

func (inHeader) read(p *Parser) bool {
	n := leading(p.held)
	rest := p.held[n:]
	if rest == "" && n <= maxHeader {
		return false
	}
	more, first := false, ""
	for _, mark := range []string{startMark, channelMark, messageMark, "to="} {
		if strings.HasPrefix(rest, mark) {
			first = mark
		}
		more = more || strings.HasPrefix(mark, rest)
	}
	for _, mark := range bodyEnds[:3] { // of no message
		if after, ok := strings.CutPrefix(rest, mark); ok {
			p.held = after
			return true
		}
		more = more || strings.HasPrefix(mark, rest)
	}
	header, body, complete := strings.Cut(p.held, messageMark)
	switch {
	case first != "" && complete && len(header) <= maxHeader:
		p.held = body
		p.message(header)
	case (first != "" || more) && !complete && len(p.held) <= maxHeader:
		return false
	default: // no header
		n += len(first)
		p.content(p.held[:n])
		p.held, p.phase = p.held[n:], inMessage{}
	}
	return true
}

func (inHeader) end(p *Parser) bool {
	if strings.Trim(p.held, space) != "" && !strings.Contains(p.held, "<|") {
		p.content(p.held)
	}
	return false
}

// message begins one with this header.
func (p *Parser) message(header string) {
	words := strings.Fields(strings.NewReplacer(channelMark, " "+channelMark+" ", "<|constrain|>", " <|constrain|> ").Replace(header))
	channel, to := "", ""
	for i, w := range words {
		if name, ok := strings.CutPrefix(w, "to="); ok {
			to = name
		} else if w == channelMark && i+1 < len(words) {
			channel = words[i+1]
		}
	}
	name, function := strings.CutPrefix(to, functionsOf)
	switch {
	case function && name != "" && len(p.tools) > 0:
		p.beginCall(name, "")
		p.object = object{}
		p.phase = inFunction{}
	case channel == "analysis" || to != "" && to != "user" && to != "assistant":
		p.thought(header+messageMark, true)
		p.phase = inMessage{thought: true}
	default:
		p.phase = inMessage{}
	}
}

// inMessage gives a message that is no call.
type inMessage struct{ thought bool }

func (m inMessage) read(p *Parser) bool {
	if m.thought && !p.thinking() {
		return false
	}
	at, found, keep := cut(p.held, bodyEnds)
	ended := slices.Contains(bodyEnds[:3], found)
	switch {
	case found == "" && m.thought:
		p.thought(p.held[:len(p.held)-keep], false)
		p.held = p.held[len(p.held)-keep:]
		return false
	case found == "":
		keep = 0
		for _, mark := range bodyEnds {
			keep = max(keep, begins(p.held, mark))
		}
		p.content(p.held[:len(p.held)-keep])
		p.held = p.held[len(p.held)-keep:]
		return false
	case m.thought && ended:
		p.endThought(at, len(found))
	case m.thought:
		p.endThought(at, 0)
	default:
		p.content(p.held[:at])
		if p.held = p.held[at:]; ended {
			p.held = p.held[len(found):]
		}
	}
	p.phase = inHeader{}
	return true
}

func (m inMessage) end(p *Parser) bool {
	if m.thought && !p.o.Inline {
		p.thought(strings.TrimRight(p.held, space), false)
	} else if m.thought {
		p.thought(p.held, false)
	} else {
		p.content(p.held)
	}
	return false
}

// inFunction is at the beginning of a call's arguments.
type inFunction struct{ begun }

func (inFunction) read(p *Parser) bool {
	n := leading(p.held)
	rest := p.held[n:]
	switch {
	case rest == "" && n <= maxHeld:
		return false
	case strings.HasPrefix(rest, "{"):
		p.held = rest
		p.phase = inArguments{then: inHeader{}, stops: bodyEnds, broken: inHeader{}}
	default:
		p.phase = inBroken{bodyEnds, inHeader{}}
	}
	return true
}
