package serving

import "net/http"

// Handle adds an endpoint.
func (s *Server) Handle(pattern string, f func(w http.ResponseWriter, r *http.Request) error) {
	s.handle(pattern, f)
}
