package serving

import (
	"net/http"
	"time"

	"glimpse/engine"
	"glimpse/serving/toolcall"
)

// Handle adds an endpoint.
func (s *Server) Handle(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.handle(pattern, f)
}

// SetPatience lets clients keep answers waiting for d, not for patience.
func (s *Server) SetPatience(d time.Duration) { s.patience = d }

// Tell streams what a model is to have said, in the words of /v1/responses or /v1/messages; err ends it early.
func Tell(w http.ResponseWriter, m *engine.Model, path string, err error, deltas ...toolcall.Delta) {
	x := &exchange{server: &Server{model: m}, id: "id", prompts: [][]int32{{1, 2, 3}}}
	tell := func(s *blocks) func() (chunk, error) {
		return func() (chunk, error) {
			for _, d := range deltas {
				if err := s.addDelta(d); err != nil {
					return chunk{}, err
				}
			}
			if err != nil {
				return chunk{}, err
			}
			return chunk{reason: engine.End, usage: usage{PromptTokens: 3, CompletionTokens: 9, Details: &promptDetails{1}}}, s.finish()
		}
	}
	if path == "/v1/messages" {
		a := &messageAnswer{exchange: x}
		a.stream(w, tell(&a.blocks))
		return
	}
	a := &responseAnswer{exchange: x, request: &responseRequest{Include: []string{"reasoning.encrypted_content"}}}
	a.stream(w, tell(&a.blocks))
}
