package serving

import (
	"cmp"
	"encoding/json"
	"net/http"
)

// messagesRequest is the body of /v1/messages, Anthropic's API, and of /v1/messages/count_tokens, which reads the conversation of it.
type messagesRequest struct {
	settings
	conversationBlocks
	StopSequences []string `json:"stop_sequences"`
	OutputConfig  *struct {
		Effort *string         `json:"effort"`
		Format json.RawMessage `json:"format"`
		Unread unread          `json:",embed"`
	} `json:"output_config"`
	OutputFormat json.RawMessage `json:"output_format"` // as it was called before
	Unread       unread          `json:",embed"`
}

// readRequest reads the request as the one of a chat that it stands for.
func (m *messagesRequest) readRequest(s *Server, req *http.Request) (*generation, *replies, error) {
	ctx := req.Context()
	if err := readJSON(req, m); err != nil {
		return nil, nil, err
	}
	if or(m.N, 1) != 1 {
		return nil, nil, refuse("n", "got %d, want 1", *m.N)
	}
	m.Stop = m.StopSequences
	g, err := s.generation("msg_", &m.settings)
	if err != nil {
		return nil, nil, err
	}
	c, t, err := m.conversationBlocks.readConversation(ctx)
	if err != nil {
		return nil, nil, err
	}
	var f responseFormat
	raw := m.OutputFormat
	if o := m.OutputConfig; o != nil {
		c.Effort = o.Effort
		if given(o.Format) {
			raw = o.Format
		}
	}
	if given(raw) {
		if err := f.ofText(ctx, raw); err != nil {
			return nil, nil, err
		}
	}
	grammar, err := f.grammar()
	if err != nil {
		return nil, nil, err
	}
	if err := t.render(ctx, g, c, false); err != nil {
		return nil, nil, err
	}
	if err := g.checkPrompt(s, "messages", g.prompts[0]); err != nil {
		return nil, nil, err
	}
	replies, err := s.newReplies(ctx, g, c, grammar)
	return g, replies, err
}

func (s *Server) messages(w http.ResponseWriter, req *http.Request) error {
	var m messagesRequest
	g, replies, err := m.readRequest(s, req)
	if err != nil {
		return err
	}
	if m.MaxTokens == nil {
		return refuse("max_tokens", "is missing")
	}
	j, release, err := s.start(req, g)
	if err != nil {
		return err
	}
	defer release()
	a := &messageAnswer{generation: g}
	answer := func() (chunk, error) { return a.answer(req.Context(), j, replies) }
	if m.Stream {
		if a.stream(w, answer) != nil {
			j.hangUp()
		}
		return nil
	}
	last, err := answer()
	if err != nil {
		return err
	}
	a.done(last)
	writeJSON(w, http.StatusOK, a.object())
	return nil
}

// countTokens says how many tokens a conversation is.
func (s *Server) countTokens(w http.ResponseWriter, req *http.Request) error {
	var m messagesRequest
	g, _, err := m.readRequest(s, req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(g.prompts[0])})
	return nil
}

// anthropicPaths are where errors have Anthropic's form.
const anthropicPaths = "/v1/messages"

// anthropicErrors are its API's types of errors, by their status.
var anthropicErrors = map[int]string{
	http.StatusBadRequest: invalidRequest, http.StatusUnauthorized: "authentication_error", http.StatusForbidden: "permission_error",
	http.StatusNotFound: "not_found_error", http.StatusRequestEntityTooLarge: "request_too_large", http.StatusTooManyRequests: "rate_limit_error",
	http.StatusServiceUnavailable: "overloaded_error",
}

// anthropicError is an error in Anthropic's form.
func anthropicError(w http.ResponseWriter, e *apiError) fields {
	kind, ok := anthropicErrors[e.status]
	if !ok && e.status < 500 {
		kind = invalidRequest
	}
	return fields{"type": "error", "error": fields{"type": cmp.Or(kind, "api_error"), "message": e.Message}, "request_id": w.Header().Get("X-Request-Id")}
}
