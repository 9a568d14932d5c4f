package serving

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"

	"glimpse/engine"
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

// replies read thoughts, content and calls of tools out of what the choices of a request say. Every endpoint of
// conversations tells them in its own words.
type replies struct {
	parsers []*toolcall.Parser // by choice; nil: what is said is text
	called  []bool             // by choice
	one     bool               // calls after the first are dropped
}

// newReplies reads the tools of a conversation that was rendered, and makes the answers calls where they must be, or texts of
// the grammar (nil: any).
func (s *Server) newReplies(ctx context.Context, g *generation, c *conversation, grammar *constraint.Grammar) (*replies, error) {
	choice, named, err := toolChoice(ctx, c.ToolChoice)
	if err != nil {
		return nil, err
	}
	tools, err := readTools(ctx, c.Tools)
	if err != nil {
		return nil, err
	}
	out := &replies{called: make([]bool, g.choices), one: !or(c.Parallel, true)}
	if len(tools) == 0 || choice == "none" {
		if choice == "required" {
			return nil, refuse("tool_choice", "got no tools, want at least one")
		}
		return out, g.constrain(grammar, nil)
	}
	f, ok := toolcall.Detect(s.model.Tokenizer.Config().ChatTemplate)
	if !ok {
		return nil, refuse("tools", "how the chat template of model %s writes calls is not known: want one of %v", s.Name, toolcall.Formats.Names())
	}
	for _, text := range f.Markers() {
		if id, ok := s.model.Tokenizer.TokenToID(text); ok {
			g.keep = append(g.keep, id)
		}
	}
	for range g.choices {
		out.parsers = append(out.parsers, f.NewParser(tools))
	}
	if choice == "auto" && grammar == nil {
		return out, nil
	}
	if named != "" {
		i := slices.IndexFunc(tools, func(t toolcall.Tool) bool { return t.Name == named })
		if i < 0 {
			return nil, refuse("tool_choice", "got %q, which is none of the tools", named)
		}
		tools = tools[i : i+1]
	}
	forced, err := grammarOf(f.Forced(tools, !out.one && named == ""))
	if err != nil {
		return nil, refuse("tools", "%v", err)
	}
	if choice == "auto" {
		forced = constraint.Any(forced, grammar)
	}
	return out, g.constrain(forced, nil)
}

// toolChoice reads the field of that name: auto, none, required, or a function's name, which is required.
func toolChoice(ctx context.Context, raw json.RawMessage) (choice, named string, err error) {
	if !given(raw) {
		return "auto", "", nil
	}
	var of struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(raw, &choice) == nil {
		if choice != "auto" && choice != "none" && choice != "required" {
			return "", "", refuse("tool_choice", "got %q, want auto, none, required or a function", choice)
		}
		return choice, "", nil
	}
	if err := decodeJSON(ctx, "tool_choice", raw, &of); err != nil || of.Type != "function" || of.Function.Name == "" {
		return "", "", refuse("tool_choice", "got %.60s, want {\"type\": \"function\", \"function\": {\"name\": …}}", raw)
	}
	return "required", of.Function.Name, nil
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

// grammarOf is the language of what forced calls look like.
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

// push takes what a choice says, and done with the last of it, and returns what it comes to.
func (r *replies) push(choice int, text string, done bool) (out []toolcall.Delta) {
	if r.parsers == nil {
		if text != "" {
			out = append(out, toolcall.Delta{Content: text})
		}
		return out
	}
	if text != "" {
		out = r.parsers[choice].Push(text)
	}
	if done {
		out = append(out, r.parsers[choice].Close()...)
	}
	if r.one {
		out = slices.DeleteFunc(out, func(d toolcall.Delta) bool { return d.Call != nil && d.Call.Index > 0 })
	}
	r.called[choice] = r.called[choice] || slices.ContainsFunc(out, func(d toolcall.Delta) bool { return d.Call != nil })
	return out
}

// finishReason is why a choice has ended, as OpenAI's API says it: for its calls, where it has any.
func (r *replies) finishReason(choice int, reason engine.Reason) string {
	name := finishReason(reason)
	if name == "stop" && r.called[choice] {
		return "tool_calls"
	}
	return name
}

// take adds a part of an answer.
func (m *chatMessage) take(d toolcall.Delta) {
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
