package serving

import (
	"net/http"
	"time"
)

// Handle adds an endpoint.
func (s *Server) Handle(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.handle(pattern, f)
}

// SetPatience lets clients keep answers waiting for d, not for patience.
func (s *Server) SetPatience(d time.Duration) { s.patience = d }
