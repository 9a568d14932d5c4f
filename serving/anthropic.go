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
func (m *messagesRequest) readRequest(s *Server, req *http.Request) (*exchange, *replies, error) {
	ctx := req.Context()
	if err := readJSON(req, m); err != nil {
		return nil, nil, err
	}
	if or(m.N, 1) != 1 {
		return nil, nil, refuse("n", "got %d, want 1", *m.N)
	}
	m.Stop = m.StopSequences
	x, err := s.newExchange(req, "msg_", &m.settings)
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
	if err := t.render(ctx, x, c, false); err != nil {
		return nil, nil, err
	}
	if err := x.checkPrompt(s, "messages", x.prompts[0]); err != nil {
		return nil, nil, err
	}
	replies, err := s.newReplies(ctx, x, c, grammar)
	return x, replies, err
}

func (s *Server) messages(w http.ResponseWriter, req *http.Request) error {
	var m messagesRequest
	x, replies, err := m.readRequest(s, req)
	if err != nil {
		return err
	}
	if m.MaxTokens == nil {
		return refuse("max_tokens", "is missing")
	}
	a := &messageAnswer{exchange: x}
	return x.tellBlocks(w, req, &a.blocks, replies, m.Stream, a)
}

// countTokens says how many tokens a conversation is.
func (s *Server) countTokens(w http.ResponseWriter, req *http.Request) error {
	var m messagesRequest
	x, _, err := m.readRequest(s, req)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, map[string]int{"input_tokens": len(x.prompts[0])})
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
