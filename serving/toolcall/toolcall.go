// Package toolcall reads the calls of tools out of what a model says, while it says it.
//
// Every family of models writes calls in its own way: JSON between markers, a list of
// objects after a token, tags around parameters. A [Format] is one such way; it is found by
// marks in the chat template, whose author trained the model on it. Its [Parser] takes text in
// any pieces and gives content and parts of calls, the same however the text is cut:
//
//	f, ok := toolcall.Detect(template)
//	p := f.NewParser(tools)
//	for text := range answer {
//		deltas := p.Push(text)
//	}
//	deltas := p.Close()
//
// A call begins when its name and the start of its arguments are there; from then on its
// arguments come as they are said. Text that looks like a call and is none is content, marker
// included. Where the JSON of arguments breaks, the call stays as it is, without an end, and
// what follows is content. White space next to calls belongs to them.
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

	openers   []string // any of them begins a call, or a list of calls
	closer    string   // what ends it; empty for none
	separator string   // between objects that are in no list
	inner     []string // further special tokens within a call
	bare      bool     // the object may be all of the answer, without opener; calls name a tool there is
	named     bool     // NAME[ARGS]{…} after the opener as well as JSON
	xml       bool     // <function=NAME><parameter=KEY>VALUE</parameter></function>
	lines     bool     // of xml: a line break before and after each VALUE is no part of it

	forced layout
}

// Formats are the known ones.
var Formats = registry.Registry[Format]{Noun: "format of tool calls"}

func register(f Format) { Formats.Add(f.Name, f) }

// Detect finds the format that a chat template's source teaches. ok is false where it
// teaches none, or one that is not known.
func Detect(template string) (f Format, ok bool) {
	for _, name := range Formats.Names() {
		if f, _ := Formats.Lookup(name); f.detect(template) {
			return f, true
		}
	}
	return Format{}, false
}

// Markers are the texts of special tokens that must be kept when tokens become text.
func (f Format) Markers() []string {
	markers := slices.Concat(f.openers, f.inner)
	if f.closer != "" {
		markers = append(markers, f.closer)
	}
	return markers
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
