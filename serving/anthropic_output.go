package serving

import (
	"encoding/json"
	"net/http"

	"glimpse/engine"
)

// messageAnswer is an answer of /v1/messages as it grows.
type messageAnswer struct {
	*exchange
	blocks
	reason       *string // nil before the end
	stopSequence *string
	usage        *usage

	events *events
}

// done ends the answer.
func (a *messageAnswer) done(last chunk) {
	reason := "end_turn"
	switch {
	case finishReason(last.reason) == "length":
		reason = "max_tokens"
	case last.reason == engine.StopText:
		reason, a.stopSequence = "stop_sequence", &last.stop
	default:
		for _, b := range a.all {
			if b.kind == callBlock {
				reason = "tool_use"
			}
		}
	}
	a.reason, a.usage = &reason, &last.usage
}

// object is the message as it is.
func (a *messageAnswer) object() fields {
	content := []any{}
	for _, b := range a.all {
		content = append(content, a.contentBlock(b, true))
	}
	return fields{
		"id": a.id, "type": "message", "role": "assistant", "model": a.model, "content": content,
		"stop_reason": a.reason, "stop_sequence": a.stopSequence, "usage": a.used(),
	}
}

// used is the usage: tokens of the input that were found in a cache are counted apart.
func (a *messageAnswer) used() fields {
	if a.usage == nil {
		return fields{"input_tokens": len(a.prompts[0]), "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 0}
	}
	found := 0
	if a.usage.Details != nil {
		found = a.usage.Details.CachedTokens
	}
	return fields{
		"input_tokens": a.usage.PromptTokens - found, "cache_creation_input_tokens": 0, "cache_read_input_tokens": found,
		"output_tokens": a.usage.CompletionTokens, "eviction": a.usage.Eviction,
	}
}

// contentBlock is a block of the content; whole with all that was said.
func (a *messageAnswer) contentBlock(b *block, whole bool) fields {
	text := ""
	if whole {
		text = b.text.String()
	}
	switch b.kind {
	case thoughtBlock:
		return fields{"type": "thinking", "thinking": text, "signature": ""}
	case callBlock:
		input := json.RawMessage("{}")
		if json.Valid([]byte(text)) {
			input = json.RawMessage(text)
		}
		return fields{"type": "tool_use", "id": "toolu_" + b.id, "name": b.name, "input": input}
	}
	return fields{"type": "text", "text": text}
}

func (a *messageAnswer) sendEvent(kind string, o fields) error {
	o["type"] = kind
	return a.events.writeData(kind, jsonOf(o))
}

func (a *messageAnswer) begin(b *block) error {
	return a.sendEvent("content_block_start", fields{"index": b.index, "content_block": a.contentBlock(b, false)})
}

func (a *messageAnswer) grow(b *block, text string) error {
	delta := fields{"type": "text_delta", "text": text}
	switch b.kind {
	case thoughtBlock:
		delta = fields{"type": "thinking_delta", "thinking": text}
	case callBlock:
		delta = fields{"type": "input_json_delta", "partial_json": text}
	}
	return a.sendEvent("content_block_delta", fields{"index": b.index, "delta": delta})
}

func (a *messageAnswer) end(b *block) error {
	return a.sendEvent("content_block_stop", fields{"index": b.index})
}

// stream answers with events.
func (a *messageAnswer) stream(w http.ResponseWriter, answer func() (chunk, error)) error {
	a.events, a.to = newEvents(w), a
	if err := a.sendEvent("message_start", fields{"message": a.object()}); err != nil {
		return err
	}
	if err := a.sendEvent("ping", fields{}); err != nil {
		return err
	}
	last, err := answer()
	if err != nil {
		a.events.writeData("error", jsonOf(anthropicError(w, ofModel(err))))
		return err
	}
	a.done(last)
	if err := a.sendEvent("message_delta", fields{"delta": fields{"stop_reason": a.reason, "stop_sequence": a.stopSequence}, "usage": a.used()}); err != nil {
		return err
	}
	return a.sendEvent("message_stop", fields{})
}
