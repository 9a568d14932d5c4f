// Package toolcall tells apart what a model says, while it says it: thoughts, content and calls of tools.
//
// Every family of models writes thoughts and calls in its own way: JSON between markers, a list of
// objects after a token, tags around parameters, channels. A [Format] is one such way to write calls, a [Thinking] one to
// write thoughts; both are found by marks in the chat template, whose author trained the model on them. A [Parser] takes text in
// any pieces and gives content, thoughts and parts of calls, the same however the text is cut:
//
//	p := toolcall.Detect(template).NewParser(toolcall.Options{Tools: tools})
//	for text := range answer {
//		deltas := p.Push(text)
//	}
//	deltas := p.Close()
//
// A call begins when its name and the start of its arguments are there; from then on its
// arguments come as they are said. Arguments that are a JSON text in a string, and calls without the format's marks, are told
// when they are complete. Text that looks like a call and is none is content, marker
// included. What models write in JSON and JSON does not have is repaired: line breaks and needless escapes in strings, Python's words.
// Where arguments break nevertheless, they are what the model said, up to the call's end. White space next to calls and thoughts
// belongs to them. What a thought says of calls is a thought.
package toolcall

import (
	"encoding/json"
	"slices"
	"strings"

	"glimpse/internal/registry"
)

// Tool is a function that the model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"` // JSON Schema of an object; empty: any object
	Strict      bool            `json:"strict"`
}

// Delta is what a piece of text adds to an answer: one of content, thoughts and a part of a call.
type Delta struct {
	Content   string
	Reasoning string
	Call      *CallDelta
}

// CallDelta is a part of the call with this index. The first one of a call has its name.
type CallDelta struct {
	Index     int
	Name      string
	Arguments string // JSON text, appended to that of the parts before
}

// Format is how a family of models writes calls.
type Format struct {
	Name, Doc string

	// detect tells whether a chat template's source teaches this format. At most
	// one format says so of a template.
	detect func(template string) bool

	openers []opener // any of them begins a call, or a list of calls
	closer  string   // what ends it; empty for none
	inner   []string // further special tokens within a call

	// channels reads the whole of an answer in the place of openers and of a Thinking: for a format that has thoughts of its own.
	channels *channels

	forced layout
}

// opener is what begins a call.
type opener struct {
	mark   string
	call   phase // reads it
	within bool  // the mark is a part of the call, and no special token
	at     place
}

// place is where in an answer an opener is one.
type place int

const (
	anywhere place = iota
	lineStart
	answerStart
)

// Formats are the known ones.
var Formats = registry.Registry[Format]{Noun: "format of tool calls"}

func register(f Format) { Formats.Add(f.Name, f) }

// Dialect is how a model writes thoughts and calls. Its zero value is one that writes neither.
type Dialect struct {
	Calls    Format   // without a name: no format that is known
	Thoughts Thinking // without a name: none
}

// Detect finds what a chat template's source teaches.
func Detect(template string) (d Dialect) {
	for _, name := range Formats.Names() {
		if f, _ := Formats.Lookup(name); f.detect(template) {
			d.Calls = f
			break
		}
	}
	if d.Calls.channels != nil {
		return d
	}
	for _, name := range Thinkings.Names() {
		if t, _ := Thinkings.Lookup(name); strings.Contains(template, t.Close) {
			d.Thoughts = t
			break
		}
	}
	return d
}

// Markers are the texts of special tokens that must be kept when tokens become text; of calls only with them.
func (d Dialect) Markers(calls bool) (markers []string) {
	for _, m := range []string{d.Thoughts.Open, d.Thoughts.Close} {
		if m != "" {
			markers = append(markers, m)
		}
	}
	if d.Calls.channels != nil {
		markers = append(markers, channelMarks...)
	}
	if !calls {
		return markers
	}
	for _, o := range d.Calls.openers {
		if !o.within && o.at == anywhere {
			markers = append(markers, o.mark)
		}
	}
	markers = append(markers, d.Calls.inner...)
	if d.Calls.closer != "" {
		markers = append(markers, d.Calls.closer)
	}
	return markers
}

// Options say what of an answer is told apart.
type Options struct {
	Tools  []Tool // that the model was told of; without any nothing is a call
	Opened bool   // the prompt has begun a thought
	Inline bool   // thoughts are content, with their marks
}

// has makes a detect: all of the marks are in the template, and none of the others.
func has(marks []string, others ...string) func(string) bool {
	return func(template string) bool {
		for _, m := range marks {
			if !strings.Contains(template, m) {
				return false
			}
		}
		return !slices.ContainsFunc(others, func(m string) bool { return strings.Contains(template, m) })
	}
}
