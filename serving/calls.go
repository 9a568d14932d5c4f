package serving

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"glimpse/engine"
	"glimpse/model/chat"
	"glimpse/serving/constraint"
	"glimpse/serving/toolcall"
)

// toolCall is a call of a function, or a part of one that is streamed.
type toolCall struct {
	Index    *int         `json:"index,omitempty"` // of streams
	ID       string       `json:"id,omitempty"`
	Type     string       `json:"type,omitempty"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name,omitempty"`
	Arguments string `json:"arguments"`
}

// replies read thoughts, content and calls of tools out of the texts of a request's choices. Every endpoint of
// conversations tells them in its own words.
type replies struct {
	parsers []*toolcall.Parser // by choice
	called  []bool             // by choice
	last    []string           // by choice: the arguments of its last call
	one     bool               // calls after the first are dropped
}

// newReplies reads the tools of a conversation that was rendered, and makes the answers calls where they must be, or texts of
// the grammar (nil: any). A thought that the prompt has begun comes before either.
func (s *Server) newReplies(ctx context.Context, x *exchange, c *conversation, grammar *constraint.Grammar) (*replies, error) {
	choice, err := readToolChoice(ctx, c.ToolChoice)
	if err != nil {
		return nil, err
	}
	tools, err := readTools(ctx, c.Tools)
	if err != nil {
		return nil, err
	}
	if choice.must() && len(tools) == 0 {
		return nil, refuse("tool_choice", "got no tools, want at least one")
	}
	if tools, err = choice.of(tools); err != nil {
		return nil, err
	}
	inline, err := s.thoughtsInline(c)
	if err != nil {
		return nil, err
	}
	dialect := toolcall.Detect(s.model.Tokenizer.Config().ChatTemplate)
	if len(tools) > 0 && dialect.Calls.Name == "" {
		return nil, refuse("tools", "how the chat template of model %s writes calls is not known: want one of %v", s.Name, toolcall.Formats.Names())
	}
	for _, text := range dialect.Markers(len(tools) > 0) {
		if id, ok := s.model.Tokenizer.TokenToID(text); ok {
			x.keep = append(x.keep, id)
		}
	}
	o := toolcall.Options{Tools: tools, Opened: dialect.Opens(c.prompt, c.begun), Inline: inline}
	out := &replies{called: make([]bool, x.n), last: make([]string, x.n), one: !or(c.Parallel, true)}
	for range x.n {
		out.parsers = append(out.parsers, dialect.NewParser(o))
	}
	if choice.must() {
		grammar = nil // of texts
	}
	if err := x.constrain(grammar, nil); err != nil {
		return nil, err
	}
	grammar, x.grammar = x.grammar, nil
	if grammar != nil {
		if grammar, err = before(grammar, dialect.Before(o, false)); err != nil {
			return nil, err
		}
	}
	if len(tools) == 0 || !choice.must() && grammar == nil {
		return out, x.constrain(grammar, nil)
	}
	if choice.must() && grammar != nil {
		return nil, refuse("structured_outputs", "got tool_choice, too: want one of them")
	}
	forced, err := grammarOf(dialect.Calls.Forced(tools, !out.one && choice.function == ""))
	if err == nil {
		forced, err = before(forced, dialect.Before(o, true))
	}
	if err != nil {
		return nil, refuse("tools", "%v", err)
	}
	if grammar != nil {
		forced = constraint.Any(forced, grammar)
	}
	return out, x.constrain(forced, nil)
}

// before is a grammar with what comes before it.
func before(grammar *constraint.Grammar, pieces []toolcall.Piece) (*constraint.Grammar, error) {
	if len(pieces) == 0 {
		return grammar, nil
	}
	first, err := grammarOf(pieces)
	if err != nil {
		return nil, err
	}
	return constraint.Sequence(first, grammar), nil
}

// Formats of thoughts, as llama.cpp names them.
const (
	reasoningAuto     = "auto" // is reasoningDeepSeek
	reasoningDeepSeek = "deepseek"
	reasoningNone     = "none"
)

// CheckReasoningFormat refuses what is no format of thoughts; "" is auto.
func CheckReasoningFormat(name string) error {
	switch name {
	case "", reasoningAuto, reasoningDeepSeek, reasoningNone:
		return nil
	}
	return fmt.Errorf("got %.40q, want auto or deepseek (apart from the content), or none (in it)", name)
}

// thoughtsInline tells whether thoughts are to stay in the content.
func (s *Server) thoughtsInline(c *conversation) (bool, error) {
	name := or(c.ReasoningFormat, s.ReasoningFormat)
	if err := CheckReasoningFormat(name); err != nil {
		return false, refuse("reasoning_format", "%v", err)
	}
	return name == reasoningNone, nil
}

// toolChoice is the field of that name.
type toolChoice struct {
	mode     string   // auto, none or required
	function string   // that must be called; "": any
	allowed  []string // functions that may be called; nil: all
}

// must tells whether the answer has to be a call.
func (t toolChoice) must() bool { return t.mode == "required" }

// of are the tools that may be called.
func (t toolChoice) of(tools []toolcall.Tool) (out []toolcall.Tool, err error) {
	if t.mode == "none" {
		return nil, nil
	}
	names := t.allowed
	if t.function != "" {
		names = []string{t.function}
	}
	for _, name := range names {
		if !slices.ContainsFunc(tools, func(tool toolcall.Tool) bool { return tool.Name == name }) {
			return nil, refuse("tool_choice", "got %.60q, which is none of the tools", name)
		}
	}
	return slices.DeleteFunc(tools, func(tool toolcall.Tool) bool { return names != nil && !slices.Contains(names, tool.Name) }), nil
}

// told are the tools that the model is told of: all but the ones that it may not call.
func (t toolChoice) told(tools []any) []any {
	if t.mode == "none" {
		return nil
	}
	return slices.DeleteFunc(tools, func(tool any) bool {
		o, _ := tool.(chat.Object)
		f, _ := o.Get("function")
		function, _ := f.(chat.Object)
		name, _ := function.Get("name")
		text, _ := name.(string)
		return t.allowed != nil && !slices.Contains(t.allowed, text)
	})
}

// readToolChoice reads auto, none, required, a function, which is required, or the tools that are allowed.
func readToolChoice(ctx context.Context, raw json.RawMessage) (t toolChoice, err error) {
	if !given(raw) {
		return toolChoice{mode: "auto"}, nil
	}
	if json.Unmarshal(raw, &t.mode) == nil {
		if t.mode != "auto" && t.mode != "none" && t.mode != "required" {
			return t, refuse("tool_choice", "got %.60q, want auto, none, required, a function or allowed_tools", t.mode)
		}
		return t, nil
	}
	type function struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	var of struct {
		function
		Allowed struct {
			Mode  string     `json:"mode"`
			Tools []function `json:"tools"`
		} `json:"allowed_tools"`
	}
	if err := decodeJSON(ctx, "tool_choice", raw, &of); err != nil {
		return t, err
	}
	switch {
	case of.Type == "function" && of.Function.Name != "":
		return toolChoice{mode: "required", function: of.Function.Name}, nil
	case of.Type == "allowed_tools" && (of.Allowed.Mode == "auto" || of.Allowed.Mode == "required"):
		t = toolChoice{mode: of.Allowed.Mode, allowed: []string{}}
		for i, f := range of.Allowed.Tools {
			if f.Type != "function" || f.Function.Name == "" {
				return t, refuse(fmt.Sprintf("tool_choice.allowed_tools.tools[%d]", i), "want type \"function\" and a function with a name")
			}
			t.allowed = append(t.allowed, f.Function.Name)
		}
		if len(t.allowed) > 0 {
			return t, nil
		}
	}
	return t, refuse("tool_choice", "got %.60s, want {\"type\": \"function\", \"function\": {\"name\": …}} or {\"type\": \"allowed_tools\", \"allowed_tools\": {\"mode\": \"auto\", \"tools\": […]}}", raw)
}

func readTools(ctx context.Context, raw json.RawMessage) (out []toolcall.Tool, err error) {
	if !given(raw) {
		return nil, nil
	}
	var list []struct {
		Type     string         `json:"type"`
		Function *toolcall.Tool `json:"function"`
	}
	if err := decodeJSON(ctx, "tools", raw, &list); err != nil {
		return nil, err
	}
	for i, t := range list {
		if t.Type != "function" || t.Function == nil || t.Function.Name == "" {
			return nil, refuse(fmt.Sprintf("tools[%d]", i), "want type \"function\" and a function with a name")
		}
		out = append(out, *t.Function)
	}
	return out, nil
}

// grammarOf is the language of forced calls.
func grammarOf(pieces []toolcall.Piece) (*constraint.Grammar, error) {
	var all []*constraint.Grammar
	for _, p := range pieces {
		var g *constraint.Grammar
		var err error
		switch {
		case p.Schema != nil:
			g, err = constraint.Schema(p.Schema, false)
		case p.Regex != "":
			g, err = constraint.Regex(p.Regex)
		case p.Alternatives != nil:
			var any []*constraint.Grammar
			for _, a := range p.Alternatives {
				one, err := grammarOf(a)
				if err != nil {
					return nil, err
				}
				any = append(any, one)
			}
			g = constraint.Any(any...)
		case p.Repeat != nil:
			if g, err = grammarOf(p.Repeat); err == nil {
				g = constraint.Repeat(g, 0, maxCalls)
			}
		default:
			g = constraint.Literal(p.Literal)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return constraint.Sequence(all...), nil
}

// maxCalls is the most calls after the first that an answer is made to have.
const maxCalls = 15

// takeText takes what a choice says, and done with the last of it, and returns what it comes to.
func (r *replies) takeText(choice int, text string, done bool) (out []toolcall.Delta) {
	if text != "" {
		out = r.parsers[choice].Push(text)
	}
	if done {
		out = append(out, r.parsers[choice].Close()...)
	}
	if r.one {
		out = slices.DeleteFunc(out, func(d toolcall.Delta) bool { return d.Call != nil && d.Call.Index > 0 })
	}
	for _, d := range out {
		if d.Call == nil {
			continue
		}
		if d.Call.Name != "" {
			r.last[choice] = ""
		}
		r.called[choice] = true
		r.last[choice] += d.Call.Arguments
	}
	return out
}

// cut tells that an answer's last call is none that can be made, since a stop text or the length has ended it.
func (r *replies) cut(choice int, reason engine.Reason) bool {
	return reason != engine.End && r.called[choice] && !json.Valid([]byte(r.last[choice]))
}

// finishReason is why a choice has ended, as OpenAI's API says it: for its calls, where it has any that are whole.
func (r *replies) finishReason(choice int, reason engine.Reason) string {
	name := finishReason(reason)
	if name == "stop" && r.called[choice] && !r.cut(choice, reason) {
		return "tool_calls"
	}
	return name
}

// addDelta adds a part of an answer.
func (m *chatMessage) addDelta(d toolcall.Delta) {
	switch {
	case d.Reasoning != "":
		text := or(m.Reasoning, "") + d.Reasoning
		m.Reasoning = &text
	case d.Call == nil:
		text := or(m.Content, "") + d.Content
		m.Content = &text
	}
	if d.Call == nil {
		return
	}
	if d.Call.Index == len(m.ToolCalls) {
		m.ToolCalls = append(m.ToolCalls, toolCall{ID: "call_" + rand.Text(), Type: "function"})
	}
	f := &m.ToolCalls[d.Call.Index].Function
	f.Name += d.Call.Name
	f.Arguments += d.Call.Arguments
}

// deltaOf is a part of an answer as it is streamed.
func deltaOf(d toolcall.Delta) *chatMessage {
	switch {
	case d.Reasoning != "":
		return &chatMessage{Reasoning: &d.Reasoning}
	case d.Call == nil:
		return &chatMessage{Content: &d.Content}
	}
	call := toolCall{Index: &d.Call.Index, Function: functionCall{d.Call.Name, d.Call.Arguments}}
	if d.Call.Name != "" {
		call.ID, call.Type = "call_"+rand.Text(), "function"
	}
	return &chatMessage{ToolCalls: []toolCall{call}}
}
