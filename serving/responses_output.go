package serving

import (
	"encoding/json"
	"net/http"
)

// responseAnswer is an answer of /v1/responses as it grows.
type responseAnswer struct {
	*exchange
	blocks
	request *responseRequest
	created int64
	status  string // "" before the end
	err     *apiError
	usage   *usage // nil before the end

	// Of a stream.
	events *events
	number int
}

// fields are the members of a JSON object.
type fields = map[string]any

// done ends the answer.
func (a *responseAnswer) done(last chunk) {
	a.usage, a.status = &last.usage, "completed"
	if finishReason(last.reason) == "length" {
		a.status = "incomplete"
	}
}

// object is the response as it is.
func (a *responseAnswer) object() fields {
	r := a.request
	o := fields{
		"id": a.id, "object": "response", "created_at": a.created, "model": a.model, "status": "in_progress", "error": nil, "incomplete_details": nil,
		"output": []any{}, "instructions": nil, "max_output_tokens": r.MaxOutputTokens, "parallel_tool_calls": or(r.Parallel, true), "previous_response_id": nil,
		"reasoning": fields{"effort": nil, "summary": nil}, "store": false, "temperature": a.sampling.Temperature, "top_p": a.sampling.TopP, "text": fields{"format": fields{"type": "text"}},
		"tool_choice": "auto", "tools": []any{}, "truncation": "disabled", "metadata": fields{}, "usage": nil,
	}
	if r.Instructions != "" {
		o["instructions"] = r.Instructions
	}
	if r.Reasoning != nil && r.Reasoning.Effort != nil {
		o["reasoning"] = fields{"effort": *r.Reasoning.Effort, "summary": nil}
	}
	if r.Text != nil && given(r.Text.Format) {
		o["text"] = fields{"format": r.Text.Format}
	}
	if r.Truncation != "" {
		o["truncation"] = r.Truncation
	}
	if r.Tools != nil {
		o["tools"] = r.Tools
	}
	for name, raw := range map[string]json.RawMessage{"tool_choice": r.ToolChoice, "metadata": r.Metadata} {
		if given(raw) {
			o[name] = raw
		}
	}
	if a.status == "" {
		return o
	}
	o["status"] = a.status
	output := []any{}
	for _, b := range a.all {
		output = append(output, a.item(b, true))
	}
	o["output"] = output
	if a.status == "incomplete" {
		o["incomplete_details"] = fields{"reason": "max_output_tokens"}
	}
	if a.err != nil {
		o["error"] = fields{"code": or(a.err.Code, a.err.Type), "message": a.err.Message}
	}
	if u := a.usage; u != nil {
		o["usage"] = fields{
			"input_tokens": u.PromptTokens, "output_tokens": u.CompletionTokens, "total_tokens": u.TotalTokens,
			"input_tokens_details": u.Details, "output_tokens_details": fields{"reasoning_tokens": a.thoughtTokens()}, "eviction": u.Eviction,
		}
	}
	return o
}

// thoughtTokens is how many tokens the thoughts are, by themselves.
func (a *responseAnswer) thoughtTokens() (n int) {
	for _, b := range a.all {
		if b.kind == thoughtBlock {
			ids, _ := a.server.model.Tokenizer.Encode(b.text.String(), false) // of a text without an error
			n += len(ids)
		}
	}
	return n
}

// item is an item of the output; whole with all that was said.
func (a *responseAnswer) item(b *block, whole bool) fields {
	status, text := "in_progress", ""
	if whole {
		if status, text = "completed", b.text.String(); b.cut {
			status = "incomplete"
		}
	}
	switch {
	case b.kind == thoughtBlock:
		o := fields{"type": "reasoning", "id": "rs_" + b.id, "summary": []any{}, "content": []any{}, "status": status}
		if whole {
			o["content"] = []any{a.part(b, text)}
		}
		if a.request.encrypted() {
			o["encrypted_content"] = sealed(text)
		}
		return o
	case b.kind == callBlock:
		tool, known := a.request.named[b.name]
		if !known {
			tool.Name = b.name
		}
		o := fields{"type": "function_call", "id": "fc_" + b.id, "call_id": "call_" + b.id, "name": tool.Name, "arguments": text, "status": status}
		if tool.Type == "custom" {
			o = fields{"type": "custom_tool_call", "id": "ctc_" + b.id, "call_id": "call_" + b.id, "name": tool.Name, "input": inputOf(text), "status": status}
		}
		if tool.namespace != "" {
			o["namespace"] = tool.namespace
		}
		return o
	}
	o := fields{"type": "message", "id": "msg_" + b.id, "role": "assistant", "content": []any{}, "status": status}
	if whole {
		o["content"] = []any{a.part(b, text)}
	}
	return o
}

// inputOf is the input of a custom tool; what is no argument of it stays as it is.
func inputOf(arguments string) string {
	var in customInput
	if json.Unmarshal([]byte(arguments), &in) != nil {
		return arguments
	}
	return in.Input
}

// part is the content of a block's item.
func (a *responseAnswer) part(b *block, text string) fields {
	if b.kind == thoughtBlock {
		return fields{"type": "reasoning_text", "text": text}
	}
	return fields{"type": "output_text", "text": text, "annotations": []any{}, "logprobs": a.logProbsOf(b.tokens)}
}

func (a *responseAnswer) logProbsOf(tokens []tokenLogProb) []chatLogProb {
	return chatLogProbsOf(a.server.model.Tokenizer, tokens).Content
}

func (a *responseAnswer) sendEvent(kind string, o fields) error {
	o["type"], o["sequence_number"] = kind, a.number
	a.number++
	return a.events.writeData(kind, jsonOf(o))
}

// inItem sends an event of an item, of its content where it has one.
func (a *responseAnswer) inItem(kind string, b *block, o fields) error {
	o["item_id"], o["output_index"] = a.item(b, false)["id"], b.index
	if b.kind != callBlock {
		o["content_index"] = 0
	}
	return a.sendEvent(kind, o)
}

func (a *responseAnswer) begin(b *block) error {
	if err := a.sendEvent("response.output_item.added", fields{"output_index": b.index, "item": a.item(b, false)}); err != nil || b.kind == callBlock {
		return err
	}
	return a.inItem("response.content_part.added", b, fields{"part": a.part(b, "")})
}

func (a *responseAnswer) grow(b *block, text string) error {
	switch {
	case b.kind == thoughtBlock:
		return a.inItem("response.reasoning_text.delta", b, fields{"delta": text})
	case b.kind == textBlock:
		return a.inItem("response.output_text.delta", b, fields{"delta": text, "logprobs": a.logProbsOf(a.tokens)})
	case a.request.named[b.name].Type == "custom": // whose input is known when the arguments are whole
		return nil
	}
	return a.inItem("response.function_call_arguments.delta", b, fields{"delta": text})
}

func (a *responseAnswer) end(b *block) (err error) {
	text := b.text.String()
	switch {
	case b.kind == thoughtBlock:
		err = a.inItem("response.reasoning_text.done", b, fields{"text": text})
	case b.kind == textBlock:
		err = a.inItem("response.output_text.done", b, fields{"text": text, "logprobs": a.logProbsOf(b.tokens)})
	case a.request.named[b.name].Type == "custom":
		if err = a.inItem("response.custom_tool_call_input.delta", b, fields{"delta": inputOf(text)}); err == nil {
			err = a.inItem("response.custom_tool_call_input.done", b, fields{"input": inputOf(text)})
		}
	default:
		err = a.inItem("response.function_call_arguments.done", b, fields{"name": a.item(b, false)["name"], "arguments": text})
	}
	if err == nil && b.kind != callBlock {
		err = a.inItem("response.content_part.done", b, fields{"part": a.part(b, text)})
	}
	if err != nil {
		return err
	}
	return a.sendEvent("response.output_item.done", fields{"output_index": b.index, "item": a.item(b, true)})
}

// stream answers with events.
func (a *responseAnswer) stream(w http.ResponseWriter, answer func() (chunk, error)) error {
	a.events, a.to = newEvents(w), a
	for _, kind := range []string{"response.created", "response.in_progress"} {
		if err := a.sendEvent(kind, fields{"response": a.object()}); err != nil {
			return err
		}
	}
	last, err := answer()
	if err != nil {
		a.status, a.err = "failed", ofModel(err)
		a.sendEvent("response.failed", fields{"response": a.object()})
		a.sendEvent("error", fields{"message": a.err.Message, "code": a.err.Code, "param": a.err.Param})
		return err
	}
	a.done(last)
	return a.sendEvent("response."+a.status, fields{"response": a.object()})
}
