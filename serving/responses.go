package serving

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
)

// responseRequest is the body of /v1/responses: text in, text out.
type responseRequest struct {
	settings
	Input           json.RawMessage `json:"input"`
	Instructions    *string         `json:"instructions"`
	MaxOutputTokens *int            `json:"max_output_tokens"`
	Tools           json.RawMessage `json:"tools"`
	ToolChoice      json.RawMessage `json:"tool_choice"`
	Text            *struct {
		Format json.RawMessage `json:"format"`
		Unread unread          `json:",embed"`
	} `json:"text"`
	Previous   json.RawMessage `json:"previous_response_id"`
	Background *bool           `json:"background"`
	Truncation *string         `json:"truncation"`
	Include    []string        `json:"include"`
	Parallel   *bool           `json:"parallel_tool_calls"`
	Unread     unread          `json:",embed"`
}

// read reads the request as the one of a chat that it stands for.
func (r *responseRequest) read(s *Server, req *http.Request) (*generation, error) {
	if err := readJSON(req, r); err != nil {
		return nil, err
	}
	holds := func(raw json.RawMessage) bool { return given(raw) && string(raw) != "[]" }
	switch {
	case holds(r.Tools):
		return nil, refuse("tools", "are not supported here: want /v1/chat/completions")
	case holds(r.Previous):
		return nil, refuse("previous_response_id", "answers are not stored: send the whole conversation, whose beginning is found again")
	case or(r.Background, false):
		return nil, refuse("background", "is not supported")
	case or(r.N, 1) != 1:
		return nil, refuse("n", "got %d, want 1", *r.N)
	case or(r.Truncation, "disabled") != "disabled":
		return nil, refuse("truncation", "got %q, want disabled", *r.Truncation)
	case len(r.Include) > 0:
		return nil, refuse("include", "is not supported")
	}
	r.bound("max_output_tokens", r.MaxOutputTokens)
	g, err := s.generation("resp_", &r.settings)
	if err != nil {
		return nil, err
	}
	var messages []any
	if r.Instructions != nil {
		messages = append(messages, map[string]string{"role": "system", "content": *r.Instructions})
	}
	var text string
	var items []map[string]any
	switch {
	case json.Unmarshal(r.Input, &text) == nil && text != "":
		messages = append(messages, map[string]string{"role": "user", "content": text})
	case json.Unmarshal(r.Input, &items) == nil && len(items) > 0:
		for i, item := range items {
			if kind, ok := item["type"]; ok && kind != "message" {
				return nil, refuse("input", "item %d: got type %v, want message", i, kind)
			}
			messages = append(messages, map[string]any{"role": item["role"], "content": item["content"]})
		}
	default:
		return nil, refuse("input", "got %.40s, want a text or a list of messages", orNull(r.Input))
	}
	raw, err := json.Marshal(messages)
	if err != nil {
		return nil, err
	}
	ids, err := (&conversation{Messages: raw}).encode(req.Context(), s.model.Model)
	if err != nil {
		return nil, err
	}
	g.prompts, g.conversation = [][]int32{ids}, true
	if r.Text != nil && holds(r.Text.Format) {
		var f responseFormat
		if err := f.ofText(req.Context(), r.Text.Format); err != nil {
			return nil, err
		}
		if err := g.constrain(f.grammar()); err != nil {
			return nil, err
		}
	}
	return g, g.check(s, "input", ids)
}

// response is the object of /v1/responses.
func (g *generation) response(status, item, text string, u *usage, reason string) map[string]any {
	r := map[string]any{
		"id": g.id, "object": "response", "created_at": created(), "model": g.model, "status": status, "error": nil, "incomplete_details": nil,
		"output": []any{}, "parallel_tool_calls": false, "tool_choice": "auto", "tools": []any{}, "instructions": nil, "metadata": map[string]string{},
		"temperature": g.sampling.Temperature, "top_p": g.sampling.TopP,
	}
	if reason == "length" {
		r["status"], r["incomplete_details"] = "incomplete", map[string]string{"reason": "max_output_tokens"}
	}
	if u != nil {
		r["output"] = []any{outputItem(item, text, "completed")}
		r["usage"] = map[string]any{
			"input_tokens": u.PromptTokens, "output_tokens": u.CompletionTokens, "total_tokens": u.TotalTokens,
			"input_tokens_details": u.Details, "output_tokens_details": map[string]int{"reasoning_tokens": 0}, "eviction": u.Eviction,
		}
	}
	return r
}

func outputItem(id, text, status string) map[string]any {
	content := []any{}
	if status == "completed" {
		content = append(content, outputText(text))
	}
	return map[string]any{"type": "message", "id": id, "status": status, "role": "assistant", "content": content}
}

func outputText(text string) map[string]any {
	return map[string]any{"type": "output_text", "text": text, "annotations": []any{}}
}

func (s *Server) responses(w http.ResponseWriter, req *http.Request) error {
	var r responseRequest
	g, err := r.read(s, req)
	if err != nil {
		return err
	}
	j, release, err := s.start(req, g)
	if err != nil {
		return err
	}
	defer release()
	var text strings.Builder
	var total usage
	item, reason := "msg_"+rand.Text(), ""
	take := func(said chunk) {
		if text.WriteString(said.text); said.done {
			total.add(said.usage)
			reason = finishReason(said.reason)
		}
	}
	if !r.Stream {
		if err := j.each(req.Context(), func(_ *choice, said chunk) error { take(said); return nil }); err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, g.response("completed", item, text.String(), &total, reason))
		return nil
	}
	stream, number := newEvents(w), 0
	send := func(kind string, fields map[string]any) error {
		fields["type"], fields["sequence_number"] = kind, number
		number++
		return stream.write(kind, jsonOf(fields))
	}
	at := func(fields map[string]any) map[string]any {
		fields["item_id"], fields["output_index"], fields["content_index"] = item, 0, 0
		return fields
	}
	steps := []func() error{
		func() error {
			return send("response.created", map[string]any{"response": g.response("in_progress", item, "", nil, "")})
		},
		func() error {
			return send("response.output_item.added", map[string]any{"output_index": 0, "item": outputItem(item, "", "in_progress")})
		},
		func() error { return send("response.content_part.added", at(map[string]any{"part": outputText("")})) },
		func() error {
			return j.each(req.Context(), func(_ *choice, said chunk) error {
				if take(said); said.text == "" {
					return nil
				}
				return send("response.output_text.delta", at(map[string]any{"delta": said.text}))
			})
		},
		func() error { return send("response.output_text.done", at(map[string]any{"text": text.String()})) },
		func() error {
			return send("response.content_part.done", at(map[string]any{"part": outputText(text.String())}))
		},
		func() error {
			return send("response.output_item.done", map[string]any{"output_index": 0, "item": outputItem(item, text.String(), "completed")})
		},
		func() error {
			kind := "response.completed"
			if reason == "length" {
				kind = "response.incomplete"
			}
			return send(kind, map[string]any{"response": g.response("completed", item, text.String(), &total, reason)})
		},
	}
	for _, step := range steps {
		if err := step(); err != nil {
			j.hangUp()
			e := ofModel(err)
			send("error", map[string]any{"message": e.Message, "code": e.Code, "param": e.Param})
			break
		}
	}
	return nil
}
